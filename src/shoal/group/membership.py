"""What a group member and the shell around it say to each other.

Rule: these are plain values with no behaviour, and they do not name a protocol. The classic
member (``member.py``) speaks them today; a KIP-848 member can stand beside it and speak the same
ones, so a shell is written once.

Two kinds of output:

* *Orders* for the engine, which may come out of any call: ``Send``, ``FindCoordinator``,
  ``RefreshMetadata``, ``Disconnect``.
* *Steps* of a rebalance for the thread of the user: ``CommitPositions``, ``Revoked``,
  ``Assigned``, ``Lost``, ``Failed``. They come only out of the calls that thread makes (``poll``,
  ``callback_done``, ``unsubscribe``, ``close``), so no callback can run beside user code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest

MemberRequest: TypeAlias = (
    JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest
)


class MemberState(Enum):
    """Where a member stands; the words are those of Kafka's client."""

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
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the rebalance timeout this member asks the coordinator for."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    auto_commit: bool = True
    """Whether a rejoin asks the shell to commit positions first (``CommitPositions``)."""
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


# --- steps of a rebalance, for the thread of the user -----------------------------------------


@dataclass(frozen=True, slots=True)
class CommitPositions:
    """Before rejoining: commit the positions of all owned partitions, asynchronously.

    Call ``positions_committed`` when there is an answer (at once if there is nothing to commit).
    ``hold``: return no records of owned partitions until the next step, or they would be
    delivered twice (KAFKA-14196).
    """

    hold: bool


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
Order: TypeAlias = Send | Disconnect | FindCoordinator | RefreshMetadata
Output: TypeAlias = Order | Step
