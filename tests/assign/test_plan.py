"""The planner: what moves, what stops, and how even it is, before a change is made."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.assign import ClusterMetadata, GroupSubscription, RebalanceProtocol
from shoal.assign.plan import (
    GroupReplay,
    Join,
    Leave,
    Load,
    Outcome,
    Plan,
    PlannedGroup,
    PlannedMember,
    PlannedTopic,
    Resize,
    Restart,
    Resubscribe,
    Switch,
    changed,
    moves,
    plan,
    spread,
)
from shoal.assign.plan_document import EXAMPLES, read
from shoal.types import TopicPartition


def planned(name: str) -> dict[str, Outcome]:
    group, changes = read(EXAMPLES[name])
    return by_name(plan(group, changes))


def by_name(result: Plan) -> dict[str, Outcome]:
    return {outcome.assignor: outcome for outcome in result.outcomes}


def owned(text: str) -> list[TopicPartition]:
    """``t0:1`` is partition 1 of t0."""
    pairs = (one.split(":") for one in text.split())
    return [TopicPartition(topic, int(number)) for topic, number in pairs]


def group_of(members: int, **partitions: int) -> PlannedGroup:
    topics = {name: PlannedTopic(count) for name, count in partitions.items()}
    return PlannedGroup(topics, {f"c{n}": PlannedMember(tuple(partitions)) for n in range(members)})


def test_two_topics_of_three_range_gives_four_and_two_round_robin_three_each() -> None:
    outcomes = planned("two-topics")
    counts = {
        name: sorted(len(held) for held in one.after.values()) for name, one in outcomes.items()
    }
    assert counts == {
        "range": [2, 4],
        "roundrobin": [3, 3],
        "sticky": [3, 3],
        "cooperative-sticky": [3, 3],
    }
    assert outcomes["range"].after["c0"] == owned("t0:0 t0:1 t1:0 t1:1")
    assert outcomes["roundrobin"].after["c0"] == owned("t0:0 t0:2 t1:1")


def test_unequal_subscriptions_round_robin_is_lopsided_and_sticky_is_not() -> None:
    outcomes = planned("unequal")
    assert {m: len(held) for m, held in outcomes["roundrobin"].before.items()} == {
        "c0": 1,
        "c1": 1,
        "c2": 4,
    }
    assert {m: len(held) for m, held in outcomes["sticky"].before.items()} == {
        "c0": 1,
        "c1": 2,
        "c2": 3,
    }
    # After c0 left, sticky moves its one partition and round robin shuffles others with it.
    assert outcomes["sticky"].moved == 1
    assert outcomes["roundrobin"].moved == 3


def test_one_leaves_sticky_keeps_five_and_round_robin_three() -> None:
    outcomes = planned("one-leaves")
    kept = {name: 8 - outcome.moved for name, outcome in outcomes.items()}
    assert kept == {"range": 4, "roundrobin": 3, "sticky": 5, "cooperative-sticky": 5}
    assert outcomes["roundrobin"].before["c1"] == owned("t0:1 t2:0 t3:1")
    assert outcomes["roundrobin"].after["c0"] == owned("t0:0 t1:0 t2:0 t3:0")


def test_eager_stops_everything_and_cooperative_only_what_moves() -> None:
    for outcome in planned("scale-up").values():
        eager = outcome.protocol is RebalanceProtocol.EAGER
        assert outcome.stopped == (12 if eager else outcome.moved)
        # Handing over needs a second round.
        assert outcome.rebalances == (1 if eager else 2)
        assert outcome.loads_after["partitions"] == Load(3, 3, 3, 0)


def test_a_rolling_restart_moves_much_when_dynamic_and_nothing_when_static() -> None:
    group = group_of(4, orders=8, payments=8)
    dynamic = by_name(plan(group, [Restart(static=False)]))
    static = by_name(plan(group, [Restart(static=True)]))
    for name, outcome in dynamic.items():
        assert outcome.moved >= 16, name
        assert outcome.rebalances >= 8
        assert outcome.loads_after["partitions"] == Load(4, 4, 4, 0)
    for outcome in static.values():
        assert outcome.moved == outcome.rebalances == 0
        # Each member's partitions wait once, while it is away.
        assert outcome.stopped == 16
        assert outcome.after == outcome.before
    assert dynamic["sticky"].moved < dynamic["roundrobin"].moved


def test_a_member_alone_may_restart() -> None:
    for outcome in plan(group_of(1, t=3), [Restart(static=False)]).outcomes:
        assert outcome.moved == 0
        assert len(outcome.after["c0"]) == 3


def test_switching_starts_from_what_the_group_uses_now() -> None:
    group, _ = read({**EXAMPLES["two-topics"], "assignor": "range"})
    outcomes = by_name(plan(group, [Switch()]))
    assert outcomes["range"].moved == 0
    assert outcomes["roundrobin"].before == outcomes["range"].before
    assert outcomes["roundrobin"].moved == 3
    assert {outcome.stopped for outcome in outcomes.values()} == {6}
    only = plan(group, [Switch("sticky")])
    assert [outcome.assignor for outcome in only.outcomes] == ["sticky"]


def test_ownership_that_is_given_is_where_all_assignors_start() -> None:
    given = {"c0": owned("t:0 t:1 t:2"), "c1": owned("t:3")}
    group = PlannedGroup(
        {"t": PlannedTopic(4)}, {f"c{n}": PlannedMember(("t",)) for n in range(2)}, owned=given
    )
    outcomes = by_name(plan(group, [Resize({"t": 5})]))
    assert all(outcome.before == given for outcome in outcomes.values())
    # c0 keeps its three; range cuts anew.
    assert outcomes["sticky"].moved == 0
    assert set(outcomes["sticky"].after["c0"]) == set(given["c0"])
    assert outcomes["range"].moved == 0


def test_new_partitions_and_topics_do_not_count_as_moved() -> None:
    group = group_of(2, t=2)
    for outcome in plan(group, [Resize({"t": 4, "u": 3})]).outcomes:
        assert outcome.moved <= 1
        assert sum(len(held) for held in outcome.after.values()) == 4
    joined = Resubscribe({"c0": ("t", "u"), "c1": ("t", "u")})
    for outcome in plan(group, [Resize({"t": 4, "u": 4}), joined]).outcomes:
        assert sum(len(held) for held in outcome.after.values()) == 8
        assert len(outcome.steps) == 2


def test_load_is_measured_by_partitions_lag_and_bytes() -> None:
    outcomes = planned("hot-partitions")
    for outcome in outcomes.values():
        assert set(outcome.loads_after) == {"partitions", "lag", "bytes_per_s"}
        assert outcome.loads_after["bytes_per_s"].mean == pytest.approx((18400 + 2000) / 3)
        assert outcome.loads_after["lag"].maximum == 5000
    # Equal counts, but one member of round robin has both hot partitions.
    assert outcomes["roundrobin"].loads_after["bytes_per_s"].maximum >= 18000
    assert outcomes["range"].loads_after["bytes_per_s"].maximum < 11000


def test_a_custom_assignor_can_be_planned_with() -> None:
    def first_takes_all(
        metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> dict[str, list[TopicPartition]]:
        return {
            min(subscriptions): [
                TopicPartition(topic, number)
                for topic, count in metadata.partition_counts.items()
                for number in range(count)
            ]
        }

    result = plan(group_of(3, t=4), [Leave(["c0"])], [first_takes_all, "sticky"])
    assert [(one.assignor, one.moved) for one in result.outcomes] == [
        ("first_takes_all", 4),
        ("sticky", 2),
    ]


def test_changes_that_do_not_fit_are_refused() -> None:
    group = group_of(2, t=2)
    change: Any
    for change, says in [
        (Leave(["c9"]), "'c9' cannot leave"),
        (Leave(["c0", "c1"]), "everybody leaves"),
        (Join({"c0": PlannedMember(("t",))}), "'c0' cannot join"),
        (Resubscribe({"c9": ()}), "'c9' is not in the group"),
    ]:
        with pytest.raises(ValueError, match=says):
            changed(group, change)


def test_moves_counts_only_partitions_with_an_owner_before_and_another_after() -> None:
    before = {"a": owned("t:0 t:1"), "b": owned("t:2")}
    after = {"a": owned("t:0"), "b": owned("t:1 t:3"), "c": owned("t:2")}
    assert moves(before, after) == {
        TopicPartition("t", 1): ("a", "b"),
        TopicPartition("t", 2): ("b", "c"),
    }


def test_the_spread_of_one_two_three() -> None:
    about: Any = pytest.approx(0.8165, abs=1e-4)
    assert spread([1, 2, 3]) == Load(1, 3, 2, about)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Join({"a": PlannedMember(())}), "a joins"),
        (Leave(["a", "b", "c", "d", "e"]), "a, b, c and 2 more leave"),
        (Resize({"t": 4}), "t gets 4 partitions"),
        (Resize({"t": 1}), "t gets 1 partition"),
        (Resubscribe({"a": ("t", "u"), "b": ()}), "a subscribes to t u, b subscribes to nothing"),
        (Switch("sticky"), "the group changes to sticky"),
        (Restart(static=True), "all members restart one by one (static)"),
    ],
)
def test_changes_speak(change: object, says: str) -> None:
    assert str(change) == says


# --- the broker's assignors (KIP-848) ---


def consumer_group(members: int, partitions: int) -> PlannedGroup:
    topics = {"orders": PlannedTopic(partitions), "returns": PlannedTopic(2)}
    wanted = PlannedMember(("orders", "returns"))
    return PlannedGroup(
        topics, {f"m{number}": wanted for number in range(members)}, protocol="consumer"
    )


def test_a_group_whose_broker_assigns_is_planned_with_the_brokers_assignors() -> None:
    group = consumer_group(2, 6)
    planned = plan(group, [Join({"m2": PlannedMember(("orders", "returns"))})])
    uniform, ranged = planned.outcomes
    assert (uniform.assignor, ranged.assignor) == ("uniform (broker)", "range (broker)")
    assert sorted(len(tps) for tps in uniform.after.values()) == [2, 3, 3]
    assert uniform.moved == 2, "no more than evenness asks for"
    assert uniform.stopped == uniform.moved, "nobody else stops"
    assert ranged.moved > uniform.moved


def test_what_a_member_has_now_stays_where_evenness_allows() -> None:
    owned = {
        "m0": [TopicPartition("orders", number) for number in (1, 3, 5)],
        "m1": [TopicPartition("orders", number) for number in (0, 2, 4)],
    }
    group = PlannedGroup(
        {"orders": PlannedTopic(6)},
        {name: PlannedMember(("orders",)) for name in owned},
        owned=owned,
        protocol="consumer",
    )
    uniform, _ = plan(group, [Resize({"orders": 8})]).outcomes
    assert uniform.moved == 0
    assert all(set(owned[name]) < set(uniform.after[name]) for name in owned)


def test_a_change_of_subscription_takes_away_what_is_not_wanted_any_more() -> None:
    group = consumer_group(2, 4)
    uniform, _ = plan(group, [Resubscribe({"m0": ("returns",)})]).outcomes
    assert {tp.topic for tp in uniform.after["m0"]} <= {"returns"}
    everything = sorted(tp for tps in uniform.after.values() for tp in tps)
    assert len(everything) == len(set(everything)) == 6


def test_a_group_is_replayed_one_rebalance_at_a_time_until_everybody_has_left() -> None:
    replay = GroupReplay(group_of(2, t0=4), "cooperative-sticky")
    replay.start()
    assert {len(partitions) for partitions in replay.owned.values()} == {2}
    step = replay.rebalance("c0 leaves", [Leave(["c0"])])
    assert (step.what, step.moved) == ("c0 leaves", 2)
    assert list(replay.owned) == ["c1"]
    assert len(replay.owned["c1"]) == 4
    assert replay.rebalance("the last leaves", [Leave(["c1"])]).rounds == 0
    assert not replay.owned
