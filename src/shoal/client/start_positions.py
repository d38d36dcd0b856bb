"""Finding where to start: committed offsets first, then the reset policy.

Rule: works in the background for as long as a partition of the assignment has no position, and
applies an answer only if nobody moved the partition meanwhile (its lap). What the user must hear
is kept until the next poll raises it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shoal.client.cluster import RETRIED, Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.offsets import EARLIEST, LATEST, Found, ask_offsets, fetch_committed
from shoal.client.positions import AssignedPartition, Positions
from shoal.errors import NoOffsetForPartitionError, ShoalError
from shoal.types import TopicPartition

logger = logging.getLogger(__name__)

_Laps = dict[TopicPartition, tuple[AssignedPartition, int]]


class Locator:
    """Gives positions to partitions that have none. Lives on the engine's loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: Positions,
        on_found: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._positions = positions
        self._on_found = on_found
        self._task: asyncio.Task[None] | None = None
        self._failure: ShoalError | None = None

    def start(self) -> None:
        """Look for positions, unless that is under way or none is missing."""
        if self._task is None and self._failure is None and self._missing():
            self._task = asyncio.get_running_loop().create_task(self._locate())

    def take_error(self) -> ShoalError | None:
        """What the user must hear, once; nothing of partitions sought to a place meanwhile."""
        failure, self._failure = self._failure, None
        if isinstance(failure, NoOffsetForPartitionError):
            lost = [
                state.tp
                for state in self._positions
                if state.needs_position and state.tp in failure.topic_partitions
            ]
            return NoOffsetForPartitionError(lost) if lost else None
        return failure

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _missing(self) -> bool:
        return any(state.position is None for state in self._positions)

    async def _locate(self) -> None:
        config = self._config
        backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        try:
            while self._missing():
                try:
                    await self._from_group()
                    await self._from_ends()
                except RETRIED as error:
                    logger.info("positions not found yet: %s", error)
                    await asyncio.sleep(backoff.next_s())
        except ShoalError as error:
            self._failure = error
        finally:
            self._task = None
            self._on_found()

    def _deadline(self) -> Deadline:
        return Deadline(self._config.request_timeout_ms / 1000)

    async def _from_group(self) -> None:
        """Partitions without position: the committed offset, or else the policy."""
        wanted: _Laps = {s.tp: (s, s.lap) for s in self._positions if s.needs_position}
        if not wanted:
            return
        committed = {}
        if self._config.group_id is not None:
            committed = await fetch_committed(
                self._cluster, self._config.group_id, list(wanted), self._deadline()
            )
        nowhere = []
        for tp, (state, lap) in wanted.items():
            if state.lap != lap or not state.needs_position:
                continue
            found = committed.get(tp)
            if found is not None:
                state.find(found.offset, found.leader_epoch)
            elif self._config.auto_offset_reset == "none":
                nowhere.append(tp)
            else:
                is_earliest = self._config.auto_offset_reset == "earliest"
                state.reset(EARLIEST if is_earliest else LATEST)
        self._on_found()
        if nowhere:
            raise NoOffsetForPartitionError(nowhere)

    async def _from_ends(self) -> None:
        """Partitions that await a reset: ask their leaders where the ends are."""
        wanted: _Laps = {s.tp: (s, s.lap) for s in self._positions if s.reset_to is not None}
        if not wanted:
            return
        ends = {tp: s.reset_to for tp, (s, _) in wanted.items() if s.reset_to is not None}

        def apply(found: Found) -> None:
            for tp, answer in found.items():
                state, lap = wanted[tp]
                if state.lap == lap and answer is not None:
                    state.find(answer.offset, answer.leader_epoch)
            self._on_found()

        level = self._config.isolation_level
        await ask_offsets(self._cluster, ends, self._deadline(), apply, level)
