"""What a seed says about transactions: their producers, pipelines and readers, what goes wrong.

Rule: everything random is drawn here, before the run; a fault that is left out changes no other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from shoal.testing.simulation.swarm import Planned, add_counts, plan

_SECOND: Final = 1_000
_INTERNAL: Final = 2
RECORDS: Final = "t0"
"""Nobody copies it; it may be compacted."""
INPUT: Final = "in"
OUTPUT: Final = "out"


class TransactionFault(Enum):
    """Everything that can go wrong with transactions."""

    SEND_CUT = "connections of a process break; some requests may still arrive, late"
    SEND_SLOW_NETWORK = "messages to and from the broker take up to two seconds for a while"
    SEND_REFUSAL = "the broker refuses a few Produce requests for a passing reason"
    SEND_OVERRULED = "records are appended, and the answer is an error all the same"
    TXN_REFUSAL = "a coordinator refuses a few requests for a passing reason"
    TXN_LOST_REQUEST = "a connection breaks before a request of a transaction is handled"
    TXN_LOST_ANSWER = "a connection breaks after a request of a transaction was handled"
    TXN_DELAY = "a request of a transaction is handled late"
    LOG_KILL = "the broker's process is killed, and starts again"
    LOG_POWER_CUT = "the broker loses its power, and what was not synced, torn writes and all"
    LOG_SYNC_ERROR = "an fsync of a log fails; it takes no more records until a restart"
    LOG_DISK_FULL = "the broker's disk is full for a while"
    LOG_SLOW_DISK = "fsync takes up to two seconds for a while"
    LOG_PAUSE = "the broker's process stands still"
    USER_PAUSE = "a process stands still, perhaps within a transaction, and goes on: a zombie"
    USER_DEATH = "a process vanishes; another one takes its transactional id over"
    USER_TWIN = "a second process takes a transactional id over while the first one goes on"
    USER_DAWDLE = "a user leaves a transaction open for longer than its timeout"
    READER_DEATH = "a reader vanishes; another one starts anywhere"


# Mean times between two faults of a kind when it is on, and the longest duration.
_FREQUENCIES: Final[dict[TransactionFault, tuple[tuple[int, ...], int]]] = {
    TransactionFault.SEND_CUT: ((700, 2 * _SECOND, 5 * _SECOND), 6 * _SECOND),
    TransactionFault.SEND_SLOW_NETWORK: ((5 * _SECOND, 15 * _SECOND), 6 * _SECOND),
    TransactionFault.SEND_REFUSAL: ((500, 2 * _SECOND), 0),
    TransactionFault.SEND_OVERRULED: ((500, 2 * _SECOND), 0),
    TransactionFault.TXN_REFUSAL: ((300, 1 * _SECOND), 0),
    TransactionFault.TXN_LOST_REQUEST: ((500, 2 * _SECOND), 0),
    TransactionFault.TXN_LOST_ANSWER: ((300, 1 * _SECOND), 0),
    TransactionFault.TXN_DELAY: ((300, 1 * _SECOND), 4 * _SECOND),
    TransactionFault.LOG_KILL: ((2 * _SECOND, 8 * _SECOND), 4 * _SECOND),
    TransactionFault.LOG_POWER_CUT: ((700, 2 * _SECOND, 5 * _SECOND), 1 * _SECOND),
    TransactionFault.LOG_SYNC_ERROR: ((2 * _SECOND, 8 * _SECOND), 2 * _SECOND),
    TransactionFault.LOG_DISK_FULL: ((4 * _SECOND, 10 * _SECOND), 4 * _SECOND),
    TransactionFault.LOG_SLOW_DISK: ((4 * _SECOND, 10 * _SECOND), 4 * _SECOND),
    TransactionFault.LOG_PAUSE: ((4 * _SECOND, 10 * _SECOND), 6 * _SECOND),
    TransactionFault.USER_PAUSE: ((1 * _SECOND, 4 * _SECOND), 8 * _SECOND),
    TransactionFault.USER_DEATH: ((2 * _SECOND, 5 * _SECOND), 2 * _SECOND),
    TransactionFault.USER_TWIN: ((1 * _SECOND, 3 * _SECOND), 0),
    TransactionFault.USER_DAWDLE: ((1 * _SECOND, 4 * _SECOND), 3 * _SECOND),
    TransactionFault.READER_DEATH: ((1 * _SECOND, 4 * _SECOND), 1 * _SECOND),
}
assert _FREQUENCIES.keys() == set(TransactionFault), "every kind happens"


PlannedTransactionFault = Planned[TransactionFault]


class TransactionalSettings(NamedTuple):
    """What one transactional id and its user are like."""

    transactional_id: str
    flow: int
    """1 or 2, the ``transaction.version`` its producers speak; 0: every one of them chooses."""
    timeout_ms: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    batch_size: int
    max_in_flight: int
    records_max: int
    commit_share: float
    rest_ms: int
    """How long its user rests between transactions, at most."""
    first_epoch: int | None
    """An id that was used for long: the epoch it begins with; ``None`` for a new one."""


class Compaction(NamedTuple):
    """How eagerly logs are compacted."""

    every_ms: int
    delete_retention_ms: int
    """How long markers stay that nothing needs."""


@dataclass(frozen=True, slots=True)
class TransactionScenario:
    """A broker, transactional producers, pipelines, readers, and the world they live in."""

    seed: int
    duration_ms: int
    topics: dict[str, int]
    configs: dict[str, str]
    durability: str
    network_delay_ms: int
    disk_delay_ms: int
    writers: tuple[TransactionalSettings, ...]
    copiers: tuple[TransactionalSettings, ...]
    readers: int
    compaction: Compaction | None
    """Of one topic of records and of the internal ones; ``None``: nothing is compacted."""
    fault_kinds: dict[TransactionFault, int]
    """The kinds that are on, with the mean time between two of them."""


@dataclass(slots=True)
class TransactionReport:
    """What became of transactions in a run, or in several of them."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    copied: int = 0
    read: int = 0
    fenced: int = 0
    restarts: int = 0
    late_messages: int = 0
    compactions: int = 0
    """Rounds of it."""
    faults: Counter[TransactionFault] = field(default_factory=Counter)

    def add(self, other: TransactionReport) -> None:
        add_counts(self, other)


