"""Changes of the catalogue on their way: decided, journaled, stored, then in force.

Rule: nothing counts before it is stored, and who decides holds ``turn`` until it counts: what was
true when it was decided is still true then. What follows from a change (logs to remove, offsets to
forget) is the broker's business, through ``apply``.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Catalogue, Refusal, Topic
from shoal.broker.config import BrokerConfig
from shoal.broker.journal import Entry, Journal
from shoal.broker.slices import Turns
from shoal.errors import BrokerError

logger = logging.getLogger("shoal.broker.catalogue_changes")

_ENTRIES_AT_ONCE: Final = 500
_PRODUCER_IDS_AT_ONCE: Final = 1_000
OFFSETS_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
TRANSACTIONS_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "1",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
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
        self._transactions_partitions = config.transactions.state_partitions
        self.turn = asyncio.Lock()
        self._producer_ids = range(0)
        self._waiting_for_ids: deque[Callable[[], None]] = deque()

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
        elif name == TRANSACTIONS_TOPIC:
            self.transactions_topic()
        return self._catalogue.decide_create(
            name, os.urandom(16), partitions, configs, beside=beside
        )

    async def commit(self, entries: Sequence[Entry]) -> None:
        """Journal decisions, wait until they are stored, then let them count.

        Raises:
            OSError: they could not be stored. They do not count, unless they are very many: then
                the first of them may.
        """
        turns = Turns()
        for start in range(0, len(entries), _ENTRIES_AT_ONCE):
            part = entries[start : start + _ENTRIES_AT_ONCE]
            await self._store(part)
            for entry in part:
                await turns.pause()
                self._apply(entry)
        deleted = {entry["name"] for entry in entries if entry["kind"] == "delete"}
        if deleted:
            for _ in self._forget(deleted):
                await turns.pause()

    async def _store(self, entries: Sequence[Entry]) -> None:
        self._journal.append(entries)
        if not self._waits:
            return
        try:
            await self._loop.run_in_executor(None, self._journal.sync)
        except OSError:
            # Nobody knows what is on the disk now, so what is in force is written anew.
            in_force = list(self._catalogue.entries())
            await self._loop.run_in_executor(None, self._journal.rewrite, in_force)
            raise

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """For tests and the command line: raises what the protocol would answer."""
        async with self.turn:
            decided = self.decide_create(name, partitions, configs)
            if isinstance(decided, tuple):
                raise BrokerError(*decided)
            await self.commit([decided])

    def create_missing(self, names: list[str], then: Callable[[], None]) -> None:
        """Create topics by default settings, as far as that is possible; call ``then`` after."""

        async def run() -> None:
            async with self.turn:
                entries: list[Entry] = []
                for name in dict.fromkeys(names):
                    beside = len(entries), len(entries) * self._default_partitions
                    decided = self.decide_create(name, self._default_partitions, {}, beside=beside)
                    if isinstance(decided, dict):
                        entries.append(decided)
                try:
                    await self.commit(entries)
                except OSError as error:
                    logger.error("topics cannot be made: %s", error)
            then()

        self._spawn(run())

    def offsets_topic(self) -> Topic:
        """Made by the first group."""
        return self._internal_topic(OFFSETS_TOPIC, self._offsets_partitions, OFFSETS_CONFIGS)

    def transactions_topic(self) -> Topic:
        """Made by the first producer that asks for its transaction coordinator."""
        return self._internal_topic(
            TRANSACTIONS_TOPIC, self._transactions_partitions, TRANSACTIONS_CONFIGS
        )

    def _internal_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Its entry need not be awaited: its logs speak for it."""
        topic = self._catalogue.get(name)
        if topic is None:
            decided = self._catalogue.decide_create(
                name, os.urandom(16), partitions, configs, internal=True
            )
            assert isinstance(decided, dict), decided
            self._journal.append([decided])
            self._apply(decided)
            if self._waits:
                self._loop.run_in_executor(None, self._journal.sync)
            topic = self._catalogue.get(name)
            assert topic is not None
        return topic

    def new_producer_id(self, then: Callable[[int | None], None]) -> None:
        """An id never given before, also not before a crash: blocks are journaled first.

        None if that is not possible now.
        """
        self.reserve_producer_ids(lambda: then(self.take_producer_id()))

    def take_producer_id(self) -> int | None:
        """As ``new_producer_id``, for those who cannot wait: None if there is none at hand."""
        if not self._producer_ids:
            return None
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def reserve_producer_ids(self, then: Callable[[], None]) -> None:
        """Call ``then`` when an id is at hand, or when there is none to be had now."""
        if self._producer_ids:
            then()
            return
        self._waiting_for_ids.append(then)
        if len(self._waiting_for_ids) == 1:
            self._spawn(self._reserve_producer_ids())

    async def _reserve_producer_ids(self) -> None:
        is_reserved = False
        try:
            async with self.turn:
                start = self._catalogue.next_producer_id
                end = start + _PRODUCER_IDS_AT_ONCE
                await self.commit([{"kind": "producer_ids", "next": end}])
            self._producer_ids = range(start, end)
            is_reserved = True
        except OSError as error:
            logger.error("producer ids cannot be reserved: %s", error)
        waiting, self._waiting_for_ids = self._waiting_for_ids, deque()
        for then in waiting:
            if is_reserved:
                self.reserve_producer_ids(then)  # they may be more than the block has
            else:
                then()
