"""What a coordinator hands to its shell, and the sheet on which it is drafted.

Rule: a request handler never sends, writes or waits. It fills a ``Draft``; the coordinator turns
that into a ``Decision``, and the shell does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from shoal.group.config import GroupConfig
from shoal.group.journal import JournalRecord
from shoal.group.timers import Timers

Ticket: TypeAlias = Any
"""The shell's own handle for a request that waits for its answer; anything but ``None``."""

Response: TypeAlias = Any
"""A response class of ``shoal.wire.apis``."""

TimerName: TypeAlias = tuple[Literal["session", "join", "sync", "expiry"], str, str]
"""What, of which group, of which member."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request, perhaps to one that came long before."""

    ticket: Ticket
    response: Response


class EventKind(Enum):
    """What happened to a group."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    MEMBER_EXPIRED = "member expired"
    MEMBER_REPLACED = "member replaced"
    MEMBER_REFUSED = "member refused"
    REBALANCE_STARTED = "rebalance started"
    GENERATION_STARTED = "generation started"
    STABLE = "stable"
    EMPTY = "empty"
    GROUP_REMOVED = "group removed"
    OFFSETS_EXPIRED = "offsets expired"
    APPEND_FAILED = "append failed"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """Something worth a line in a log, and what ``shoal why`` tells about a rebalance."""

    kind: EventKind
    group_id: str
    generation: int
    cause: str
    member_id: str | None = None
    member_count: int = 0
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to append, all or none, and the replies that may leave once they are durable."""

    journal: tuple[JournalRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    events: tuple[GroupEvent, ...] = ()


NOTHING = Decision()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and how."""

    version: int
    client_id: str
    client_host: str
    ticket: Ticket


class Draft:
    """A decision being written. It lives for one call."""

    __slots__ = ("clock_ms", "config", "events", "journal", "new_id", "now_ms", "replies", "timers")

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        new_id: Callable[[], str],
        *,
        now_ms: int,
        clock_ms: int,
    ) -> None:
        self.config = config
        self.timers = timers
        self.new_id = new_id
        self.now_ms = now_ms
        """Wall clock, for timestamps in records."""
        self.clock_ms = clock_ms
        """The coordinator's own time, for timers: it stands still while the coordinator does."""
        self.journal: list[JournalRecord] = []
        self.replies: list[Reply] = []
        self.events: list[GroupEvent] = []

    def write(self, record: JournalRecord) -> None:
        self.journal.append(record)

    def write_all(self, records: Iterable[JournalRecord]) -> None:
        self.journal.extend(records)

    def reply(self, ticket: Ticket, response: Response) -> None:
        self.replies.append(Reply(ticket, response))

    def tell(self, event: GroupEvent) -> None:
        self.events.append(event)

    def arm(self, name: TimerName, delay_ms: int) -> None:
        self.timers.arm(name, self.clock_ms + delay_ms)

    def cancel(self, name: TimerName) -> None:
        self.timers.cancel(name)

    def decision(self) -> Decision:
        if not (self.journal or self.replies or self.events):
            return NOTHING
        return Decision(tuple(self.journal), tuple(self.replies), tuple(self.events))
