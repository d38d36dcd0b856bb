"""The scenarios the lab knows by name.

Rule: each shows one thing. Timeouts are shorter than Kafka's defaults so that a minute is enough;
the proportions are the usual ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shoal.errors import ConfigError
from shoal.lab.scenario import Act, Event, Scenario, Timing, Work

_THREE: Final = Scenario("three", members=3, topics={"orders": 6})
_FOUR: Final = Scenario("four", members=4, topics={"orders": 8})


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
        "A member vanishes without a word.",
        Event(10_000, Act.CRASH, "m2", jitter_ms=2_000),
    ),
    _named(
        "member-stalls",
        "A user hangs for 25 s; the poll interval is 15 s.",
        Event(10_000, Act.STALL, "m2", for_ms=25_000),
    ),
    _named("member-leaves", "A member closes in order.", Event(10_000, Act.LEAVE, "m2")),
    _named(
        "subscription-changes",
        "A member wants another topic, too.",
        Event(10_000, Act.SUBSCRIBE, "m2", topics=("orders", "refunds")),
        like=replace(
            _THREE,
            topics={"orders": 6, "refunds": 3},
            subscriptions={"m1": ("orders", "refunds"), "m2": ("orders",), "m3": ("orders",)},
        ),
    ),
    _named(
        "slow-member",
        "A member joins while another is busy with a batch of 8 s.",
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
        "A member's process stands still for 15 s (a long garbage collection) and goes on.",
        Event(10_000, Act.PAUSE, "m2", for_ms=15_000, jitter_ms=3_000),
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
