"""Incremental fetch sessions (KIP-227): what a client need not say again, and need not hear again.

Rule: a session only remembers; it reads no log. ``Sessions.open`` turns a request into the list
of partitions to read, ``FetchContext.worth_sending`` says which results the client has to see.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from os import urandom
from typing import Final, NamedTuple

from shoal.errors import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1
# A session in use is not thrown out for a new one; the time is Kafka's.
_EVICTABLE_AFTER_MS: Final = 120_000

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


class Session:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
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
    session: Session | None

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

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: OrderedDict[int, Session] = OrderedDict()

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
    ) -> FetchContext | ErrorCode:
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            session = None
            if session_epoch == INITIAL_EPOCH:
                session = self._new(wanted, uses_topic_ids, now_ms)
            return FetchContext(
                wanted, session.id if session is not None else NO_SESSION, False, session
            )
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._update(session, wanted, forgotten)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        if not session.partitions:
            # Everything was forgotten: an empty session is closed, as Kafka does.
            del self._sessions[session_id]
            return FetchContext((), NO_SESSION, True, session)
        return FetchContext(list(session.partitions.values()), session.id, True, session)

    def _new(
        self, wanted: list[FetchPartition], uses_topic_ids: bool, now_ms: int
    ) -> Session | None:
        if not wanted:
            return None
        if len(self._sessions) >= self._limit:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < _EVICTABLE_AFTER_MS:
                return None
            del self._sessions[oldest.id]
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(urandom(4)) & _EPOCH_MAX
        session = Session(session_id, uses_topic_ids, now_ms)
        for partition in wanted:
            session.partitions[partition.key] = partition
        self._sessions[session_id] = session
        return session

    def _update(
        self, session: Session, wanted: list[FetchPartition], forgotten: Iterable[Key]
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
