"""Settings of the group coordinator: Kafka's names and Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from shoal.assign.server import SERVER_ASSIGNORS, TargetAssignor


class MigrationPolicy(Enum):
    """Which way a group may go while it has members (``group.consumer.migration.policy``)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class OutsideAssignor:
    """A user's: targets are ordered of it, and come when they are ready (``target_orders.py``)."""

    name: str


CoordinatorAssignor: TypeAlias = TargetAssignor | OutsideAssignor


def _built_in_assignors() -> tuple[CoordinatorAssignor, ...]:
    return tuple(make() for make in SERVER_ASSIGNORS.values())


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """One field per setting ``group.consumer.…`` of the broker; dots are underscores."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int | None = None
    """``None``: it follows the group (``consumer_heartbeat.py``). Kafka's default is 5000."""
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    max_size: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    assignors: tuple[CoordinatorAssignor, ...] = field(default_factory=_built_in_assignors)
    """The first is the one of groups whose members name none."""

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise ValueError(
                "consumer.min_session_timeout_ms must be positive and not above "
                "consumer.max_session_timeout_ms"
            )
        if self.heartbeat_interval_ms is not None and not (
            0 < self.heartbeat_interval_ms < self.session_timeout_ms
        ):
            raise ValueError(
                "consumer.heartbeat_interval_ms must be positive and below "
                "consumer.session_timeout_ms"
            )
        if not self.assignors:
            raise ValueError("consumer.assignors must name at least one assignor")

    def assignor(self, name: str) -> CoordinatorAssignor | None:
        return next((each for each in self.assignors if each.name == name), None)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One field per broker setting; dots are underscores."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    group_new_member_join_timeout_ms: int = 300_000
    """A new member cannot heartbeat while its join is parked, so it is given this long. A
    constant in Kafka."""

    coordinator_pulse_interval_ms: int = 1_000
    """How often a shell calls at least while sessions run. A call that comes much later means
    that the coordinator itself stood still, and members get that time back. Not in Kafka."""

    dead_connection_grace_ms: int | None = None
    """How long a member whose connection broke may be silent (``presence.py``); ``None``: as long
    as its session lasts. Not in Kafka."""

    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)

    def __post_init__(self) -> None:
        if not 0 < self.group_min_session_timeout_ms <= self.group_max_session_timeout_ms:
            raise ValueError(
                "group_min_session_timeout_ms must be positive and not above "
                "group_max_session_timeout_ms"
            )
        if self.group_initial_rebalance_delay_ms < 0:
            raise ValueError("group_initial_rebalance_delay_ms must not be negative")
        for name in (
            "group_max_size",
            "offsets_retention_minutes",
            "offsets_retention_check_interval_ms",
            "group_new_member_join_timeout_ms",
            "coordinator_pulse_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
