"""The sheet on which a coordinator's decision is drafted, and what it tells of groups.

Rule: a request handler never sends, writes or waits. It fills a ``Draft``; the coordinator turns
that into a decision, and the shell does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.journal import JournalRecord
from shoal.group.coordinator.target_orders import TargetOrder, TargetOrders
from shoal.machine.decision import Decision, Reply, Response, Ticket
from shoal.machine.timers import Timers

TimerName: TypeAlias = tuple[str, str, str]
"""What, of which group, of which member. A kind of group chooses the first word for its timers."""


Sight: TypeAlias = Callable[[str], bool] | None
"""Which topics somebody may see, by name; ``None``: all."""


class EventKind(Enum):
    """What happened to a group."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    MEMBER_EXPIRED = "member expired"
    MEMBER_REPLACED = "member replaced"
    MEMBER_REFUSED = "member refused"
    REBALANCE_STARTED = "rebalance started"
    GENERATION_STARTED = "generation started"
    EPOCH_BUMPED = "epoch bumped"
    TARGET_COMPUTED = "target computed"
    ASSIGNOR_FAILED = "assignor failed"
    PROTOCOL_CHANGED = "protocol changed"
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


GroupDecision: TypeAlias = Decision[JournalRecord, GroupEvent]

NOTHING: Final[GroupDecision] = Decision()


class Draft:
    """A decision being written. It lives for one call."""

    __slots__ = (
        "clock_ms",
        "config",
        "events",
        "image",
        "journal",
        "new_id",
        "now_ms",
        "orders",
        "replies",
        "sees",
        "sights",
        "timers",
    )

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        new_id: Callable[[], str],
        image: ClusterImage,
        orders: TargetOrders,
        sights: dict[str, Sight],
        *,
        now_ms: int,
        clock_ms: int,
    ) -> None:
        self.config = config
        self.image = image
        self.timers = timers
        self.new_id = new_id
        self.orders = orders
        self.sees: Sight = None
        """Which topics whoever asks may see."""
        self.sights = sights
        """Group → which topics they may see with whose heartbeat its expressions are resolved."""
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

    def order(self, order: TargetOrder) -> None:
        """It leaves as replies do: when what it is about is stored."""
        self.orders.note(order)
        self.reply(self.orders.ticket, order)

    def tell(self, event: GroupEvent) -> None:
        self.events.append(event)

    def arm(self, name: TimerName, delay_ms: int) -> None:
        self.timers.arm(name, self.clock_ms + delay_ms)

    def cancel(self, name: TimerName) -> None:
        self.timers.cancel(name)

    def decision(self) -> GroupDecision:
        if not (self.journal or self.replies or self.events):
            return NOTHING
        return Decision(tuple(self.journal), tuple(self.replies), tuple(self.events))
