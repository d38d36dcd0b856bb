"""Is what we read still the log? Positions are checked whenever a partition's leader epoch changes.

A new leader may never have had the last records of the old one (an unclean election, a crash that
lost its tail). Offsets alone do not show that: the same number may mean another record by now. So
every position carries the epoch of the record before it, and before a new leader is fetched from,
it is asked where that epoch ended in its log (KIP-320). A position past that end has been cut off.

Rule: a partition in doubt is neither fetched nor read. The question is asked in the background;
what a cut log means for the user is decided in ``settle``, inside a call of the user's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal.client.cluster import RETRIED, Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.positions import EARLIEST, LATEST, AssignedPartition, Positions
from shoal.errors import BrokerError, ErrorCode, LogTruncatedError, ShoalError
from shoal.types import TopicPartition
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest

logger = logging.getLogger(__name__)


class _Question(NamedTuple):
    """What was asked about a partition: stale if the state has another lap by now."""

    state: AssignedPartition
    lap: int
    epoch: int
    current_epoch: int


class _Cut(NamedTuple):
    """The log ends before our position; ``end`` is ``None`` if it never had our epoch."""

    state: AssignedPartition
    lap: int
    end: int | None
    end_epoch: int | None


class Validator:
    """Checks positions against new leaders. Lives on the engine's loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: Positions,
        on_checked: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._positions = positions
        self._on_checked = on_checked
        self._cuts: dict[AssignedPartition, _Cut] = {}
        self._failure: ShoalError | None = None
        self._task: asyncio.Task[None] | None = None

    def doubts(self, state: AssignedPartition) -> bool:
        """Whether ``state`` must not be fetched yet; looks into it if so."""
        leader = self._cluster.metadata.leader_of(state.tp)
        if leader is None or leader.leader_epoch == state.checked_epoch:
            return state.is_doubtful
        epoch, known = state.fetch_epoch, leader.leader_epoch
        # The same epoch is the same leader, whose log only grows. And without an epoch on either
        # side (an old broker, a bare seek) there is nothing to compare.
        if epoch is None or known is None or epoch == known:
            state.checked_epoch, state.is_doubtful = known, False
            return False
        state.is_doubtful = True
        state.read_from = None
        if self._task is None and self._failure is None and not self._is_cut(state):
            self._task = asyncio.get_running_loop().create_task(self._validate())
        return True

    def look(self) -> None:
        """Metadata came: see whether any partition has a new leader."""
        for state in self._positions:
            if state.position is not None:
                self.doubts(state)

    @property
    def has_news(self) -> bool:
        """Whether ``settle`` has something to do."""
        return bool(self._cuts) or self._failure is not None

    def settle(self) -> ShoalError | None:
        """In the user's call: move cut-off positions by the reset policy, or say what is wrong."""
        failure, self._failure = self._failure, None
        cuts, self._cuts = self._cuts, {}
        for cut in cuts.values():
            state = cut.state
            if state.lap != cut.lap or state.position is None:
                continue
            if cut.end is not None and cut.end >= state.position:
                # Only what nobody has seen yet was cut: fetch it again, from the new log.
                state.seek(state.position, state.leader_epoch)
            elif self._config.auto_offset_reset == "none":
                # Still in doubt: looked into again, and told again, until the user seeks.
                failure = failure or LogTruncatedError(state.tp, state.position, cut.end)
            else:
                self._reset(cut, state.position)
        return failure

    def _reset(self, cut: _Cut, position: int) -> None:
        policy = self._config.auto_offset_reset
        if cut.end is None:
            logger.warning(
                "%s: the log was cut before offset %d, nobody knows where; reset to %s",
                *(cut.state.tp, position, policy),
            )
            cut.state.reset(EARLIEST if policy == "earliest" else LATEST)
        else:
            logger.warning(
                "%s: the log was cut at offset %d, before our position %d; going on from the cut",
                *(cut.state.tp, cut.end, position),
            )
            cut.state.seek(cut.end, cut.end_epoch)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- in the background ---

    def _is_cut(self, state: AssignedPartition) -> bool:
        cut = self._cuts.get(state)
        return cut is not None and cut.lap == state.lap

    def _questions(self) -> list[_Question]:
        found = []
        for state in self._positions:
            leader = self._cluster.metadata.leader_of(state.tp)
            current = None if leader is None else leader.leader_epoch
            epoch = state.fetch_epoch
            if not state.is_doubtful or epoch is None or current is None:
                continue
            if not self._is_cut(state):
                found.append(_Question(state, state.lap, epoch, current))
        return found

    async def _validate(self) -> None:
        config = self._config
        backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        try:
            while questions := self._questions():
                try:
                    await self._ask(questions)
                except RETRIED as error:
                    logger.info("positions not validated yet: %s", error)
                if self._questions():
                    await asyncio.sleep(backoff.next_s())
        except ShoalError as error:
            self._failure = error
        finally:
            self._task = None
            self._on_checked()

    async def _ask(self, questions: list[_Question]) -> None:
        deadline = Deadline(self._config.request_timeout_ms / 1000)
        if any(one.epoch > one.current_epoch for one in questions):
            # Somebody has heard of a newer leader than we have: hear of it too, then ask.
            await self._cluster.refresh({one.state.tp.topic for one in questions}, deadline)
            questions = self._questions()
        by_leader: dict[int, list[_Question]] = {}
        failures: list[BaseException] = []
        for one in questions:
            try:
                by_leader.setdefault(self._cluster.leader_id(one.state.tp), []).append(one)
            except RETRIED as error:
                failures.append(error)  # nobody leads it now: no reason to let the others wait
        outcomes = await asyncio.gather(
            *(self._ask_leader(node, asked, deadline) for node, asked in by_leader.items()),
            return_exceptions=True,
        )
        failures += [outcome for outcome in outcomes if outcome is not None]
        # What will not pass is told before what may.
        for failure in sorted(failures, key=lambda one: isinstance(one, RETRIED)):
            raise failure

    async def _ask_leader(self, node_id: int, asked: list[_Question], deadline: Deadline) -> None:
        try:
            answer = await self._cluster.ask(_request(asked), node_id=node_id, deadline=deadline)
        except BrokerError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            for one in asked:  # a broker from before KIP-320: nothing can be found out
                _checked(one)
        else:
            self._judge(asked, answer)

    def _judge(self, asked: list[_Question], answer: Any) -> None:
        """Take each partition's answer in; the first failure is raised after all of them."""
        open_ = {one.state.tp: one for one in asked}
        failure: ShoalError | None = None
        for topic in answer.topics:
            for found in topic.partitions:
                tp = TopicPartition(topic.topic, found.partition)
                try:
                    self._cluster.check("OffsetForLeaderEpoch", found.error_code, str(tp))
                except ShoalError as error:
                    failure = failure or error
                    continue
                one = open_.pop(tp, None)
                if one is None or one.lap != one.state.lap:
                    continue
                end = (
                    found.end_offset if found.leader_epoch >= 0 and found.end_offset >= 0 else None
                )
                if end is not None and end >= one.state.fetch_offset:
                    _checked(one)
                else:
                    self._cuts[one.state] = _Cut(
                        one.state, one.lap, end, None if end is None else found.leader_epoch
                    )
        if failure is not None:
            raise failure


def _checked(one: _Question) -> None:
    if one.lap == one.state.lap:
        one.state.checked_epoch = one.current_epoch
        one.state.is_doubtful = False


def _request(asked: list[_Question]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]] = {}
    for one in asked:
        topics.setdefault(one.state.tp.topic, []).append(
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=one.state.tp.partition,
                current_leader_epoch=one.current_epoch,
                leader_epoch=one.epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=parts)
            for name, parts in topics.items()
        ],
    )
