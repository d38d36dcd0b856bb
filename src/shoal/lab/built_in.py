"""The scenarios the lab knows by name.

Rule: each shows one thing. Timeouts are shorter than Kafka's defaults so that a minute is enough;
the proportions are the usual ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shoal.errors import ConfigError
from shoal.lab.scenario import Act, Event, RegistrySettings, Scenario, Timing, Work

_THREE: Final = Scenario("three", members=3, topics={"orders": 6})
_FOUR: Final = Scenario("four", members=4, topics={"orders": 8})
_WEAK: Final = RegistrySettings(own_writes=False)
_SPLIT: Final = Scenario(
    "split", members=4, topics={"orders": 16}, watcher_version="0.7", registry=_WEAK
)
_LAGGING: Final = (
    Event(5_000, Act.LAG, node="r2", by_ms=3_000, for_ms=40_000),
    Event(10_000, Act.JOIN, jitter_ms=500),
    Event(16_000, Act.JOIN, jitter_ms=500),
)


def _named(name: str, description: str, *events: Event, like: Scenario = _THREE) -> Scenario:
    return replace(like, name=name, description=description, events=events)


def _rolling(members: int, down_ms: int) -> tuple[Event, ...]:
    return tuple(
        Event(5_000 + 20_000 * number, Act.RESTART, f"m{number + 1}", for_ms=down_ms)
        for number in range(members)
    )


_ALL: Final = (
    _named(
        "partitions-added",
        "A topic grows from 6 to 9 partitions.",
        Event(10_000, Act.ADD_PARTITIONS, topic="orders", partitions=9),
    ),
    _named("member-joins", "A fourth member joins three.", Event(10_000, Act.JOIN)),
    _named(
        "member-crashes",
        "A member crashes and tells nobody.",
        Event(10_000, Act.CRASH, "m2", jitter_ms=2_000),
    ),
    _named(
        "member-stalls",
        "A member's own code hangs for 25 s; the poll interval is 15 s.",
        Event(10_000, Act.STALL, "m2", for_ms=25_000),
    ),
    _named("member-leaves", "A member shuts down cleanly.", Event(10_000, Act.LEAVE, "m2")),
    _named(
        "subscription-changes",
        "A member subscribes to one more topic.",
        Event(10_000, Act.SUBSCRIBE, "m2", topics=("orders", "refunds")),
        like=replace(
            _THREE,
            topics={"orders": 6, "refunds": 3},
            subscriptions={"m1": ("orders", "refunds"), "m2": ("orders",), "m3": ("orders",)},
        ),
    ),
    _named(
        "slow-member",
        "A member joins while another works on one batch for 8 s.",
        Event(10_000, Act.STALL, "m3", for_ms=8_000),
        Event(11_000, Act.JOIN),
    ),
    _named(
        "rolling-restart",
        "Four members restart one after the other, each in 4 s.",
        *_rolling(4, 4_000),
        like=replace(_FOUR, duration_ms=100_000),
    ),
    _named(
        "rolling-restart-static",
        "The same with static members (KIP-345): back within the session.",
        *_rolling(4, 4_000),
        like=replace(_FOUR, duration_ms=100_000, static=True),
    ),
    _named(
        "coordinator-failover",
        "The registry or coordinator is gone for 4 s.",
        Event(10_000, Act.FAILOVER, for_ms=4_000),
    ),
    _named(
        "network-cut",
        "A member loses the registry or coordinator, but not its partitions, for 4 to 24 s.",
        Event(10_000, Act.CUT, "m2", for_ms=4_000, jitter_ms=20_000),
    ),
    _named(
        "process-pause",
        "A member's process is paused for 15 s (a long garbage collection).",
        Event(10_000, Act.PAUSE, "m2", for_ms=15_000, jitter_ms=3_000),
    ),
    _named(
        "split-brain",
        "Two members join while a server of the registry lags by 3 s. Consumer 0.7, weak registry.",
        *_LAGGING,
        like=_SPLIT,
    ),
    _named(
        "split-brain-synced",
        "The same, but everybody calls sync() before it reads the registry.",
        *_LAGGING,
        like=replace(_SPLIT, registry=replace(_WEAK, sync=True)),
    ),
    _named(
        "split-brain-zookeeper",
        "The same with ZooKeeper's promise: a client sees its own writes and what came before.",
        *_LAGGING,
        like=replace(_SPLIT, registry=RegistrySettings()),
    ),
    _named(
        "split-brain-mended",
        "The same with the consumer of 0.8: every claim counts (KAFKA-262).",
        *_LAGGING,
        like=replace(_SPLIT, watcher_version="0.8"),
    ),
    _named(
        "registry-split",
        "A server of the registry is cut off from the others for 16 s, but not from its clients.",
        Event(10_000, Act.ISOLATE, node="r2", for_ms=16_000, jitter_ms=3_000),
        like=replace(_THREE, members=5, topics={"orders": 10}),
    ),
    _named(
        "coordinator-cut",
        "The coordinator is cut off from the cluster for 14 s; a member joins meanwhile.",
        Event(10_000, Act.CUT_COORDINATOR, for_ms=14_000),
        Event(12_000, Act.JOIN),
    ),
    _named(
        "broker-dies",
        "One of three brokers dies, and is back 25 s later.",
        Event(10_000, Act.BROKER_DIES, node="b2"),
        Event(35_000, Act.BROKER_JOINS, node="b2"),
    ),
    _named(
        "broker-leaves",
        "One of three brokers is shut down in order, and another one is added.",
        Event(10_000, Act.BROKER_LEAVES, node="b2"),
        Event(25_000, Act.BROKER_JOINS, node="b4"),
    ),
    _named(
        "broker-dies-racks",
        "One of three brokers dies, and members know their racks (KIP-881).",
        Event(10_000, Act.BROKER_DIES, node="b2"),
        Event(35_000, Act.BROKER_JOINS, node="b2"),
        like=replace(_THREE, racks=True),
    ),
    _named(
        "large",
        "500 members, 1,000 partitions, 10 minutes: one joins, one crashes, one leaves.",
        Event(60_000, Act.JOIN),
        Event(180_000, Act.CRASH, "m7"),
        Event(300_000, Act.LEAVE, "m9"),
        like=Scenario(
            "large",
            members=500,
            topics={"orders": 1_000},
            duration_ms=570_000,
            warmup_ms=30_000,
            work=Work(records_per_second=2, processing_ms=10, poll_interval_ms=3_000),
            timing=Timing(session_timeout_ms=45_000, max_poll_interval_ms=300_000),
        ),
    ),
)

BUILT_IN: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}


def built_in(name: str) -> Scenario:
    """The scenario with this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in BUILT_IN:
        raise ConfigError(f"there is no scenario {name!r}; `shoal lab --list` shows them")
    return BUILT_IN[name]
