"""Settings of the group coordinator: Kafka's names and Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass


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
