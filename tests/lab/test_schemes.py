"""What each scheme does with the same events, and that the counters follow from the mechanism."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from shoal.assign.range import RangeAssignor
from shoal.assign.sticky import CooperativeStickyAssignor
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.member.classic_member import ClassicMember
from shoal.lab import BUILT_IN, SCHEMES, Act, Event, Run, Scenario, built_in, run_scenario
from shoal.lab.classic import ClassicScheme, describe
from shoal.lab.running import spec_of
from shoal.lab.trace import Holding
from shoal.lab.world import World
from shoal.testing.simulation.simulated_engine import SimulatedEngine

SMALL = [name for name in BUILT_IN if name != "large"]
FENCING = ("central", "eager", "cooperative", "incremental")
_runs: dict[tuple[str, str, int | None], Run] = {}


def run(name: str, scheme: str, seed: int | None = None) -> Run:
    """Runs are deterministic, so each is made once."""
    key = (name, scheme, seed)
    if key not in _runs:
        _runs[key] = run_scenario(built_in(name), scheme, seed=seed)
    return _runs[key]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SMALL)
def test_every_scheme_survives_every_scenario(name: str, scheme: str) -> None:
    metrics = run(name, scheme).metrics
    assert metrics.time_to_stable_ms is not None
    assert metrics.uncovered_partitions == 0
    assert metrics.records_processed > 1_000
    assert metrics.requests > 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_gives_the_same_trace_and_another_one_another(scheme: str) -> None:
    first = run("member-crashes", scheme)
    again = run_scenario(built_in("member-crashes"), scheme)
    assert first.trace == again.trace
    assert first.trace.digest() == again.trace.digest()
    assert run("member-crashes", scheme, seed=2).trace.digest() != first.trace.digest()


@pytest.mark.slow
def test_a_trace_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from shoal.lab import *\n"
        "for s in SCHEMES: print(run_scenario(built_in('network-cut'), s).trace.digest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1


# --- watchers on a registry ----------------------------------------------------------------------


def one_by_one(members: int) -> Scenario:
    """Members come one after the other, each when the others have settled."""
    joins = tuple(Event(5_000 * number, Act.JOIN) for number in range(members))
    return Scenario(
        "one-by-one",
        members=0,
        topics={"t": 2 * members},
        events=joins,
        duration_ms=5_000 * members + 5_000,
        warmup_ms=0,
    )


@pytest.mark.parametrize("members", [4, 8, 16])
def test_notifications_grow_with_members_squared(members: int) -> None:
    notifications = run_scenario(one_by_one(members), "watchers").metrics.notifications
    # Each newcomer is told to everybody who is there.
    assert notifications == members * (members - 1) // 2


@pytest.mark.slow
def test_what_one_newcomer_makes_everybody_read_grows_with_members_squared() -> None:
    def reads(members: int) -> int:
        joins = (Event(0, Act.JOIN),)
        scenario = Scenario("one", members=members, topics={"t": members}, events=joins)
        trace = run_scenario(scenario, "watchers").trace
        return sum(m.times for m in trace.messages if m.sent_ms >= 0 and m.what == "Get")

    few, many = reads(10), reads(40)
    assert 10 < many / few < 17


def test_every_member_stops_for_a_newcomer_that_takes_one_partition() -> None:
    metrics = run("member-joins", "watchers").metrics
    assert metrics.stopped_partitions == 6
    assert metrics.moved_partitions == 1


@pytest.mark.slow
def test_a_lost_session_gives_two_owners_for_some_seeds() -> None:
    cut = [run("network-cut", "watchers", seed).metrics for seed in range(8)]
    assert any(metrics.two_owners for metrics in cut)
    assert not all(metrics.two_owners for metrics in cut), "a short cut does no harm"
    worst = max(cut, key=lambda metrics: metrics.two_owners_partition_s)
    assert worst.records_twice > 0
    assert worst.commits_backwards > 0, "nobody refuses the offsets of a former owner"


def test_a_member_without_a_poll_interval_may_stall_for_ever() -> None:
    stalled = run("member-stalls", "watchers")
    assert stalled.metrics.moved_partitions == 0
    assert stalled.metrics.stopped_partition_s == pytest.approx(50, abs=0.5)


def test_claims_on_what_somebody_still_owns_conflict_and_are_made_again() -> None:
    late = Event(9_500, Act.PAUSE, "m3", for_ms=3_000)  # shorter than its session
    scenario = replace(built_in("member-joins"), events=(late, Event(10_000, Act.JOIN)))
    slow = run_scenario(scenario, "watchers")
    assert "conflict" in {mark.what for mark in slow.trace.marks}
    assert slow.metrics.two_owners == 0
    assert slow.metrics.uncovered_partitions == 0


def test_who_conflicts_too_often_gives_up_until_something_changes() -> None:
    registry = replace(built_in("member-joins").registry, session_timeout_ms=20_000)
    late = Event(9_500, Act.PAUSE, "m3", for_ms=15_000)
    scenario = replace(
        built_in("member-joins"), events=(late, Event(10_000, Act.JOIN)), registry=registry
    )
    marks = {(mark.member, mark.what) for mark in run_scenario(scenario, "watchers").trace.marks}
    assert ("m4", "gives up") in marks


# --- everything since ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scheme", FENCING)
@pytest.mark.parametrize("name", ["network-cut", "process-pause", "member-stalls", "slow-member"])
def test_with_fencing_there_are_never_two_owners(name: str, scheme: str) -> None:
    for seed in range(4):
        assert run(name, scheme, seed).metrics.two_owners == 0


@pytest.mark.parametrize("scheme", FENCING)
def test_a_member_that_was_cut_off_reads_on_but_cannot_commit(scheme: str) -> None:
    cut = run("network-cut", scheme, 3)
    assert cut.metrics.fenced_partition_s > 0
    fenced = {span.member for span in cut.trace.spans if span.holding is Holding.FENCED}
    assert fenced == {"m2"}
    assert cut.metrics.commits_backwards == 0


@pytest.mark.parametrize("scheme", ["cooperative", "incremental"])
@pytest.mark.parametrize("name", ["member-joins", "member-leaves", "member-crashes"])
def test_only_what_moves_stops(name: str, scheme: str) -> None:
    trace = run(name, scheme).trace
    stopped = {gap.tp for gap in trace.gaps if gap.end_ms > 0}
    assert stopped == {move.tp for move in trace.moves if move.at_ms >= 0}
    assert stopped < set(trace.partitions)


@pytest.mark.parametrize("scheme", ["watchers", "central", "eager"])
def test_before_that_everything_stopped(scheme: str) -> None:
    assert run("member-joins", scheme).metrics.stopped_partitions == 6


def test_in_an_eager_group_everybody_waits_for_the_slowest() -> None:
    eager = run("slow-member", "eager").metrics.stopped_partition_s
    cooperative = run("slow-member", "cooperative").metrics.stopped_partition_s
    assert eager > 1.5 * cooperative


@pytest.mark.parametrize("scheme", ["eager", "cooperative", "incremental"])
def test_a_static_member_that_is_back_in_time_moves_nothing(scheme: str) -> None:
    assert run("rolling-restart-static", scheme).metrics.moved_partitions == 0
    assert run("rolling-restart", scheme).metrics.moved_partitions > 0


@pytest.mark.parametrize("scheme", ["eager", "cooperative", "incremental"])
def test_a_failover_is_not_noticed_by_readers(scheme: str) -> None:
    metrics = run("coordinator-failover", scheme).metrics
    assert metrics.stopped_partition_s == 0
    assert metrics.moved_partitions == 0


def test_a_coordinator_that_kept_a_group_in_memory_assigns_anew_after_a_failover() -> None:
    assert run("coordinator-failover", "central").metrics.stopped_partitions == 6


@pytest.mark.parametrize("scheme", SCHEMES)
def test_records_of_a_member_that_leaves_in_order_are_not_processed_again(scheme: str) -> None:
    metrics = run("member-leaves", scheme).metrics
    assert metrics.records_lost == 0
    # Cooperative members read on between the commit and the revocation, as Kafka's do.
    assert metrics.records_twice == 0


@pytest.mark.slow
def test_a_record_in_hand_is_lost_if_a_timer_commits_it_and_its_process_dies() -> None:
    slow = replace(
        built_in("member-crashes"),
        work=replace(built_in("member-crashes").work, processing_ms=2_000, records_per_second=0.2),
    )
    lost = {
        scheme: max(
            run_scenario(slow, scheme, seed=seed).metrics.records_lost for seed in range(12)
        )
        for scheme in ("watchers", "eager")
    }
    assert lost["eager"] == 0
    assert lost["watchers"] > 0


# --- the real classes ----------------------------------------------------------------------------


def test_eager_and_cooperative_are_the_real_coordinator_and_members() -> None:
    scenario = built_in("member-joins")
    world = World(scenario, "cooperative", ("coordinator",), describe)
    scheme = spec_of("cooperative").make(world)
    assert isinstance(scheme, ClassicScheme)
    consumer = scheme.start("m1", ("orders",), None)
    world.clock.run_until(scenario.warmup_ms)
    assert type(scheme.cluster.coordinator) is Coordinator
    assert type(consumer.member) is ClassicMember
    assert isinstance(consumer.engine, SimulatedEngine)
    assert consumer.member.owned == tuple(consumer.reader.positions)
    group = scheme.cluster.coordinator.group("lab")
    assert group is not None
    assert consumer.member.generation.member_id in group.members  # type: ignore[attr-defined]  # this scheme's own members and outputs


def test_the_ledger_shows_exactly_what_the_members_were_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str, int]] = []
    perform = SimulatedEngine.perform

    def listening(engine: SimulatedEngine, outputs: list[object]) -> None:
        for output in outputs:
            kind = type(output).__name__
            if kind in ("Assigned", "Revoked", "Lost"):
                told.append((engine.name, kind, len(output.partitions)))  # type: ignore[attr-defined]  # this scheme's own members and outputs
        perform(engine, outputs)  # type: ignore[arg-type]  # this scheme's own members and outputs

    monkeypatch.setattr(SimulatedEngine, "perform", listening)
    trace = run_scenario(built_in("member-joins"), "cooperative").trace
    taken = sum(count for _, kind, count in told if kind == "Assigned")
    given = sum(count for _, kind, count in told if kind != "Assigned")
    # Spans that reach the end are still held.
    ended = [span for span in trace.spans if span.end_ms < trace.end_ms]
    assert len(trace.spans) == taken
    assert len(ended) == given > 0


def test_the_assignors_are_those_of_the_library() -> None:
    eager = run("member-joins", "eager").trace
    held = {(s.member, s.tp.partition) for s in eager.spans if s.end_ms == eager.end_ms}
    assert held == {("m1", 0), ("m1", 1), ("m2", 2), ("m2", 3), ("m3", 4), ("m4", 5)}
    assert RangeAssignor().name == "range"
    assert CooperativeStickyAssignor().name == "cooperative-sticky"


def test_the_four_phases_are_in_the_trace() -> None:
    trace = run("member-joins", "eager").trace
    newcomer = [m.what for m in trace.messages if m.sender == "m4"]
    order = [newcomer.index(what) for what in ("FindCoordinator", "JoinGroup", "SyncGroup")]
    assert order == sorted(order)
    assert newcomer.index("Heartbeat") > order[-1]


@pytest.mark.parametrize("name", ["7", "leader", "0", ""])
def test_an_unknown_scheme_is_named(name: str) -> None:
    from shoal.errors import ConfigError

    with pytest.raises(ConfigError, match="there is no scheme"):
        spec_of(name)


def test_schemes_have_numbers_too() -> None:
    assert spec_of("1").name == "watchers"
    assert spec_of("5").name == "incremental"


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_large_group_is_stable_in_the_end(scheme: str) -> None:
    metrics = run_scenario(built_in("large"), scheme).metrics
    assert metrics.uncovered_partitions == 0
    assert metrics.two_owners == 0
