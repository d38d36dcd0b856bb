"""Scenarios from a seed: a small group, and a registry, brokers and a coordinator in trouble."""

from __future__ import annotations

from random import Random

from shoal.lab import Act, Event, RegistrySettings, Scenario, Work

LIGHT = Work(records_per_second=2, poll_interval_ms=500, commit_interval_ms=2_000)


def trouble(seed: int) -> Scenario:
    """Four things that go wrong within 16 s, some of them at once; then time to settle."""
    chance = Random(seed)
    return Scenario(
        f"trouble-{seed}",
        members=3,
        topics={"orders": 6},
        events=tuple(_event(chance) for _ in range(4)),
        duration_ms=50_000,
        warmup_ms=8_000,
        seed=seed,
        work=LIGHT,
        registry=RegistrySettings(
            delay_ms=chance.choice((2, 30)),
            lag_ms=chance.choice((0, 0, 400)),
            own_writes=chance.random() < 0.7,
        ),
    )


def _event(chance: Random) -> Event:
    at_ms, for_ms = chance.randrange(16_000), chance.randrange(500, 16_000)
    server, broker = chance.choice(("r1", "r2", "r3")), chance.choice(("b1", "b2"))
    member = chance.choice(("m1", "m2", "m3"))
    return chance.choice(
        (
            Event(at_ms, Act.LAG, node=server, by_ms=chance.randrange(4_000), for_ms=for_ms),
            Event(at_ms, Act.ISOLATE, node=server, for_ms=for_ms),
            Event(at_ms, Act.SERVER_FAILS, node=server, for_ms=for_ms),
            Event(at_ms, Act.FAILOVER, for_ms=for_ms // 2),
            Event(at_ms, Act.CUT_COORDINATOR, for_ms=for_ms),
            Event(at_ms, Act.BROKER_DIES, node=broker),
            Event(at_ms, Act.BROKER_LEAVES, node=broker),
            Event(at_ms, Act.CUT, member, for_ms=for_ms),
            Event(at_ms, Act.PAUSE, member, for_ms=for_ms),
            Event(at_ms, Act.JOIN),
            Event(at_ms, Act.LEAVE, member),
        )
    )
