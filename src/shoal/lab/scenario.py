"""What happens to a group, told once for every scheme.

A scenario is a group, its work, its timeouts and a list of events. Time zero is when the group
has settled: members start ``warmup_ms`` earlier, and events lie after zero.

Rule: a scenario names no scheme. What does not exist in a scheme (static members before 2.3, a
poll interval before 0.10.1) is ignored there, because that is how it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Final

from shoal.errors import ConfigError


class Act(Enum):
    """Everything that can happen to a group."""

    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"
    RESTART = "restart"
    STALL = "stall"
    PAUSE = "pause"
    CUT = "cut"
    FAILOVER = "failover"
    ADD_PARTITIONS = "add-partitions"
    SUBSCRIBE = "subscribe"
    CUT_COORDINATOR = "cut-coordinator"
    LAG = "lag"
    ISOLATE = "isolate"
    SERVER_FAILS = "server-fails"
    BROKER_JOINS = "broker-joins"
    BROKER_LEAVES = "broker-leaves"
    BROKER_DIES = "broker-dies"


SERVER_ACTS: Final = (Act.LAG, Act.ISOLATE, Act.SERVER_FAILS)
BROKER_ACTS: Final = (Act.BROKER_JOINS, Act.BROKER_LEAVES, Act.BROKER_DIES)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens, ``at_ms`` after the group has settled."""

    at_ms: int
    act: Act
    member: str | None = None
    """Whom it happens to; None: the group, or a newcomer."""
    for_ms: int = 0
    """How long a stall, pause, cut or failover lasts, and how long a restart takes."""
    topic: str | None = None
    partitions: int = 0
    topics: tuple[str, ...] = ()
    jitter_ms: int = 0
    """The seed makes the event up to this much later and longer."""
    node: str | None = None
    """A server of the registry (r1, r2 …) or a broker (b1, b2 …)."""
    by_ms: int = 0
    """How late a server that lags applies what it is told."""

    def __str__(self) -> str:
        subject = self.member or self.topic or self.node or ""
        if self.act in BROKER_ACTS:
            return f"broker {subject} {self.act.value.removeprefix('broker-')}"
        if self.act is Act.SERVER_FAILS:
            return f"{subject} fails {self.for_ms / 1000:g} s"
        if self.act is Act.LAG:
            return f"{subject} lags {self.by_ms / 1000:g} s"
        seconds = f" {self.for_ms / 1000:g} s" if self.for_ms else ""
        return f"{subject} {self.act.value}{seconds}".strip()


@dataclass(frozen=True, slots=True)
class Work:
    """What members have to do."""

    records_per_second: float = 20.0
    """Of each partition."""
    processing_ms: int = 4
    """For one record."""
    poll_interval_ms: int = 200
    """How long a user with nothing to do waits for records."""
    commit_interval_ms: int = 5_000
    batch_max: int = 500
    """Records of one poll."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and delays; where a scheme had a setting of its own it stands here too."""

    network_delay_ms: int = 5
    """The longest way of one message."""
    start_spread_ms: int = 1_000
    """Members of the beginning start within this time."""
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 15_000
    request_timeout_ms: int = 30_000
    initial_rebalance_delay_ms: int = 3_000
    consumer_heartbeat_interval_ms: int = 5_000
    """KIP-848: the coordinator tells it."""
    rebalance_backoff_ms: int = 2_000
    rebalance_retries_max: int = 4
    """Of a watcher whose claims conflict. Then it gives up until the next notification."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The registry of the first two schemes."""

    servers: int = 3
    delay_ms: int = 2
    """The longest way of a message between two servers."""
    lag_ms: int = 0
    """How late followers apply what they are told; an event can make one of them later."""
    own_writes: bool = True
    """A client sees what it wrote, and hears first of all that came before: its own server must
    have applied a write before it is answered. ZooKeeper promises that."""
    sync: bool = False
    """Members of scheme 1 let their server catch up before they read."""
    operation_us: int = 20
    """What a server needs for one operation; it does one after the other."""
    session_timeout_ms: int = 6_000
    """Of members, and of brokers."""
    patience_ms: int = 10_000
    """A server that hears no leader for so long sends its clients away."""
    election_ms: int = 500
    """How long the servers need to agree on a leader."""


WATCHER_VERSIONS: Final = ("0.7", "0.8")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group and what happens to it."""

    name: str
    members: int
    topics: Mapping[str, int]
    events: tuple[Event, ...] = ()
    description: str = ""
    duration_ms: int = 60_000
    warmup_ms: int = 20_000
    seed: int = 1
    static: bool = False
    """Members have instance ids, where the scheme knows them (KIP-345)."""
    subscriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Member → topics, for those who do not want all of them."""
    work: Work = Work()
    timing: Timing = Timing()
    registry: RegistrySettings = RegistrySettings()
    watcher_version: str = "0.8"
    """Of the consumer in scheme 1. Before KAFKA-262 was mended it looked whether a partition was
    free, and of its claims only the last one counted."""
    brokers: int = 3
    racks: bool = False
    """Each broker is in a rack of its own, and each member in one of these (KIP-881)."""

    def __post_init__(self) -> None:
        if not self.members and not self.events:
            raise ConfigError(f"scenario {self.name!r}: there is nobody in it")
        if not self.topics:
            raise ConfigError(f"scenario {self.name!r}: there is nothing to read")
        if self.watcher_version not in WATCHER_VERSIONS:
            known = " and ".join(WATCHER_VERSIONS)
            raise ConfigError(f"scenario {self.name!r}: watcher_version: there are {known}")
        if self.brokers < 1 or self.registry.servers < 1:
            raise ConfigError(
                f"scenario {self.name!r}: brokers and registry.servers are at least 1"
            )

    @property
    def names(self) -> list[str]:
        """The members of the beginning."""
        return [member_name(number) for number in range(1, self.members + 1)]

    def with_seed(self, seed: int) -> Scenario:
        return replace(self, seed=seed)

    def drawn_events(self) -> list[Event]:
        """The events with the jitter of this seed, in order; the same for every scheme."""
        random = Random(self.seed ^ 0x1AB)
        drawn = []
        for event in self.events:
            late_ms = random.randrange(event.jitter_ms + 1)
            longer_ms = random.randrange(event.jitter_ms + 1) if event.for_ms else 0
            drawn.append(
                replace(event, at_ms=event.at_ms + late_ms, for_ms=event.for_ms + longer_ms)
            )
        return sorted(drawn, key=lambda event: event.at_ms)


def member_name(number: int) -> str:
    return f"m{number}"
