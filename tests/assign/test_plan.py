"""The planner: what moves, what stops, and how even it is, before a change is made."""

from __future__ import annotations

import pytest

from shoal.assign import ClusterMetadata, GroupSubscription, RebalanceProtocol
from shoal.assign.plan import (
    Group,
    Join,
    Leave,
    Load,
    Member,
    Outcome,
    Plan,
    Resize,
    Restart,
    Resubscribe,
    Switch,
    Topic,
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


def group_of(members: int, **partitions: int) -> Group:
    topics = {name: Topic(count) for name, count in partitions.items()}
    return Group(topics, {f"c{n}": Member(tuple(partitions)) for n in range(members)})


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
    group = Group({"t": Topic(4)}, {f"c{n}": Member(("t",)) for n in range(2)}, owned=given)
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
    for change, says in [
        (Leave(["c9"]), "'c9' cannot leave"),
        (Leave(["c0", "c1"]), "everybody leaves"),
        (Join({"c0": Member(("t",))}), "'c0' cannot join"),
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
    assert spread([1, 2, 3]) == Load(1, 3, 2, pytest.approx(0.8165, abs=1e-4))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Join({"a": Member(())}), "a joins"),
        (Leave(["a", "b", "c", "d", "e"]), "a, b, c and 2 more leave"),
        (Resize({"t": 4}), "t gets 4 partitions"),
        (Resubscribe({"a": ("t", "u"), "b": ()}), "a subscribes to t u, b subscribes to nothing"),
        (Switch("sticky"), "the group changes to sticky"),
        (Restart(static=True), "all members restart one by one (static)"),
    ],
)
def test_changes_speak(change: object, says: str) -> None:
    assert str(change) == says
