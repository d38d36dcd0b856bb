"""What a group member and the shell around it say to each other.

Rule: these are plain values with no behaviour, and a shell that speaks them need not know which
protocol a member speaks: the classic one (``classic_member.py``) and that of KIP-848
(``consumer_member.py``) stand behind ``GroupMember``, so a shell is written once.

Two kinds of output:

* *Orders* for the engine, which may come out of any call: ``Send``, ``FindCoordinator``,
  ``RefreshMetadata``, ``ResolveTopics``, ``Disconnect``, ``Warn``.
* *Steps* of a rebalance for the thread of the user: ``CommitPositions``, ``Revoked``,
  ``Assigned``, ``Lost``, ``Failed``. They come only out of the calls that thread makes (``poll``,
  ``callback_done``, ``unsubscribe``, ``close``), so no callback can run beside user code.

How to drive a member::

    # the engine, in its loop:
    perform(member.tick(now))                      # not later than member.next_deadline()
    perform(member.receive(ticket, response, now)) # an answer to a Send
    perform(member.connection_lost(now))           # the connection to the coordinator broke
    perform(member.coordinator_found(now))         # or coordinator_not_found(code, now)
    perform(member.update_metadata(topics, now))   # every Metadata response (member.wanted_topics)

    # the user's thread, inside poll(), for as long as it waits there:
    perform(member.subscribe(topics, now))
    perform(member.poll(now))       # whenever member.wants_poll, and once per heartbeat interval
    perform(member.close(now))      # then wait for member.has_left, as long as close may take

``perform`` walks the outputs. For a ``Revoked``, ``Assigned`` or ``Lost`` it runs the user's
callback and then performs ``member.callback_done(now, error)``, from which the next step comes.
There is at most one step in a list, the last entry. Heartbeats do not stop for user code: while a
callback runs the engine goes on ticking.

A commit is not the member's business, but whom to commit as is: ``commit_as()`` gives the
identity or the verdict why not, ``commit_answered(code, sent_as, now)`` says what an answer means,
and ``positions_committed(verdict, now)`` goes on after a ``CommitPositions``. If a connection
breaks, the member hears of it before anything else is done about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from shoal.errors import ErrorCode
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

MemberRequest: TypeAlias = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
)
MemberAnswer: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | ConsumerGroupHeartbeatResponse
)


class MemberState(Enum):
    """Where a classic member stands; the words are those of Kafka's client."""

    UNJOINED = "unjoined"
    """Not in the group, or thrown out of it: nothing is sent for it but a lookup."""
    PREPARING = "preparing"
    """JoinGroup is on its way, or about to be sent: no heartbeats."""
    COMPLETING = "completing"
    """JoinGroup was answered, SyncGroup was not: heartbeats with the new generation."""
    STABLE = "stable"
    """SyncGroup was answered: heartbeats; the assignment is adopted in the user's next poll."""


class CommitVerdict(Enum):
    """What the answer to an OffsetCommit means for the one who sent it."""

    DONE = "done"
    RETRY = "retry"
    """Send it again after a backoff; the member may have ordered a new lookup."""
    REBALANCING = "rebalancing"
    """Not now: poll until the rebalance is over, then commit again."""
    STALE = "stale"
    """The member is in the group with a newer epoch than the commit named. Send it again, if every
    partition of it is still owned; else it is REFUSED, for the newer epoch would be let pass."""
    REFUSED = "refused"
    """The group moved on without this member: CommitFailedError. Others may own the partitions."""
    ERROR = "error"
    """Raise the code as it is; sending the same again cannot help."""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings a member needs. Defaults are Kafka's."""

    group_id: str
    group_instance_id: str | None = None
    client_rack: str | None = None
    group_remote_assignor: str | None = None
    """Which of the coordinator's assignors this member wants (KIP-848)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the rebalance timeout this member asks the coordinator for."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    auto_commit: bool = True
    """Whether the shell is asked to commit before a rejoin or revocation (``CommitPositions``)."""
    exclude_internal_topics: bool = True

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ValueError("group_id must not be empty")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be lower than "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """Topics and partitions as a Metadata response tells them.

    ``racks[topic][partition]`` lists the racks of the replicas, ``None`` for one without; it may
    be left out where brokers name no racks. A topic that was asked for and is not there is absent.
    """

    partition_counts: Mapping[str, int]
    racks: Mapping[str, Sequence[Sequence[str | None]]] = field(default_factory=dict)
    asked: frozenset[str] | None = None
    """The topics this answer speaks for; ``None``: every topic of the cluster."""
    internal: frozenset[str] = frozenset()
    ids: Mapping[str, bytes] = field(default_factory=dict)
    """Topic ids, of brokers that have them."""


# --- orders for the engine -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``request`` to the coordinator; give the answer to ``receive(ticket, ...)``.

    The member watches the time itself: the shell needs no timeout for it. If the connection
    breaks, ``connection_lost`` says so for all tickets at once.
    """

    ticket: int
    request: MemberRequest


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to the coordinator: it is not to be trusted any more.

    Answers still on their way are ignored (their tickets are void), but the broker must not hold
    a reply for a request nobody waits for.
    """


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Look the coordinator up, once, then call ``coordinator_found`` or ``coordinator_not_found``.

    The member paces the attempts.
    """


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Fetch metadata for these topics (``None``: all of them) and call ``update_metadata``."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ResolveTopics:
    """Ask which topics have these ids, once, and call ``update_metadata`` with what is known.

    The member paces the attempts.
    """

    ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Warn:
    """Write this into the log: nothing stops for it, and somebody should know."""

    text: str


