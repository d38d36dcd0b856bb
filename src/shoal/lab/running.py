"""Runs a scenario under a scheme and returns what happened.

    run = run_scenario(built_in("member-crashes"), "cooperative")
    run.metrics.stopped_partition_s, run.trace.messages

Rule: the same scenario, scheme and seed give the same trace, on every machine and under every
hash seed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from shoal.errors import ConfigError
from shoal.lab import central_messages, classic, classic_engine, incremental
from shoal.lab.central import CentralScheme
from shoal.lab.metrics import Metrics, measure
from shoal.lab.registry import messages as registry_messages
from shoal.lab.scenario import (
    BROKER_ACTS,
    SERVER_ACTS,
    Act,
    Event,
    Scenario,
    member_name,
)
from shoal.lab.trace import Trace
from shoal.lab.watching import WatcherScheme
from shoal.lab.world import Describe, Process, Scheme, World


class SchemeSpec(NamedTuple):
    """One way to rebalance, and when Kafka had it."""

    name: str
    title: str
    since: str
    authorities: tuple[str, ...]
    offsets: str
    """Where the offsets are kept."""
    describe: Describe
    make: Callable[[World], Scheme]


def _eager(world: World) -> Scheme:
    return classic.ClassicScheme(world, ("range",))


def _cooperative(world: World) -> Scheme:
    return classic.ClassicScheme(world, ("cooperative-sticky",))


_ALL: Final = (
    SchemeSpec(
        "watchers",
        "everybody watches a registry and decides alone",
        "before 0.9",
        (registry_messages.REGISTRY,),
        "registry nodes, written by members",
        registry_messages.describe,
        WatcherScheme,
    ),
    SchemeSpec(
        "central",
        "a coordinator assigns and pushes",
        "first redesign",
        (central_messages.COORDINATOR, registry_messages.REGISTRY),
        "registry nodes, written by the coordinator",
        central_messages.describe,
        CentralScheme,
    ),
    SchemeSpec(
        "eager",
        "a leader assigns, everybody stops",
        "since 0.9",
        (classic_engine.COORDINATOR,),
        "__consumer_offsets",
        classic.describe,
        _eager,
    ),
    SchemeSpec(
        "cooperative",
        "a leader assigns, only what moves stops",
        "since 2.4",
        (classic_engine.COORDINATOR,),
        "__consumer_offsets",
        classic.describe,
        _cooperative,
    ),
    SchemeSpec(
        "incremental",
        "a coordinator assigns, each member moves in its own time",
        "KIP-848, since 4.0",
        (classic_engine.COORDINATOR,),
        "__consumer_offsets",
        classic.describe,
        incremental.IncrementalScheme,
    ),
)
SCHEMES: Final[dict[str, SchemeSpec]] = {spec.name: spec for spec in _ALL}


@dataclass(frozen=True, slots=True)
class Run:
    """A scenario under a scheme."""

    scenario: Scenario
    scheme: SchemeSpec
    trace: Trace
    metrics: Metrics


def spec_of(scheme: str) -> SchemeSpec:
    """The scheme with this name or number.

    Raises:
        ConfigError: there is none.
    """
    if scheme in SCHEMES:
        return SCHEMES[scheme]
    if scheme.isdigit() and 1 <= int(scheme) <= len(SCHEMES):
        return list(SCHEMES.values())[int(scheme) - 1]
    raise ConfigError(f"there is no scheme {scheme!r}; there are {', '.join(SCHEMES)}")


def run_scenario(scenario: Scenario, scheme: str, *, seed: int | None = None) -> Run:
    """Run a scenario under one scheme."""
    if seed is not None:
        scenario = scenario.with_seed(seed)
    spec = spec_of(scheme)
    with _no_collection():
        trace = _Director(scenario, spec).run()
        return Run(scenario, spec, trace, measure(trace))


def compare(
    scenario: Scenario, schemes: Iterable[str] = tuple(SCHEMES), *, seed: int | None = None
) -> list[Run]:
    """Run a scenario under several schemes."""
    return [run_scenario(scenario, scheme, seed=seed) for scheme in schemes]


@contextmanager
def _no_collection() -> Iterator[None]:
    """A run makes millions of small things that all stay; looking through them finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Director:
    """Starts members and makes the scenario's events happen."""

    def __init__(self, scenario: Scenario, spec: SchemeSpec) -> None:
        self._scenario = scenario
        self._world = World(scenario, spec.name, spec.authorities, spec.describe)
        self._scheme = spec.make(self._world)
        self._processes: dict[str, Process] = {}
        self._topics: dict[str, tuple[str, ...]] = dict(scenario.subscriptions)
        self._joined = scenario.members

    def run(self) -> Trace:
        scenario, world = self._scenario, self._world
        clock = world.clock
        spread_ms = scenario.timing.start_spread_ms
        for number, name in enumerate(scenario.names):
            clock.at(spread_ms * number // max(scenario.members, 1), self._start, name)
        for event in scenario.drawn_events():
            clock.at(scenario.warmup_ms + event.at_ms, self._happen, event)
        clock.run_until(scenario.warmup_ms + scenario.duration_ms)
        for process in self._processes.values():
            process.reader.finish_record()
        if self._scheme.registry is not None:
            world.trace.between_servers = self._scheme.registry.between_servers
        world.finish(self._scheme.committed())
        return world.trace

    def _start(self, name: str) -> None:
        self._world.ledger.mark(name, "starts")
        topics = self._topics.get(name, tuple(self._scenario.topics))
        instance_id = f"instance-{name}" if self._scenario.static else None
        self._processes[name] = self._scheme.start(name, topics, instance_id)

    def _happen(self, event: Event) -> None:
        self._world.trace.events.append((self._world.now(), str(event)))
        match event.act:
            case Act.JOIN:
                self._joined += 1
                self._start(event.member or member_name(self._joined))
            case Act.FAILOVER:
                self._world.ledger.mark(None, "failover")
                self._scheme.fail_over(event.for_ms)
            case Act.ADD_PARTITIONS:
                assert event.topic is not None
                self._world.ledger.mark(None, f"{event.topic} grows")
                self._world.grow(event.topic, event.partitions)
                self._scheme.partitions_added(event.topic)
            case Act.CUT_COORDINATOR:
                self._world.ledger.mark(None, "coordinator cut off")
                self._scheme.cut_coordinator(event.for_ms)
            case act if act in BROKER_ACTS:
                self._happen_to_broker(event)
            case act if act in SERVER_ACTS:
                self._happen_to_server(event)
            case _:
                self._happen_to(event)

    def _happen_to_broker(self, event: Event) -> None:
        assert event.node is not None
        brokers, name = self._world.brokers, event.node
        if brokers.is_up(name) == (event.act is Act.BROKER_JOINS):
            return  # it is there already, or it is not there
        self._world.ledger.mark(None, str(event))
        match event.act:
            case Act.BROKER_JOINS:
                brokers.join(name)
            case Act.BROKER_LEAVES:
                brokers.leave(name)
            case _:
                brokers.die(name)
        self._scheme.broker_changed(name, event.act)

    def _happen_to_server(self, event: Event) -> None:
        registry = self._scheme.registry
        if registry is None:
            return  # there is no registry any more
        assert event.node is not None
        self._world.ledger.mark(None, str(event))
        match event.act:
            case Act.LAG:
                registry.lag(event.node, event.by_ms, event.for_ms)
            case Act.ISOLATE:
                registry.isolate(event.node, event.for_ms)
            case _:
                registry.fail_server(event.node, event.for_ms)

    def _happen_to(self, event: Event) -> None:
        name = event.member
        process = self._processes.get(name or "")
        if name is None or process is None:
            return  # it is not there: left, crashed or never started
        self._world.ledger.mark(name, event.act.value)
        match event.act:
            case Act.LEAVE:
                del self._processes[name]
                process.leave()
            case Act.CRASH:
                del self._processes[name]
                process.crash()
            case Act.RESTART:
                del self._processes[name]
                process.leave()
                self._world.clock.after(max(event.for_ms, 1), self._start, name)
            case Act.STALL:
                process.stall(event.for_ms)
            case Act.PAUSE:
                process.pause(event.for_ms)
            case Act.CUT:
                process.cut(event.for_ms)
            case _:
                assert event.act is Act.SUBSCRIBE
                self._topics[name] = event.topics
                process.subscribe(event.topics)
