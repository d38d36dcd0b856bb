"""What a seed says about a streaming query that writes exactly once, and what goes wrong with it.

Rule: everything random is drawn here, before the run; a fault that is left out changes no other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from shoal.testing.simulation.swarm import Planned, add_counts, plan

JOURNAL: Final = "__shoal_sink"
OUTPUT: Final = "out"
_SECOND: Final = 1_000
_INTERNAL: Final = 2
_HOPS: Final = 60
"""So many there are, about, between a task's first row and its commit: a query whose transactions
end sooner, even while nothing goes wrong, never gets on."""


class SinkFault(Enum):
    """Everything that can go wrong with a query."""

    SEND_CUT = "connections of a process break; some requests may still arrive, late"
    SEND_SLOW_NETWORK = "messages to and from the broker take up to two seconds for a while"
    SINK_LOST_REQUEST = "a connection breaks before a request is handled"
    SINK_LOST_ANSWER = "a connection breaks after a request was handled"
    SINK_DELAY = "a request is handled late"
    LOG_KILL = "the broker's process is killed, and starts again"
    LOG_POWER_CUT = "the broker loses its power, and what was not synced, torn writes and all"
    LOG_PAUSE = "the broker's process stands still"
    DRIVER_DEATH = "the driver vanishes; another one starts from the checkpoint, maybe late"
    DRIVER_PAUSE = "the driver stands still, and goes on: a zombie, if another one has started"
    DRIVER_TWIN = "a second driver starts from the same checkpoint while the first one goes on"
    TASK_DEATH = "an executor vanishes; its driver tries the task again elsewhere"
    TASK_PAUSE = "an executor stands still, and goes on when its task has been tried again"
    TASK_TWIN = "the next tasks are run twice at once, as speculation does"


_FREQUENCIES: Final[dict[SinkFault, tuple[tuple[int, ...], int]]] = {
    SinkFault.SEND_CUT: ((700, 2 * _SECOND), 6 * _SECOND),
    SinkFault.SEND_SLOW_NETWORK: ((5 * _SECOND, 15 * _SECOND), 4 * _SECOND),
    SinkFault.SINK_LOST_REQUEST: ((500, 2 * _SECOND), 0),
    SinkFault.SINK_LOST_ANSWER: ((300, 1 * _SECOND), 0),
    SinkFault.SINK_DELAY: ((300, 1 * _SECOND), 4 * _SECOND),
    SinkFault.LOG_KILL: ((2 * _SECOND, 8 * _SECOND), 4 * _SECOND),
    SinkFault.LOG_POWER_CUT: ((1 * _SECOND, 4 * _SECOND), 1 * _SECOND),
    SinkFault.LOG_PAUSE: ((4 * _SECOND, 10 * _SECOND), 4 * _SECOND),
    SinkFault.DRIVER_DEATH: ((300, 1 * _SECOND, 3 * _SECOND), 6 * _SECOND),
    SinkFault.DRIVER_PAUSE: ((1 * _SECOND, 4 * _SECOND), 6 * _SECOND),
    SinkFault.DRIVER_TWIN: ((500, 3 * _SECOND), 0),
    SinkFault.TASK_DEATH: ((500, 2 * _SECOND), 0),
    SinkFault.TASK_PAUSE: ((500, 2 * _SECOND), 6 * _SECOND),
    SinkFault.TASK_TWIN: ((500, 2 * _SECOND), 0),
}
assert _FREQUENCIES.keys() == set(SinkFault), "every kind happens"

PlannedSinkFault = Planned[SinkFault]


@dataclass(frozen=True, slots=True)
class SinkScenario:
    """A broker, a query, and the world they live in."""

    seed: int
    duration_ms: int
    topics: dict[str, int]
    configs: dict[str, str]
    durability: str
    network_delay_ms: int
    disk_delay_ms: int
    rows: tuple[int, ...]
    """Of each micro-batch."""
    tasks: int
    flow: int
    """1 or 2, the ``transaction.version`` its tasks speak; 0: every one of them chooses."""
    timeout_ms: int
    """Of a task's transaction."""
    trigger_ms: int
    """Between two micro-batches, at most."""
    fault_kinds: dict[SinkFault, int]
    """The kinds that are on, with the mean time between two of them."""


@dataclass(slots=True)
class SinkReport:
    """What became of queries in a run, or in several of them."""

    batches: int = 0
    rows: int = 0
    decisions: int = 0
    revisions: int = 0
    """Decisions that replace what was lost of an earlier one."""
    runs: int = 0
    attempts: int = 0
    conflicts: int = 0
    restarts: int = 0
    faults: Counter[SinkFault] = field(default_factory=Counter)

    def add(self, other: SinkReport) -> None:
        add_counts(self, other)


def sink_scenario(seed: int) -> SinkScenario:
    """The world of a seed."""
    random = Random(seed ^ 0x51_4B)
    kinds = [kind for kind in SinkFault if random.random() < 0.4]
    network_delay_ms, disk_delay_ms = random.choice((5, 30, 100)), random.choice((1, 20, 100))
    enough_ms = _HOPS * (network_delay_ms + disk_delay_ms)
    return SinkScenario(
        seed=seed,
        duration_ms=random.choice((6_000, 10_000)),
        topics={
            OUTPUT: random.randrange(1, 3),
            JOURNAL: 1,
            TRANSACTIONS_TOPIC: _INTERNAL,
            OFFSETS_TOPIC: _INTERNAL,
        },
        configs={"segment.bytes": random.choice(("600", "4000", "1000000"))},
        durability=random.choice(("group", "group", "each")),
        network_delay_ms=network_delay_ms,
        disk_delay_ms=disk_delay_ms,
        rows=tuple(random.choice((0, 1, 3, 6)) for _ in range(random.randrange(3, 9))),
        tasks=random.randrange(1, 4),
        flow=random.choice((0, 1, 2, 2)),
        timeout_ms=max(enough_ms, random.choice((1_500, 3_000, 6_000))),
        trigger_ms=random.choice((50, 500)),
        fault_kinds={kind: random.choice(_FREQUENCIES[kind][0]) for kind in kinds},
    )


def sink_faults(world: SinkScenario) -> list[PlannedSinkFault]:
    """Everything that will go wrong, in order."""
    longest_ms = {kind: longest for kind, (_, longest) in _FREQUENCIES.items()}
    return plan(world.fault_kinds, longest_ms, world.duration_ms, Random(world.seed ^ 0x51_5EED))
