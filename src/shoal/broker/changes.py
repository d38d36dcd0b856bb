"""Changes of the catalogue on their way: decided, journaled, stored, then in force.

Rule: nothing counts before it is stored, and who decides holds ``turn`` until it counts: what was
true when it was decided is still true then. What follows from a change (logs to remove, offsets to
forget) is the broker's business, through ``apply``.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from shoal.broker.config import BrokerConfig
from shoal.broker.journal import Entry, Journal
from shoal.broker.slices import Turns
from shoal.broker.topics import OFFSETS_TOPIC, Catalogue, Refusal, Topic
from shoal.errors import BrokerError

_PRODUCER_IDS_AT_ONCE: Final = 1_000
OFFSETS_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}


class Changes:
    """Everything that writes to the journal."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        catalogue: Catalogue,
        journal: Journal,
        *,
        apply: Callable[[Entry], None],
        forget: Callable[[set[str]], Iterable[None]],
        spawn: Callable[[Any], None],
    ) -> None:
        self._loop = loop
        self._catalogue = catalogue
        self._journal = journal
        self._apply = apply
        self._forget = forget
        self._spawn = spawn
        self._waits = config.durability != "os"
        self._default_partitions = config.topics.partitions
        self._offsets_partitions = config.groups.offsets_partitions
        self.turn = asyncio.Lock()
        self._producer_ids = range(0)
        self._waiting_for_ids: deque[Callable[[int], None]] = deque()

    def decide_create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        beside: tuple[int, int] = (0, 0),
    ) -> Entry | Refusal:
        if name == OFFSETS_TOPIC:
            # It makes itself, without waiting for a turn.
            self.offsets_topic()
        return self._catalogue.decide_create(
            name, os.urandom(16), partitions, configs, beside=beside
        )

    async def commit(self, entries: Iterable[Entry]) -> None:
        """Journal decisions, wait until they are stored, then let them count."""
        entries = list(entries)
        turns = Turns()
        for entry in entries:
            await turns.pause()
            self._journal.append(entry)
        if self._waits:
            await self._loop.run_in_executor(None, self._journal.sync)
        for entry in entries:
            await turns.pause()
            self._apply(entry)
        deleted = {entry["name"] for entry in entries if entry["kind"] == "delete"}
        if deleted:
            for _ in self._forget(deleted):
                await turns.pause()

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """For tests and the command line: raises what the protocol would answer."""
        async with self.turn:
            decided = self.decide_create(name, partitions, configs)
            if isinstance(decided, tuple):
                raise BrokerError(*decided)
            await self.commit([decided])

    def create_missing(self, names: list[str], then: Callable[[], None]) -> None:
        """Create topics by default settings, as far as that is allowed; call ``then`` after."""

        async def run() -> None:
            async with self.turn:
                entries: list[Entry] = []
                for name in dict.fromkeys(names):
                    beside = len(entries), len(entries) * self._default_partitions
                    decided = self.decide_create(name, self._default_partitions, {}, beside=beside)
                    if isinstance(decided, dict):
                        entries.append(decided)
                if entries:
                    await self.commit(entries)
            then()

        self._spawn(run())

    def offsets_topic(self) -> Topic:
        """Made by the first group. Its entry need not be awaited: its logs speak for it."""
        topic = self._catalogue.get(OFFSETS_TOPIC)
        if topic is None:
            decided = self._catalogue.decide_create(
                OFFSETS_TOPIC,
                os.urandom(16),
                self._offsets_partitions,
                OFFSETS_CONFIGS,
                internal=True,
            )
            assert isinstance(decided, dict), decided
            self._journal.append(decided)
            self._catalogue.replay(decided)
            if self._waits:
                self._loop.run_in_executor(None, self._journal.sync)
            topic = self._catalogue.get(OFFSETS_TOPIC)
            assert topic is not None
        return topic

    def new_producer_id(self, then: Callable[[int], None]) -> None:
        """An id never given before, also not before a crash: blocks are journaled first."""
        if self._producer_ids:
            first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            then(first)
            return
        self._waiting_for_ids.append(then)
        if len(self._waiting_for_ids) == 1:
            self._spawn(self._reserve_producer_ids())

    async def _reserve_producer_ids(self) -> None:
        start = self._catalogue.next_producer_id
        end = start + _PRODUCER_IDS_AT_ONCE
        await self.commit([{"kind": "producer_ids", "next": end}])
        self._producer_ids = range(start, end)
        waiting, self._waiting_for_ids = self._waiting_for_ids, deque()
        for then in waiting:
            self.new_producer_id(then)
