"""What a group member and the shell around it say to each other.

Rule: these are plain values with no behaviour, and they do not name a protocol. The classic
member (``member.py``) speaks them today; a KIP-848 member can stand beside it and speak the same
ones, so a shell is written once.

Two kinds of output:

* *Orders* for the engine, which may come out of any call: ``Send``, ``FindCoordinator``,
  ``RefreshMetadata``.
* *Steps* of a rebalance for the thread of the user: ``CommitPositions``, ``Revoked``,
  ``Assigned``, ``Lost``, ``Failed``. They come only out of the calls that thread makes (``poll``,
  ``callback_done``, ``unsubscribe``, ``close``), so no callback can run beside user code.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Topics and partitions as the shell knows them from Metadata responses.

    ``racks`` holds per topic one entry per partition, in order of partition number: the racks of
    its replicas (empty if the brokers name none). A topic asked for and not there is left out.
    """

    racks: Mapping[str, tuple[frozenset[str], ...]]
    asked: frozenset[str] | None = None
    """The topics this answer speaks for; ``None``: every topic of the cluster."""
    internal: frozenset[str] = field(default_factory=frozenset)


# --- orders for the engine -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``request`` to the coordinator; give the answer to ``receive(ticket, ...)``.

    The member watches the time itself: the shell needs no timeout for it, and may forget the
    ticket when it is told to ``FindCoordinator``.
    """

    ticket: int
    request: MemberRequest


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Look the coordinator up, then call ``coordinator_found`` or ``coordinator_not_found``.

    ``disconnect``: close the connection to the last one first, so that no late answer of it
    can arrive (answers to old tickets are ignored in any case).
    """

    disconnect: bool = False


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
Order: TypeAlias = Send | FindCoordinator | RefreshMetadata
Output: TypeAlias = Order | Step