def transaction_scenario(seed: int) -> TransactionScenario:
    """The world of a seed."""
    random = Random(seed ^ 0x7AC5)
    kinds = [kind for kind in TransactionFault if random.random() < 0.35]
    topics = {RECORDS: random.randrange(1, 4), INPUT: random.randrange(1, 3)}
    topics |= {
        OUTPUT: random.randrange(1, 3),
        TRANSACTIONS_TOPIC: _INTERNAL,
        OFFSETS_TOPIC: _INTERNAL,
    }
    return TransactionScenario(
        seed=seed,
        duration_ms=random.choice((5_000, 8_000, 12_000)),
        topics=topics,
        configs={"segment.bytes": random.choice(("600", "4000", "1000000"))},
        durability=random.choice(("group", "group", "group", "each")),
        network_delay_ms=random.choice((5, 30, 100)),
        disk_delay_ms=random.choice((1, 20, 200)),
        writers=tuple(_settings(random, f"w{n}") for n in range(random.randrange(1, 4))),
        copiers=tuple(_settings(random, f"c{n}") for n in range(random.randrange(0, 3))),
        readers=random.randrange(1, 3),
        compaction=_compaction(Random(seed ^ 0xC0BAC7)),
        fault_kinds={kind: random.choice(_FREQUENCIES[kind][0]) for kind in kinds},
    )


def _compaction(random: Random) -> Compaction | None:
    if random.random() < 0.5:
        return None
    return Compaction(random.choice((300, 1_000, 3_000)), random.choice((0, 500, 3_000)))


def _settings(random: Random, transactional_id: str) -> TransactionalSettings:
    request_timeout_ms = random.choice((1_000, 3_000))
    return TransactionalSettings(
        transactional_id=transactional_id,
        flow=random.choice((0, 1, 2, 2)),
        timeout_ms=random.choice((1_500, 3_000, 6_000)),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=random.choice((2, 3, 10)) * request_timeout_ms,
        batch_size=random.choice((1, 150, 2_000)),
        max_in_flight=random.choice((1, 5, 5)),
        records_max=random.choice((2, 6, 12)),
        commit_share=random.choice((0.5, 0.8, 1.0)),
        rest_ms=random.choice((10, 100, 400)),
        first_epoch=random.choice((None, None, None, 32_760, 32_764)),
    )


def transaction_faults(world: TransactionScenario) -> list[PlannedTransactionFault]:
    """Everything that will go wrong, in order."""
    longest_ms = {kind: longest for kind, (_, longest) in _FREQUENCIES.items()}
    return plan(world.fault_kinds, longest_ms, world.duration_ms, Random(world.seed ^ 0x7A5EED))
