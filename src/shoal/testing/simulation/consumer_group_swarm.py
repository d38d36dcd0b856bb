"""What one seed means to a group of the new protocol: its world, and what will go wrong there.

Everything that goes wrong in a classic group goes wrong here too (``swarm.py``). Beside it members
change the protocol they speak, subscribe to expressions that the broker matches, and are removed
by an administrator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from random import Random
from typing import Any, Final

from shoal.group.coordinator.config import MigrationPolicy
from shoal.testing.simulation import swarm
from shoal.testing.simulation.swarm import GroupScenario, Planned


class ConsumerGroupFault(Enum):
    """What can go wrong in these groups alone."""

    MIGRATION = "a member restarts with the other protocol, and so does who comes after it"
    EXPRESSION = "a member subscribes to what an expression matches, or to names again"
    REMOVAL = "an administrator removes a member"
    STATIC_RETURN = "a static member leaves for a while, and comes back"


_SECOND: Final = 1_000
_FREQUENCIES: Final[Mapping[ConsumerGroupFault, tuple[tuple[int, ...], int]]] = {
    ConsumerGroupFault.MIGRATION: ((10 * _SECOND, 30 * _SECOND), 8 * _SECOND),
    ConsumerGroupFault.EXPRESSION: ((10 * _SECOND, 40 * _SECOND), 0),
    ConsumerGroupFault.REMOVAL: ((15 * _SECOND, 50 * _SECOND), 0),
    ConsumerGroupFault.STATIC_RETURN: ((8 * _SECOND, 30 * _SECOND), 10 * _SECOND),
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupScenario(GroupScenario):
    """A group whose members speak either protocol."""

    consumer_share: float
    """How many members speak the new one."""
    policy: MigrationPolicy
    heartbeat_told_ms: int | None
    """What the coordinator tells members of the new protocol; ``None``: it follows the group."""
    assignment_interval_ms: int
    remote_assignor: str | None
    regex_share: float
    own_fault_kinds: dict[ConsumerGroupFault, int]


def consumer_group_scenario(seed: int) -> ConsumerGroupScenario:
    """The world of a seed."""
    classic = asdict(swarm.scenario(seed))
    random = Random(seed ^ 0x848)
    share = random.choice((1.0, 1.0, 0.6, 0.3))
    policies = [MigrationPolicy.BIDIRECTIONAL] * 3 + [MigrationPolicy.UPGRADE]
    if share == 1.0:
        policies.append(MigrationPolicy.DISABLED)
    policy = random.choice(policies)
    kinds = [kind for kind in ConsumerGroupFault if random.random() < 0.4]
    if policy is MigrationPolicy.DISABLED and ConsumerGroupFault.MIGRATION in kinds:
        kinds.remove(ConsumerGroupFault.MIGRATION)
    # The coordinator's own pattern is drawn for each member; classic ones match for themselves.
    return ConsumerGroupScenario(
        **_changed(classic, random),
        consumer_share=share,
        policy=policy,
        heartbeat_told_ms=random.choice((None, None, 1_000, 3_000)),
        assignment_interval_ms=random.choice((1_000, 1_000, 0)),
        remote_assignor=random.choice((None, None, "uniform", "range")),
        regex_share=random.choice((0.0, 0.0, 0.3, 1.0)),
        own_fault_kinds={kind: random.choice(_FREQUENCIES[kind][0]) for kind in kinds},
    )


def _changed(classic: dict[str, Any], random: Random) -> dict[str, Any]:
    """Less often than in a classic group: commits that go astray, which say little here."""
    classic["join_version"] = 9
    classic["static_share"] = random.choice((0.0, 0.0, 0.5, 1.0))
    # Classic members of one group must have an assignor in common, whoever is there.
    classic["mixed_assignors"] = classic["assignors"]
    return classic


def consumer_group_faults(world: ConsumerGroupScenario) -> list[Planned[Any]]:
    """Everything that will go wrong, in order."""
    longest_ms = {kind: longest for kind, (_, longest) in _FREQUENCIES.items()}
    own = swarm.plan(
        world.own_fault_kinds, longest_ms, world.duration_ms, Random(world.seed ^ 0x8485EED)
    )
    every: list[Planned[Any]] = [*swarm.faults(world), *own]
    return sorted(every, key=lambda fault: (fault.at_ms, fault.kind.name, fault.pick))
