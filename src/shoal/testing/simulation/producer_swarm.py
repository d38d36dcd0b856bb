"""What a seed says about producers: the broker they send to, what they are like, what goes wrong.

Rule: drawn apart from the group's world of the same seed, so that neither changes with the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from shoal.testing.simulation.swarm import Planned, add_counts, plan

_SECOND: Final = 1_000


class SendFault(Enum):
    """Everything that can go wrong between a producer and the log."""

    SEND_CUT = "a producer's connections break; some requests may still arrive, late"
    SEND_SLOW_NETWORK = "messages to and from the broker take up to two seconds for a while"
    SEND_REFUSAL = "the broker refuses a few Produce requests for a passing reason"
    SEND_LOST_REQUEST = "a connection breaks before a Produce request is handled"
    SEND_LOST_ANSWER = "a connection breaks after the records are appended"
    SEND_OVERRULED = "records are appended, and the answer is an error all the same"
    LOG_KILL = "the broker's process is killed, and starts again"
    LOG_POWER_CUT = "the broker loses its power, and what was not synced, torn writes and all"
    LOG_SYNC_ERROR = "an fsync of a log fails; it takes no more records until a restart"
    LOG_DISK_FULL = "the broker's disk is full for a while"
    LOG_SLOW_DISK = "fsync takes up to two seconds for a while"
    LOG_PAUSE = "the broker's process stands still"
    LOG_PARTITIONS = "a topic gets more partitions"
    LOG_RECREATION = "a topic is deleted, and created again later"
    PRODUCER_PAUSE = "a producer's process stands still, and goes on"
    PRODUCER_DEATH = "a producer vanishes; another one starts"
    PRODUCER_LEAVE = "a producer is closed; another one starts"


# Mean times between two faults of a kind when it is on, and the longest duration.
_FREQUENCIES: Final[dict[SendFault, tuple[tuple[int, ...], int]]] = {
    SendFault.SEND_CUT: ((700, 2 * _SECOND, 5 * _SECOND), 6 * _SECOND),
    SendFault.SEND_SLOW_NETWORK: ((5 * _SECOND, 15 * _SECOND), 8 * _SECOND),
    SendFault.SEND_REFUSAL: ((300, 1 * _SECOND, 4 * _SECOND), 0),
    SendFault.SEND_LOST_REQUEST: ((1 * _SECOND, 4 * _SECOND), 0),
    SendFault.SEND_LOST_ANSWER: ((500, 1 * _SECOND, 4 * _SECOND), 0),
    SendFault.SEND_OVERRULED: ((300, 1 * _SECOND, 4 * _SECOND), 0),
    SendFault.LOG_KILL: ((2 * _SECOND, 8 * _SECOND), 5 * _SECOND),
    SendFault.LOG_POWER_CUT: ((1 * _SECOND, 2 * _SECOND, 8 * _SECOND), 2 * _SECOND),
    SendFault.LOG_SYNC_ERROR: ((2 * _SECOND, 8 * _SECOND), 2 * _SECOND),
    SendFault.LOG_DISK_FULL: ((4 * _SECOND, 10 * _SECOND), 5 * _SECOND),
    SendFault.LOG_SLOW_DISK: ((4 * _SECOND, 10 * _SECOND), 5 * _SECOND),
    SendFault.LOG_PAUSE: ((4 * _SECOND, 10 * _SECOND), 8 * _SECOND),
    SendFault.LOG_PARTITIONS: ((4 * _SECOND, 10 * _SECOND), 0),
    SendFault.LOG_RECREATION: ((1 * _SECOND, 4 * _SECOND), 3 * _SECOND),
    SendFault.PRODUCER_PAUSE: ((3 * _SECOND, 8 * _SECOND), 10 * _SECOND),
    SendFault.PRODUCER_DEATH: ((1 * _SECOND, 5 * _SECOND), 2 * _SECOND),
    SendFault.PRODUCER_LEAVE: ((2 * _SECOND, 5 * _SECOND), 2 * _SECOND),
}
assert _FREQUENCIES.keys() == set(SendFault), "every kind happens"


PlannedFault = Planned[SendFault]


class SimulatedProducerSettings(NamedTuple):
    """What one producer and its user are like."""

    acks: str
    max_in_flight: int
    linger_ms: int
    batch_size: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retries: int
    compression: str
    send_interval_ms: int
    prebuilt_share: float
    """How often a batch is given that was encoded by the user, as ``send_arrow`` does."""


@dataclass(frozen=True, slots=True)
class SendScenario:
    """A broker, its producers and the world they live in."""

    seed: int
    duration_ms: int
    topics: dict[str, int]
    configs: dict[str, str]
    durability: str
    network_delay_ms: int
    disk_delay_ms: int
    producers: tuple[SimulatedProducerSettings, ...]
    fault_kinds: dict[SendFault, int]
    """The kinds that are on, with the mean time between two of them."""


@dataclass(slots=True)
class SendReport:
    """What producers did in a run, or in several of them."""

    producers: int = 0
    stored: int = 0
    acknowledged: int = 0
    failed: int = 0
    duplicates: int = 0
    """Of producers without idempotence, which may have some."""
    restarts: int = 0
    late_messages: int = 0
    faults: Counter[SendFault] = field(default_factory=Counter)

    def add(self, other: SendReport) -> None:
        add_counts(self, other)


def send_scenario(seed: int, duration_ms: int | None = None) -> SendScenario:
    """The producers' world of a seed; ``duration_ms`` if something else goes on for so long."""
    random = Random(seed ^ 0x5E4D)
    drawn_ms = random.choice((10_000, 20_000))
    kinds = [kind for kind in SendFault if random.random() < 0.4]
    return SendScenario(
        seed=seed,
        duration_ms=drawn_ms if duration_ms is None else duration_ms,
        topics={f"p{number}": random.randrange(1, 4) for number in range(random.randrange(1, 3))},
        configs={
            "segment.bytes": random.choice(("400", "2000", "1000000")),
            "max.message.bytes": random.choice(("300", "1000000", "1000000")),
        },
        durability=random.choice(("group", "group", "group", "each")),
        network_delay_ms=random.choice((5, 30, 100)),
        disk_delay_ms=random.choice((1, 20, 200)),
        producers=tuple(_settings(random) for _ in range(random.randrange(1, 4))),
        fault_kinds={kind: random.choice(_FREQUENCIES[kind][0]) for kind in kinds},
    )


def _settings(random: Random) -> SimulatedProducerSettings:
    request_timeout_ms = random.choice((500, 1_000, 3_000))
    return SimulatedProducerSettings(
        acks=random.choice(("all", "all", "all", "all", "1", "1", "0")),
        max_in_flight=random.choice((1, 2, 5, 5)),
        linger_ms=random.choice((0, 5, 50)),
        batch_size=random.choice((1, 150, 400, 2_000)),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=random.choice((1, 3, 10, 30)) * request_timeout_ms,
        retries=random.choice((0, 3, 1_000_000, 1_000_000, 1_000_000)),
        compression=random.choice(("none", "none", "gzip")),
        send_interval_ms=random.choice((20, 100, 300)),
        prebuilt_share=random.choice((0.0, 0.0, 0.3)),
    )


def send_faults(world: SendScenario) -> list[PlannedFault]:
    """Everything that will go wrong, in order."""
    longest_ms = {kind: longest for kind, (_, longest) in _FREQUENCIES.items()}
    return plan(world.fault_kinds, longest_ms, world.duration_ms, Random(world.seed ^ 0x5EED5))
