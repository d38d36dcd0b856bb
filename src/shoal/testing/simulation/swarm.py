"""What one seed means: a group, its settings, and a list of things that will go wrong.

Swarm testing: each kind of fault is on or off in a run, with an intensity of its own. A run with
everything on hides bugs which need a quiet corner, and a quiet run hides the rest.

Rule: a fault is an entry in a list that is drawn before the run starts, never a throw of dice
during it. So faults can be left out one by one, and what remains happens at the same times: that
is how a failure is shrunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class FaultKind(Enum):
    """Everything that can go wrong."""

    CUT = "a connection breaks; some requests on it may still arrive, late"
    SLOW_NETWORK = "messages take up to two seconds for a while"
    CRASH = "the coordinator dies, forgets what was not synced, and starts again"
    FAILOVER = "another broker takes the groups over"
    SYNC_ERROR = "an fsync fails: what was not synced is in doubt"
    DISK_FULL = "nothing can be appended for a while"
    SLOW_DISK = "fsync takes up to two seconds for a while"
    COMPACTION = "the journal is compacted"
    BROKER_PAUSE = "the coordinator's process stands still"
    CLOCK_JUMP = "the coordinator's wall clock jumps, either way"
    PAUSE = "a consumer's process stands still, perhaps longer than its session, and goes on"
    STALL = "a user does not come back to poll; heartbeats go on"
    SLOW_CALLBACK = "a rebalance callback takes long"
    CALLBACK_ERROR = "a rebalance callback raises"
    WAKEUP = "a wakeup interrupts a rebalance callback"
    ASSIGNOR_ERROR = "the leader's assignor raises"
    DEATH = "a consumer vanishes; another one starts"
    LEAVE = "a consumer closes; another one starts"
    ARRIVAL = "one more consumer starts"
    RESTART = "a consumer restarts under its instance id, if it has one"
    CLONE = "a second consumer starts with an instance id in use"
    RESUBSCRIBE = "a consumer changes its subscription"
    UNSUBSCRIBE = "a consumer unsubscribes, and subscribes again later"
    ENFORCE = "a consumer enforces a rebalance"
    STRAY = "a client of another make commits too early, or speaks of an old generation"
    PARTITIONS = "a topic gets more partitions"
    RECREATION = "a topic is deleted, and created again later"


Kind = TypeVar("Kind", bound=Enum)


class Planned(NamedTuple, Generic[Kind]):
    """One thing that goes wrong. ``pick`` chooses whom it hits, ``amount_ms`` for how long."""

    at_ms: int
    kind: Kind
    pick: int
    amount_ms: int

    def __str__(self) -> str:
        return f"{self.at_ms} ms: {self.kind.name} (pick {self.pick}, {self.amount_ms} ms)"


Fault = Planned[FaultKind]


_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND

# Mean times between two faults of a kind when it is on, and the longest duration.
_FREQUENCIES: Final[dict[FaultKind, tuple[tuple[int, ...], int]]] = {
    FaultKind.CUT: ((1 * _SECOND, 5 * _SECOND, 20 * _SECOND), 20 * _SECOND),
    FaultKind.SLOW_NETWORK: ((20 * _SECOND, 60 * _SECOND), 15 * _SECOND),
    FaultKind.CRASH: ((8 * _SECOND, 40 * _SECOND), 15 * _SECOND),
    FaultKind.FAILOVER: ((15 * _SECOND, 50 * _SECOND), 3 * _SECOND),
    FaultKind.SYNC_ERROR: ((15 * _SECOND, 60 * _SECOND), 2 * _SECOND),
    FaultKind.DISK_FULL: ((15 * _SECOND, 60 * _SECOND), 5 * _SECOND),
    FaultKind.SLOW_DISK: ((20 * _SECOND, 60 * _SECOND), 10 * _SECOND),
    FaultKind.COMPACTION: ((10 * _SECOND, 30 * _SECOND), 0),
    FaultKind.BROKER_PAUSE: ((15 * _SECOND, 60 * _SECOND), 15 * _SECOND),
    FaultKind.CLOCK_JUMP: ((20 * _SECOND, 60 * _SECOND), 10 * 24 * 60 * _MINUTE),
    FaultKind.PAUSE: ((5 * _SECOND, 20 * _SECOND), 40 * _SECOND),
    FaultKind.STALL: ((10 * _SECOND, 40 * _SECOND), 40 * _SECOND),
    FaultKind.SLOW_CALLBACK: ((10 * _SECOND, 30 * _SECOND), 25 * _SECOND),
    FaultKind.CALLBACK_ERROR: ((10 * _SECOND, 30 * _SECOND), 0),
    FaultKind.WAKEUP: ((10 * _SECOND, 30 * _SECOND), 0),
    FaultKind.ASSIGNOR_ERROR: ((15 * _SECOND, 50 * _SECOND), 0),
    FaultKind.DEATH: ((8 * _SECOND, 30 * _SECOND), 10 * _SECOND),
    FaultKind.LEAVE: ((8 * _SECOND, 30 * _SECOND), 10 * _SECOND),
    FaultKind.ARRIVAL: ((20 * _SECOND, 60 * _SECOND), 0),
    FaultKind.RESTART: ((6 * _SECOND, 25 * _SECOND), 12 * _SECOND),
    FaultKind.CLONE: ((30 * _SECOND, 90 * _SECOND), 0),
    FaultKind.RESUBSCRIBE: ((10 * _SECOND, 40 * _SECOND), 0),
    FaultKind.UNSUBSCRIBE: ((15 * _SECOND, 50 * _SECOND), 10 * _SECOND),
    FaultKind.ENFORCE: ((10 * _SECOND, 40 * _SECOND), 0),
    FaultKind.STRAY: ((3 * _SECOND, 10 * _SECOND), 0),
    FaultKind.PARTITIONS: ((20 * _SECOND, 60 * _SECOND), 0),
    FaultKind.RECREATION: ((40 * _SECOND, 90 * _SECOND), 5 * _SECOND),
}

# Rare: a recreated topic makes the strongest checks (nothing skipped) impossible for it.
_RARE: Final = frozenset({FaultKind.RECREATION, FaultKind.CLONE})


@dataclass(frozen=True, slots=True)
class GroupScenario:
    """A group and the world it lives in."""

    seed: int
    duration_ms: int
    members: int
    members_max: int
    topics: dict[str, int]
    assignors: tuple[str, ...]
    mixed_assignors: tuple[str, ...]
    """What every other member lists."""
    uses_pattern: bool
    static_share: float
    auto_commit_share: float
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    request_timeout_ms: int
    initial_rebalance_delay_ms: int
    through_bytes: bool
    """Whether messages are really written and read, which takes time."""
    join_version: int
    offset_fetch_version: int
    network_delay_ms: int
    disk_delay_ms: int
    poll_interval_ms: int
    produce_interval_ms: int
    fault_kinds: dict[FaultKind, int]
    """The kinds that are on, with the mean time between two of them."""


_ASSIGNORS: Final = (
    (("range",), ("range",)),
    (("roundrobin",), ("roundrobin",)),
    (("sticky",), ("sticky",)),
    (("cooperative-sticky",), ("cooperative-sticky",)),
    (("cooperative-sticky",), ("cooperative-sticky",)),
    (("range", "cooperative-sticky"), ("range", "cooperative-sticky")),
    # The same set in another order: after a restart a coordinator knows of each member only the
    # protocol that was voted for, so one that lacks it is refused, by Kafka too.
    (("sticky", "range"), ("range", "sticky")),
)


def scenario(seed: int) -> GroupScenario:
    """The world of a seed."""
    random = Random(seed)
    assignors, mixed = random.choice(_ASSIGNORS)
    session_ms = random.choice((6_000, 10_000))
    kinds = [kind for kind in FaultKind if random.random() < (0.08 if kind in _RARE else 0.35)]
    static_share = random.choice((0.0, 0.0, 0.5, 1.0))
    return GroupScenario(
        seed=seed,
        duration_ms=random.choice((60_000, 120_000, 180_000)),
        members=random.randrange(1, 6),
        members_max=7,
        topics={f"t{number}": random.randrange(1, 6) for number in range(random.randrange(1, 4))},
        assignors=assignors,
        mixed_assignors=mixed,
        uses_pattern=random.random() < 0.2,
        static_share=static_share,
        auto_commit_share=random.choice((0.0, 0.5, 1.0)),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=random.choice((1_000, 3_000)),
        max_poll_interval_ms=random.choice((10_000, 15_000)),
        request_timeout_ms=random.choice((3_000, 30_000)),
        initial_rebalance_delay_ms=random.choice((0, 3_000)),
        through_bytes=random.random() < 0.1,
        # Before v4 members get no id to come back with, before v5 there are no static ones.
        join_version=9 if static_share else random.choice((9, 9, 9, 5, 3)),
        offset_fetch_version=random.choice((7, 8)),
        network_delay_ms=random.choice((5, 50, 300)),
        disk_delay_ms=random.choice((0, 5, 50)),
        poll_interval_ms=random.choice((50, 200, 500)),
        produce_interval_ms=random.choice((100, 400)),
        fault_kinds={kind: random.choice(_FREQUENCIES[kind][0]) for kind in kinds},
    )


def faults(world: GroupScenario) -> list[Fault]:
    """Everything that will go wrong, in order."""
    longest_ms = {kind: longest for kind, (_, longest) in _FREQUENCIES.items()}
    return plan(world.fault_kinds, longest_ms, world.duration_ms, Random(world.seed ^ 0x5EED))


def plan(
    means_ms: Mapping[Kind, int], longest_ms: Mapping[Kind, int], duration_ms: int, random: Random
) -> list[Planned[Kind]]:
    """Faults of every kind at random times, these means apart, in order."""
    drawn = []
    for kind, mean_ms in means_ms.items():
        at_ms = random.expovariate(1 / mean_ms)
        while at_ms < duration_ms:
            # Short ones are more frequent than long ones, as in life.
            amount_ms = int(longest_ms[kind] * random.random() ** 2)
            drawn.append(Planned(int(at_ms), kind, random.randrange(1 << 30), amount_ms))
            at_ms += random.expovariate(1 / mean_ms)
    return sorted(drawn, key=lambda fault: (fault.at_ms, fault.kind.name, fault.pick))


def add_counts(report: DataclassInstance, other: DataclassInstance) -> None:
    """Add what ``other`` counted to ``report``, field by field; both are of one kind."""
    assert type(report) is type(other)
    for each in fields(report):
        setattr(report, each.name, getattr(report, each.name) + getattr(other, each.name))