# --- steps of a rebalance, for the thread of the user -----------------------------------------


@dataclass(frozen=True, slots=True)
class CommitPositions:
    """Before partitions are given up: commit the positions of all owned ones, asynchronously.

    Call ``positions_committed`` when there is an answer (at once if there is nothing to commit).
    ``held`` is what is about to be given up: return no records of it any more, or they would be
    delivered twice (KAFKA-14196).
    """

    held: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Run ``on_partitions_revoked``, then forget these partitions, then ``callback_done``."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """Own exactly ``owned``, run ``on_partitions_assigned(partitions)``, then ``callback_done``.

    Positions of ``partitions`` start from the committed offsets; what was owned before and still
    is keeps its position.
    """

    partitions: tuple[TopicPartition, ...]
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Run ``on_partitions_lost``, then forget these partitions, then ``callback_done``.

    Others may own them already: a commit for them would be refused.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Raise ``error`` out of the user's call. No ``callback_done`` for it."""

    error: Exception


Step: TypeAlias = CommitPositions | Revoked | Assigned | Lost | Failed
Order: TypeAlias = Send | Disconnect | FindCoordinator | RefreshMetadata | ResolveTopics | Warn
Output: TypeAlias = Order | Step


# --- the member itself -------------------------------------------------------------------------


class GroupMember(Protocol):
    """One member of a group, whatever protocol it speaks. See the module for how to drive it."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """Sorted; what the last completed ``Assigned``, ``Revoked`` or ``Lost`` left."""
        ...

    @property
    def is_subscribed(self) -> bool: ...

    @property
    def is_in_group(self) -> bool:
        """Whether the coordinator has this member, as far as it said: somebody has to say
        good-bye."""
        ...

    @property
    def topics(self) -> frozenset[str]:
        """The subscription: the listed topics, or those that match the pattern now."""
        ...

    @property
    def knows_coordinator(self) -> bool: ...

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is in its group."""
        ...

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics to keep metadata of; ``None``: all."""
        ...

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """From a ``CommitPositions`` to the revocation: return no records of these."""
        ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def has_left(self) -> bool:
        """Closed, and nothing is on its way any more."""
        ...

    @property
    def wants_poll(self) -> bool:
        """Whether ``poll`` would do something: wake up a user who waits in poll."""
        ...

    def next_deadline(self) -> int | None:
        """When ``tick`` is due; ``None``: only another input can change anything."""
        ...

    # calls for the user's thread

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[Output]:
        """Want these topics, instead of whatever was wanted before."""
        ...

    def subscribe_pattern(self, pattern: re.Pattern[str], now_ms: int) -> list[Output]:
        """Want every topic whose whole name matches, as this member sees it."""
        ...

    def subscribe_regex(self, regex: str, now_ms: int) -> list[Output]:
        """Want every topic the broker matches; ConfigError where brokers match nothing."""
        ...

    def unsubscribe(self, now_ms: int) -> list[Output]:
        """Give up everything and leave."""
        ...

    def close(self, now_ms: int) -> list[Output]:
        """Like ``unsubscribe``, and forever."""
        ...

    def enforce_rebalance(self, reason: str) -> list[Output]:
        """The next ``poll`` rejoins, though nothing has changed, where members can ask for it."""
        ...

    def poll(self, now_ms: int) -> list[Output]:
        """The user is here: callbacks may run, and the poll interval starts again."""
        ...

    def callback_done(self, now_ms: int, error: Exception | None = None) -> list[Output]:
        """The callback of the last step has run; gives what comes next."""
        ...

    def callback_interrupted(self) -> None:
        """A wakeup cut the callback short: the next ``poll`` gives the same step again."""
        ...

    def positions_committed(self, verdict: CommitVerdict, now_ms: int) -> None:
        """The commit asked for by ``CommitPositions`` was answered."""
        ...

    # calls for the engine

    def tick(self, now_ms: int) -> list[Output]:
        """Do what time asks for."""
        ...

    def receive(self, ticket: int, answer: MemberAnswer, now_ms: int) -> list[Output]:
        """An answer to a ``Send``. One that comes too late changes nothing."""
        ...

    def connection_lost(self, now_ms: int) -> list[Output]:
        """The connection to the coordinator broke."""
        ...

    def need_coordinator(self, now_ms: int) -> list[Output]:
        """Someone wants to commit or to fetch offsets."""
        ...

    def coordinator_found(self, now_ms: int) -> list[Output]:
        """``FindCoordinator`` succeeded, and the shell will connect to it."""
        ...

    def coordinator_not_found(self, code: ErrorCode, now_ms: int) -> list[Output]:
        """It failed; NETWORK_EXCEPTION if no broker answered."""
        ...

    def update_metadata(self, answer: ClusterTopics, now_ms: int) -> list[Output]:
        """A Metadata response came, asked for or not."""
        ...

    # commits

    def commit_as(self) -> ConsumerGroupMetadata | CommitVerdict:
        """Whom to name in OffsetCommit, or why none can be sent now."""
        ...

    def commit_answered(
        self, code: ErrorCode, sent_as: ConsumerGroupMetadata, now_ms: int
    ) -> tuple[CommitVerdict, list[Output]]:
        """What an answer (the first error of its partitions, or NONE) means."""
        ...
