"""Incremental fetch sessions (KIP-227): what a client need not say again, and need not hear again.

Rule: a session only remembers; it reads no log. ``Sessions.open`` turns a request into the list of
partitions to read, ``FetchContext.worth_sending`` says which results the client has to see.

A session lives no longer than its connection (clients begin a new one after a cut anyway), and all
of them together remember no more than their share of memory. Whoever gets none, because that is
used up or because a topic is not known, is served all the same: it says everything each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from os import urandom
from typing import Any, Final, NamedTuple

from shoal.broker.memory import MemoryBudget
from shoal.errors import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1
# A session in use is not thrown out for a new one; the time is Kafka's.
_EVICTABLE_AFTER_MS: Final = 120_000
# What a session takes for each partition, measured.
PARTITION_BYTES: Final = 320

# A topic is named by its id from Fetch v13 on and by its name before.
Key = tuple[str | bytes, int]


class FetchPartition:
    """One partition a client wants, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_high_watermark",
        "last_log_start",
        "last_stable",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.log_start_offset = log_start_offset
        self.last_high_watermark = -1
        self.last_log_start = -1
        self.last_stable = -1

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class ServedFetchSession:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = (
        "epoch",
        "held_bytes",
        "id",
        "last_used_ms",
        "owner",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, owner: object, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.owner = owner
        self.held_bytes = 0
        self.epoch = 1
        self.last_used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[Key, FetchPartition] = OrderedDict()

    def move_to_end(self, key: Key) -> None:
        if key in self.partitions:
            self.partitions.move_to_end(key)


class FetchContext(NamedTuple):
    """What one request means: partitions to read, and how its reply is labelled."""

    partitions: Iterable[FetchPartition]
    session_id: int
    is_incremental: bool
    session: ServedFetchSession | None

    def worth_sending(
        self,
        partition: FetchPartition,
        *,
        error: ErrorCode,
        has_records: bool,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> bool:
        """Whether the client must see this result; remembers it as seen if so."""
        changed = (
            has_records
            or error is not ErrorCode.NONE
            or partition.last_high_watermark != high_watermark
            or partition.last_log_start != log_start_offset
            or partition.last_stable != last_stable_offset
        )
        # An error is repeated until it is over, so it must not be remembered as seen.
        known = error is ErrorCode.NONE
        partition.last_high_watermark = high_watermark if known else -1
        partition.last_log_start = log_start_offset if known else -1
        partition.last_stable = last_stable_offset if known else -1
        if has_records and self.is_incremental and self.session is not None:
            # Whoever got data goes to the end: a busy partition must not starve the others.
            self.session.move_to_end(partition.key)
        return changed or not self.is_incremental


class Sessions:
    """All sessions, at most ``limit`` of them; the longest unused one goes first."""

    def __init__(self, limit: int, memory: MemoryBudget) -> None:
        self._limit = limit
        self._memory = memory
        self._sessions: OrderedDict[int, ServedFetchSession] = OrderedDict()
        self._of_owner: dict[Any, set[int]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        *,
        session_id: int,
        session_epoch: int,
        wanted: list[FetchPartition],
        forgotten: Iterable[Key],
        uses_topic_ids: bool,
        now_ms: int,
        owner: object,
        is_known: Callable[[str | bytes], object],
    ) -> FetchContext | ErrorCode:
        """What a request of the connection ``owner`` means; ``is_known`` tells topics there are."""
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION and self._find(session_id, owner) is not None:
                self._drop(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH and _all_known(wanted, is_known):
                session = self._new(wanted, owner, uses_topic_ids, now_ms)
            return FetchContext(
                wanted, session.id if session is not None else NO_SESSION, False, session
            )
        session = self._find(session_id, owner)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if wanted or forgotten:
            known = session.partitions
            added = [one for one in wanted if one.key not in known]
            if not (_all_known(added, is_known) and self._has_room_for(len(added))):
                # The client begins anew and names everything; then it gets an answer, if not a
                # session.
                self._drop(session_id)
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._update(session, wanted, forgotten)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        if not session.partitions:
            # Everything was forgotten: an empty session is closed, as Kafka does.
            self._drop(session_id)
            return FetchContext((), NO_SESSION, True, session)
        return FetchContext(list(session.partitions.values()), session.id, True, session)

    def forget(self, owner: object) -> None:
        """A connection is closed, and nobody else may use what it began."""
        for session_id in list(self._of_owner.get(owner, ())):
            self._drop(session_id)

    def _find(self, session_id: int, owner: object) -> ServedFetchSession | None:
        """The session, if it is this connection's: ids are short enough to be guessed."""
        found = self._sessions.get(session_id)
        return found if found is not None and found.owner is owner else None

    def _has_room_for(self, partitions: int) -> bool:
        memory = self._memory
        return memory.sessions + partitions * PARTITION_BYTES <= memory.sessions_max

    def _count(self, session: ServedFetchSession) -> None:
        held_bytes = len(session.partitions) * PARTITION_BYTES
        if held_bytes != session.held_bytes:
            self._memory.hold_sessions(held_bytes - session.held_bytes)
            session.held_bytes = held_bytes

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id)
        self._memory.hold_sessions(-session.held_bytes)
        session.held_bytes = 0
        ids = self._of_owner[session.owner]
        ids.discard(session_id)
        if not ids:
            del self._of_owner[session.owner]

    def _new(
        self, wanted: list[FetchPartition], owner: object, uses_topic_ids: bool, now_ms: int
    ) -> ServedFetchSession | None:
        if not wanted:
            return None
        if len(self._sessions) >= self._limit or not self._has_room_for(len(wanted)):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < _EVICTABLE_AFTER_MS:
                return None
            self._drop(oldest.id)
            if not self._has_room_for(len(wanted)):
                return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(urandom(4)) & _EPOCH_MAX
        session = ServedFetchSession(session_id, owner, uses_topic_ids, now_ms)
        for partition in wanted:
            session.partitions[partition.key] = partition
        self._sessions[session_id] = session
        self._of_owner.setdefault(owner, set()).add(session_id)
        self._count(session)
        return session

    def _update(
        self, session: ServedFetchSession, wanted: list[FetchPartition], forgotten: Iterable[Key]
    ) -> None:
        for partition in wanted:
            known = session.partitions.get(partition.key)
            if known is None:
                session.partitions[partition.key] = partition
                continue
            known.fetch_offset = partition.fetch_offset
            known.max_bytes = partition.max_bytes
            known.current_leader_epoch = partition.current_leader_epoch
            known.log_start_offset = partition.log_start_offset
        for key in forgotten:
            session.partitions.pop(key, None)
        self._count(session)


def _all_known(
    partitions: Iterable[FetchPartition], is_known: Callable[[str | bytes], object]
) -> bool:
    return all(map(is_known, {one.topic for one in partitions}))
