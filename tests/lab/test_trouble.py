"""Over many seeds: what no trouble with the registry, the brokers or the coordinator can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.lab import SCHEMES, RegistrySettings, Run, built_in, run_scenario
from shoal.lab.growth import newcomer
from shoal.lab.trace import Holding
from tests.lab.trouble import LIGHT, trouble

SEEDS = 100
PART = 25


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "watchers"])
def test_since_scheme_2_nothing_makes_two_owners_and_everything_is_read_in_the_end(
    scheme: str, first: int
) -> None:
    for seed in range(first, first + PART):
        metrics = run_scenario(trouble(seed), scheme).metrics
        assert metrics.two_owners == 0, seed
        assert metrics.uncovered_partitions == 0, seed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_under_watchers_the_same_trouble_makes_two_owners_again_and_again(first: int) -> None:
    runs = [run_scenario(trouble(seed), "watchers").metrics for seed in range(first, first + 50)]
    assert sum(metrics.two_owners > 0 for metrics in runs) > 10
    assert all(metrics.uncovered_partitions == 0 for metrics in runs)


# --- split brain ---------------------------------------------------------------------------------


def split(name: str, seed: int, **registry: bool) -> Run:
    scenario = replace(built_in(name), work=LIGHT, duration_ms=26_000, warmup_ms=3_000)
    if registry:
        scenario = replace(scenario, registry=replace(scenario.registry, **registry))
    return run_scenario(scenario, "watchers", seed=seed)


def is_split(run: Run) -> bool:
    return run.metrics.two_owners > 0


@pytest.mark.slow
def test_a_lagging_server_makes_two_owners_without_an_expired_session() -> None:
    runs = [split("split-brain", seed) for seed in range(SEEDS)]
    assert all(mark.what != "session expired" for run in runs for mark in run.trace.marks)
    doubled = [run for run in runs if is_split(run)]
    assert len(doubled) >= SEEDS // 10
    assert any(not is_split(run) for run in runs), "nobody may be connected to that server"
    for run in doubled:
        assert run.metrics.stale_decisions > 0, "two views at the same moment"


@pytest.mark.slow
def test_without_a_lagging_server_there_is_one_view_and_one_owner() -> None:
    scenario = built_in("split-brain")
    quick = replace(scenario, events=scenario.events[1:], work=LIGHT)
    quick = replace(quick, duration_ms=26_000, warmup_ms=3_000)
    for seed in range(SEEDS):
        assert not is_split(run_scenario(quick, "watchers", seed=seed)), seed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["split-brain-synced", "split-brain-zookeeper", "split-brain-mended"]
)
def test_two_owners_disappear_with_sync_with_zookeepers_promise_or_when_every_claim_counts(
    name: str,
) -> None:
    for seed in range(SEEDS):
        assert not is_split(split(name, seed)), seed


def test_what_is_left_of_the_split_brain_are_failed_attempts() -> None:
    runs = [split("split-brain-zookeeper", seed) for seed in range(10)]
    marks = [mark.what for run in runs for mark in run.trace.marks]
    assert "decides on an old view" in marks
    assert "conflict" in marks


def test_a_sync_costs_messages_and_time() -> None:
    scenario = replace(built_in("member-joins"), registry=RegistrySettings(delay_ms=20))
    plain = run_scenario(scenario, "watchers").metrics
    synced = replace(scenario, registry=replace(scenario.registry, sync=True))
    careful = run_scenario(synced, "watchers").metrics
    assert plain.syncs == 0
    assert careful.syncs >= 2 * 4, "before the members and before the offsets, for each of four"
    assert careful.requests >= plain.requests + careful.syncs
    assert careful.stopped_partition_s > 1.2 * plain.stopped_partition_s


# --- scheme 2 ------------------------------------------------------------------------------------


def test_a_cut_off_coordinator_goes_on_and_what_it_writes_is_refused() -> None:
    run = run_scenario(built_in("coordinator-cut"), "central")
    whats = [mark.what for mark in run.trace.marks if mark.at_ms >= 0]
    coordinators = [what for what in whats if what.endswith("coordinates")]
    assert len(coordinators) == 1, "another one was elected"
    assert any(what.endswith("steps down") for what in whats)
    assert run.metrics.two_owners == 0
    assert run.metrics.uncovered_partitions == 0


def test_a_member_that_follows_a_former_coordinator_is_fenced() -> None:
    """Whoever is on the wrong side of a split registry, coordinator or member, has no say."""
    fenced = 0
    scenario = replace(built_in("registry-split"), work=LIGHT)
    for seed in range(20):
        run = run_scenario(scenario, "central", seed=seed)
        assert run.metrics.two_owners == 0, seed
        fenced += any(span.holding is Holding.FENCED for span in run.trace.spans)
    assert fenced > 3
    watchers = [run_scenario(scenario, "watchers", seed=seed) for seed in range(20)]
    assert sum(run.metrics.two_owners > 0 for run in watchers) > 3


def test_a_coordinator_waits_for_who_is_slow_and_for_nobody_for_ever() -> None:
    slow = built_in("slow-member")
    waited = run_scenario(slow, "central").metrics
    assert waited.fenced_partition_s == 0
    assert waited.stopped_partition_s > 4 * 6, "all wait until the batch of one is done"
    stuck = replace(slow.events[0], for_ms=24_000)
    run = run_scenario(replace(slow, events=(stuck, *slow.events[1:])), "central")
    assert ("m3", "left out") in {(mark.member, mark.what) for mark in run.trace.marks}
    assert run.metrics.fenced_partition_s > 0
    assert run.metrics.commits_refused > 0
    assert run.metrics.commits_backwards == run.metrics.two_owners == 0
    assert run.metrics.uncovered_partitions == 0, "it is back when it comes to poll"


def test_taking_over_takes_the_session_of_the_former_coordinator_and_a_reading() -> None:
    metrics = run_scenario(built_in("coordinator-failover"), "central").metrics
    assert metrics.takeover_ms is not None
    session_ms = RegistrySettings().session_timeout_ms
    assert session_ms - 2_000 <= metrics.takeover_ms <= session_ms + 1_000
    later = run_scenario(built_in("coordinator-failover"), "eager").metrics
    assert later.takeover_ms is not None
    assert later.takeover_ms <= 4_500


@pytest.mark.slow
def test_the_messages_of_scheme_2_grow_with_members_and_those_of_scheme_1_faster() -> None:
    def caused(scheme: str, members: int) -> int:
        messages = run_scenario(newcomer(members, 60), scheme).trace.messages
        before, after = ([m for m in messages if low <= m.sent_ms < low + 30_000]
                         for low in (-30_000, 0))  # fmt: skip
        return sum(m.times for m in after) - sum(m.times for m in before)

    central = [caused("central", members) for members in (10, 20, 40)]
    first, second = central[1] - central[0], central[2] - central[1]
    assert 1.6 < second / first < 2.4, "twice as many more members, twice as many more messages"
    watchers = [caused("watchers", members) for members in (10, 20, 40)]
    assert (watchers[2] - watchers[1]) / (watchers[1] - watchers[0]) > 3


# --- brokers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_dead_broker_leaves_its_partitions_unread_until_others_lead_them(scheme: str) -> None:
    run = run_scenario(built_in("broker-dies"), scheme)
    waiting = [s for s in run.trace.spans if s.holding is Holding.LEADERLESS]
    assert {span.tp.partition for span in waiting} <= {1, 4}, "those that b2 led"
    led_ms = 10_000 + RegistrySettings().session_timeout_ms
    assert max(span.end_ms for span in waiting) == led_ms
    assert run.metrics.leaders_moved == 2
    assert run.metrics.uncovered_partitions == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_broker_that_leaves_in_order_hands_its_partitions_over(scheme: str) -> None:
    run = run_scenario(built_in("broker-leaves"), scheme)
    assert all(span.holding is not Holding.LEADERLESS for span in run.trace.spans)
    assert run.metrics.leaders_moved == 2


def test_under_watchers_every_broker_that_comes_or_goes_stops_everybody() -> None:
    run = run_scenario(built_in("broker-dies"), "watchers")
    rebalanced = [mark for mark in run.trace.marks if mark.what == "rebalances" and mark.at_ms > 0]
    assert len(rebalanced) == 2 * 3, "it dies, it is back; three members"
    assert all("/brokers/ids" in mark.why for mark in rebalanced)
    assert run.metrics.moved_partitions == 0, "all of it for nothing"
    assert run.metrics.stopped_partitions == 6


@pytest.mark.parametrize("scheme", ["eager", "cooperative", "incremental"])
def test_later_schemes_rebalance_for_no_broker_that_is_not_the_coordinator(scheme: str) -> None:
    run = run_scenario(built_in("broker-leaves"), scheme)
    assert run.metrics.stopped_partition_s == 0
    assert run.metrics.takeover_ms is None


@pytest.mark.parametrize("scheme", ["eager", "cooperative"])
def test_with_racks_a_dead_broker_is_a_reason_to_rebalance_by_way_of_metadata(scheme: str) -> None:
    def generations(name: str) -> int:
        marks = run_scenario(built_in(name), scheme).trace.marks
        return sum(mark.what.startswith("generation") and mark.at_ms > 0 for mark in marks)

    assert generations("broker-dies") == 0
    assert generations("broker-dies-racks") > 0


def test_a_broker_that_leaves_and_does_not_coordinate_changes_no_coordinator() -> None:
    scenario = built_in("broker-leaves")
    coordinators = []
    for broker in ("b1", "b2", "b3"):
        events = (replace(scenario.events[0], node=broker),)
        marks = run_scenario(replace(scenario, events=events), "central").trace.marks
        coordinators.append(
            sum(mark.what.endswith("coordinates") and mark.at_ms > 0 for mark in marks)
        )
    assert sorted(coordinators) == [0, 0, 1]


@pytest.mark.parametrize("scheme", ["central", "eager", "cooperative", "incremental"])
def test_the_coordinator_moves_when_its_broker_dies(scheme: str) -> None:
    scenario = built_in("broker-dies")
    takeovers = []
    for broker in ("b1", "b2", "b3"):
        events = tuple(replace(event, node=broker) for event in scenario.events)
        metrics = run_scenario(replace(scenario, events=events), scheme).metrics
        assert metrics.uncovered_partitions == 0, broker
        assert metrics.two_owners == 0, broker
        takeovers.append(metrics.takeover_ms)
    assert takeovers.count(None) == 2, "one of them was the coordinator"
    assert all(3_000 < took < 7_500 for took in takeovers if took is not None)


@pytest.mark.parametrize("scheme", ["eager", "cooperative", "incremental"])
def test_the_first_broker_coordinates_and_readers_do_not_notice_another(scheme: str) -> None:
    leaves = replace(built_in("broker-leaves").events[0], node="b1")
    metrics = run_scenario(replace(built_in("broker-leaves"), events=(leaves,)), scheme).metrics
    assert metrics.takeover_ms is not None
    assert metrics.stopped_partition_s == 0
