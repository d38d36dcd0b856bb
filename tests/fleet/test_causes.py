"""Why a group rebalanced, read from its records: what they prove, and what they leave open."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fleet.analysis import (
    AWAITED_MAX,
    AWAITED_US,
    KEPT,
    analyse,
    events_of,
    move_table,
    rebalance_table,
)
from shoal.fleet.causes import SECOND_ROUND, Rebalance
from shoal.wire.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
)
from tests.fleet.consumer_offsets import START_MS, Journal, tps

ALL = tps("orders", 0, 1, 2, 3)
ORDERS_ID = bytes(range(16))
NAMES = {ORDERS_ID: "orders"}


def rebalances(journal: Journal) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rebalance_table(
        analyse(events_of(journal.records())).rebalances
    ).to_pylist()
    return rows


def two_members(journal: Journal, group: str = "g") -> None:
    """Generations 1 and 2: ``a`` alone, then ``b`` as well; both commit every second."""
    journal.generation(group, 1, {"a": ALL}, 0)
    journal.generation(group, 2, {"a": ALL[:2], "b": ALL[2:]}, 10, began_s=9.5)


def commit_every_second(journal: Journal, begin: int, end: int, *numbers: int) -> None:
    for second in range(begin, end):
        for tp in tps("orders", *numbers):
            journal.commit("g", tp, second, second)


def test_the_first_generation_starts_the_group_and_a_later_one_is_only_first_seen() -> None:
    journal = Journal()
    two_members(journal)
    journal.generation("old", 17, {"x": ALL}, 0)
    first, second, seen = rebalances(journal)
    assert (first["cause"], first["certain"], first["joined"]) == ("group started", True, ["a"])
    assert (seen["cause"], seen["certain"], seen["joined"]) == ("first seen", False, [])
    assert second["cause"] == "member joined"
    assert (second["joined"], second["moved"], second["members"]) == (["b"], 2, 2)
    assert second["duration_ms"] == 500
    assert (second["largest"], second["smallest"], second["imbalance"]) == (2, 2, 1.0)


def test_a_member_that_committed_within_its_session_has_left_for_sure() -> None:
    journal = Journal()
    two_members(journal)
    commit_every_second(journal, 11, 20, 0, 1, 2, 3)
    journal.generation("g", 3, {"a": ALL}, 20)
    last = rebalances(journal)[-1]
    assert (last["cause"], last["certain"], last["left"]) == ("member left", True, ["b"])
    assert last["moved"] == 2


def test_a_member_whose_commits_stopped_a_session_ago_has_expired_most_likely() -> None:
    journal = Journal()
    two_members(journal)
    commit_every_second(journal, 11, 15, 2, 3)
    commit_every_second(journal, 11, 26, 0, 1)
    journal.generation("g", 3, {"a": ALL}, 26, session_ms=10_000)
    last = rebalances(journal)[-1]
    assert (last["cause"], last["certain"], last["expired"]) == ("member expired", False, ["b"])


@pytest.mark.parametrize("commits", [(), (11,), (11, 18)])
def test_a_member_that_committed_seldom_is_gone_and_nothing_tells_how(
    commits: tuple[int, ...],
) -> None:
    journal = Journal()
    two_members(journal)
    for second in commits:
        journal.commit("g", ALL[2], second, second)
    journal.generation("g", 3, {"a": ALL}, 40)
    last = rebalances(journal)[-1]
    assert (last["cause"], last["certain"]) == ("member left or expired", False)
    assert last["gone"] == ["b"]


def test_an_offset_that_was_deleted_is_no_sign_of_life() -> None:
    journal = Journal()
    two_members(journal)
    journal.commit("g", ALL[2], None, 19)
    journal.generation("g", 3, {"a": ALL}, 20)
    assert rebalances(journal)[-1]["gone"] == ["b"]


def test_who_comes_while_another_goes_is_told_in_one_sentence() -> None:
    journal = Journal()
    two_members(journal)
    commit_every_second(journal, 11, 20, 2, 3)
    journal.generation("g", 3, {"a": ALL[:2], "c": ALL[2:3], "d": ALL[3:]}, 20)
    last = rebalances(journal)[-1]
    assert last["cause"] == "2 members joined and member left"
    assert (last["joined"], last["left"], last["moved"]) == (["c", "d"], ["b"], 2)


def test_a_static_member_that_comes_back_restarts_and_nothing_moves() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a-1": ALL}, 0, instances={"a-1": "shop"})
    journal.generation("g", 1, {"a-2": ALL}, 5, instances={"a-2": "shop"})
    last = rebalances(journal)[-1]
    assert last["cause"] == "static member restarted"
    assert (last["restarted"], last["moved"], last["duration_ms"]) == (["a-2"], 0, None)


def test_topics_and_partitions_explain_a_rebalance_of_the_same_members() -> None:
    journal = Journal()
    journal.generation("sub", 1, {"a": ALL}, 0)
    journal.generation("sub", 2, {"a": [*ALL, *tps("extra", 0)]}, 5, topics=["orders", "extra"])
    journal.generation("grew", 1, {"a": ALL}, 0)
    journal.generation("grew", 2, {"a": [*ALL, *tps("orders", 4)]}, 5)
    journal.generation("other", 1, {"a": ALL}, 0)
    journal.generation("other", 2, {"a": ALL}, 5, assignor="sticky")
    journal.generation("why", 1, {"a": ALL}, 0)
    journal.generation("why", 2, {"a": ALL}, 5)
    causes = {row["group"]: row["cause"] for row in rebalances(journal) if row["generation"] == 2}
    assert causes == {
        "sub": "subscription changed",
        "grew": "topic grew",
        "other": "assignor changed",
        "why": "unknown",
    }


def test_a_cooperative_rebalance_is_seen_in_both_rounds() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ALL}, 0)
    journal.generation("g", 2, {"a": ALL[:2], "b": []}, 5)
    journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 6)
    _, first, second = rebalances(journal)
    assert (first["cause"], first["moved"], first["unassigned"]) == ("member joined", 0, 2)
    assert (second["cause"], second["moved"], second["unassigned"]) == (SECOND_ROUND, 2, 0)
    moves = move_table(analyse(events_of(journal.records())).rebalances).to_pylist()
    assert [(m["generation"], m["partition"], m["from_member"], m["to_member"]) for m in moves] == [
        (2, 2, "a", None),
        (2, 3, "a", None),
        (3, 2, None, "b"),
        (3, 3, None, "b"),
    ]


def test_a_generation_that_compaction_took_leaves_a_doubt() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ALL}, 0)
    journal.generation("g", 4, {"a": ALL[:2], "b": ALL[2:]}, 5)
    last = rebalances(journal)[-1]
    assert (last["missed"], last["certain"], last["cause"]) == (2, False, "member joined")


def test_a_start_without_an_assignment_is_no_generation_but_gives_the_next_its_beginning() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ()}, 0, is_start=True)
    journal.generation("g", 1, {"a": ALL}, 0.2)
    journal.generation("g", 2, {"a": (), "b": ()}, 5, is_start=True)
    journal.generation("g", 3, {"a": (), "b": ()}, 6, is_start=True)
    journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 6.3)
    first, last = rebalances(journal)
    assert (first["duration_ms"], last["duration_ms"]) == (200, 300)
    assert (last["generation"], last["missed"], last["certain"]) == (3, 0, True)


def test_the_pause_is_the_longest_time_a_partition_was_without_a_commit_around_it() -> None:
    journal = Journal()
    two_members(journal)
    commit_every_second(journal, 11, 20, 0)
    commit_every_second(journal, 11, 16, 2)
    journal.commit("g", ALL[3], 1, 12)
    journal.generation("g", 3, {"a": ALL}, 22, began_s=21)
    for tp in ALL[:3]:
        journal.commit("g", tp, 99, 25)
    assert rebalances(journal)[-1]["pause_ms"] == 10_000


def test_each_member_stood_still_as_long_as_its_partition_that_waited_longest() -> None:
    for longest, shorter in ((ALL[0], ALL[1]), (ALL[1], ALL[0])):
        journal = Journal()
        two_members(journal)
        for tp, before_s in ((longest, 19), (shorter, 20), (ALL[2], 20.5)):
            journal.commit("g", tp, 1, before_s)
        journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 22, began_s=21)
        for tp, after_s in ((longest, 23), (shorter, 23), (ALL[2], 22.5)):
            journal.commit("g", tp, 2, after_s)
        last = analyse(events_of(journal.records())).rebalances[-1]
        assert last.still_us == {"a": 4_000_000, "b": 2_000_000}
        assert last.now.leader == "a"


def test_who_gets_what_was_taken_in_the_round_before_stood_still_since_its_last_commit() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ALL}, 0)
    journal.commit("g", ALL[2], 1, 4)
    journal.generation("g", 2, {"a": ALL[:2], "b": []}, 5)
    journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 6)
    journal.commit("g", ALL[2], 2, 9)
    last = analyse(events_of(journal.records())).rebalances[-1]
    assert last.still_us == {"b": 5_000_000}
    assert last.pause_us is None


def test_commits_that_come_later_are_added_to_a_rebalance_that_was_told() -> None:
    journal = Journal()
    two_members(journal)
    journal.commit("g", ALL[0], 1, 20)
    journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 22)
    told = len(journal)
    journal.commit("g", ALL[0], 2, 25)
    first = analyse(events_of(journal.records(0, told)))
    assert first.rebalances[-1].still_us == {}
    assert first.revised == []
    then = analyse(events_of(journal.records(told)), first.carry)
    assert then.rebalances == []
    *_, one = then.revised
    assert (one.now.generation, one.still_us) == (3, {"a": 5_000_000})


def stood_still(
    journal: Journal, cuts: Iterable[int] = ()
) -> dict[tuple[str, int], dict[str, int]]:
    """How long members stood still, by group and time of the rebalance, when the log is read up to
    each cut and then on: each look adds what it knows."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    carried: pa.Table | None = None
    for begin, end in pairwise([0, *cuts, len(journal)]):
        done = analyse(events_of(journal.records(begin, end)), carried, NAMES)
        for one in (*done.rebalances, *done.revised):
            still = found.setdefault((one.now.group, one.now.at_us), {})
            for name, gap_us in one.still_us.items():
                still[name] = max(gap_us, still.get(name, 0))
        carried = done.carry
    return found


def test_who_commits_until_the_assignment_stood_still_from_there_however_often_it_is_looked() -> (
    None
):
    journal = Journal()
    consumer_group(journal, 1, {"a": [0, 1]}, 0)
    journal.commit("new", ALL[0], 1, 4)
    consumer_group(journal, 2, {"a": [0, 1], "b": []}, 5, is_assigned=False)
    for second in (6, 7, 8, 9):
        journal.commit("new", ALL[0], second, second)
    assign(journal, 2, {"a": [0], "b": [1]}, 9.4)
    journal.commit("new", ALL[0], 12, 12)
    seconds = list(stood_still(journal).values())
    assert seconds == [{}, {"a": 3_000_000}]
    for cut in range(len(journal)):
        assert list(stood_still(journal, [cut]).values()) == seconds
    assert list(stood_still(journal, range(1, len(journal))).values()) == seconds


def test_both_rounds_of_a_rebalance_learn_of_commits_that_come_after_the_second() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ALL}, 0)
    for tp in ALL:
        journal.commit("g", tp, 1, 4)
    journal.generation("g", 2, {"a": ALL[:2], "b": []}, 5)
    journal.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 6)
    told = len(journal)
    for tp in ALL:
        journal.commit("g", tp, 2, 9)
    expected = [{}, {"a": 5_000_000}, {"a": 5_000_000, "b": 5_000_000}]
    assert list(stood_still(journal).values()) == expected
    assert list(stood_still(journal, [told]).values()) == expected
    assert list(stood_still(journal, range(1, len(journal))).values()) == expected


def test_what_waits_for_commits_is_bounded_in_number_and_in_time() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": ALL}, 0)
    journal.commit("g", ALL[0], 1, 1)

    def generations(carry: pa.Table) -> int:
        return int(carry.column("key").drop_null().length())

    for number in range(2, 20):
        journal.generation("g", number, {"a": ALL}, number)
    awaited = analyse(events_of(journal.records())).carry
    assert generations(awaited) == AWAITED_MAX + KEPT
    journal.commit("other", ALL[0], 1, 20 + AWAITED_US / 1e6)
    later = analyse(events_of(journal.records(len(journal) - 1)), awaited).carry
    assert generations(later) == KEPT
    journal.commit("g", ALL[0], 2, 20)
    done = analyse(events_of(journal.records(len(journal) - 1)), awaited)
    assert generations(done.carry) == KEPT
    told = [one.now.generation for one in done.revised if one.still_us]
    assert told[-AWAITED_MAX:] == [16, 17, 18, 19]


def test_the_record_of_a_new_group_is_no_rebalance() -> None:
    journal = Journal()
    journal.generation("g", 0, {}, 0)
    journal.generation("g", 1, {"a": ALL}, 1)
    assert [row["cause"] for row in rebalances(journal)] == ["group started"]


def test_a_deleted_group_begins_again() -> None:
    journal = Journal()
    two_members(journal)
    journal.write(GroupMetadataKey(group="g"), None, 20)
    journal.generation("g", 1, {"z": ALL}, 30)
    assert rebalances(journal)[-1]["cause"] == "group started"


def consumer_group(
    journal: Journal,
    epoch: int,
    members: dict[str, list[int]],
    at_s: float,
    *,
    is_assigned: bool = True,
) -> None:
    """A generation as a coordinator of the new protocol writes it."""
    for name in members:
        key = ConsumerGroupMemberMetadataKey(group_id="new", member_id=name)
        value = ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id=name,
            client_host="/h",
            subscribed_topic_names=["orders"],
            subscribed_topic_regex=None,
            server_assignor=None,
        )
        journal.write(key, value, at_s)
    journal.write(
        ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=epoch), at_s
    )
    if is_assigned:
        assign(journal, epoch, members, at_s)


def assign(journal: Journal, epoch: int, members: dict[str, list[int]], at_s: float) -> None:
    """The end of it: who is to have what."""
    for name, numbers in members.items():
        part = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
        journal.write(
            ConsumerGroupTargetAssignmentMemberKey(group_id="new", member_id=name),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[part(topic_id=ORDERS_ID, partitions=numbers)]
            ),
            at_s,
        )
    journal.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id="new"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        at_s + 0.1,
    )


def member_at(journal: Journal, name: str, epoch: int, state: int, at_s: float) -> None:
    """How far a member has come, as a coordinator of the new protocol writes it."""
    journal.write(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="new", member_id=name),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            state=state,
            assigned_partitions=[],
            partitions_pending_revocation=[],
        ),
        at_s,
    )


def test_a_member_of_the_new_protocol_is_done_when_it_has_nothing_left_to_do() -> None:
    journal = Journal()
    consumer_group(journal, 1, {"a": [0, 1]}, 0)
    member_at(journal, "a", 1, 0, 0.2)
    consumer_group(journal, 2, {"a": [0], "b": [1]}, 5)
    member_at(journal, "b", 2, 2, 5.2)  # has the epoch, and waits for what a has not released
    member_at(journal, "a", 1, 1, 5.3)  # still to give up
    told = len(journal)
    member_at(journal, "a", 2, 0, 6)
    member_at(journal, "b", 2, 0, 7)
    member_at(journal, "b", 2, 0, 8)

    def seconds(one: Rebalance) -> dict[str, float]:
        return {name: (at - START_MS * 1000) / 1e6 for name, at in one.reached_us.items()}

    first, second = analyse(events_of(journal.records())).rebalances
    assert seconds(first) == {"a": 0.2}
    assert seconds(second) == {"a": 6, "b": 7}
    half = analyse(events_of(journal.records(0, told)))
    assert [seconds(one) for one in half.rebalances] == [{"a": 0.2}, {}]
    (later,) = analyse(events_of(journal.records(told)), half.carry).revised
    assert seconds(later) == {"a": 6, "b": 7}


def test_records_of_the_new_protocol_have_ids_and_tell_of_topics_by_name() -> None:
    journal = Journal()
    consumer_group(journal, 1, {"a": [0, 1]}, 0)
    events = events_of(journal.records())
    (one,) = analyse(events, topics=NAMES).rebalances
    assert sorted(one.now.owners) == tps("orders", 0, 1)
    (unknown,) = analyse(events).rebalances
    assert {tp.topic for tp in unknown.now.owners} == {"id:" + ORDERS_ID.hex()}


def test_groups_of_the_new_protocol_are_put_together_from_their_records() -> None:
    journal = Journal()
    consumer_group(journal, 1, {"a": [0, 1]}, 0)
    consumer_group(journal, 2, {"a": [0], "b": [1]}, 5)
    journal.write(ConsumerGroupMemberMetadataKey(group_id="new", member_id="a"), None, 9)
    consumer_group(journal, 3, {"b": [0, 1]}, 9)
    journal.write(ConsumerGroupMemberMetadataKey(group_id="new", member_id="b"), None, 12)
    journal.write(ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=4), 12)
    rows = rebalances(journal)
    assert [row["cause"] for row in rows] == [
        "group started",
        "member joined",
        "member left or expired",
        "member left or expired",
    ]
    assert [(row["members"], row["moved"]) for row in rows] == [(1, 0), (2, 1), (1, 1), (0, 0)]
    assert rows[1]["protocol"] == "consumer"
    assert rows[1]["duration_ms"] == 100


@st.composite
def histories(draw: st.DrawFn) -> Journal:
    """Three groups that do anything, in one log."""
    journal = Journal()
    number = dict.fromkeys("xyz", 0)
    for second in range(draw(st.integers(1, 14))):
        group = draw(st.sampled_from("xyz"))
        match draw(st.integers(0, 3)):
            case 0:
                journal.commit(group, ALL[draw(st.integers(0, 3))], second, second)
            case 1:
                journal.write(GroupMetadataKey(group=group), None, second)
            case _:
                number[group] += draw(st.integers(1, 2))
                owners = draw(st.lists(st.sampled_from("abc"), min_size=4, max_size=4))
                members = {
                    name: [tp for tp, owner in zip(ALL, owners, strict=True) if owner == name]
                    for name in draw(st.sets(st.sampled_from("abc")))
                }
                is_start = draw(st.booleans()) and bool(members)
                journal.generation(group, number[group], members, second, is_start=is_start)
    if draw(st.booleans()):
        consumer_group(journal, 1, {"a": [0]}, 20)
        consumer_group(journal, 2, {"a": [0], "b": [1]}, 21)
    return journal


def in_parts(journal: Journal, cuts: list[int]) -> list[dict[str, Any]]:
    """The rebalances, when the log is read up to each cut, and then on."""
    carried: pa.Table | None = None
    parts: list[dict[str, Any]] = []
    for begin, end in pairwise([0, *sorted(cuts), len(journal)]):
        done = analyse(events_of(journal.records(begin, end)), carried)
        parts += rebalance_table(done.rebalances).to_pylist()
        carried = done.carry
    return parts


@pytest.mark.slow
@given(histories(), st.lists(st.integers(0, 40), max_size=3))
def test_a_log_read_in_parts_tells_the_same_as_in_one(journal: Journal, cuts: list[int]) -> None:
    whole = rebalances(journal)
    parts = in_parts(journal, [min(cut, len(journal)) for cut in cuts])
    # The pause ends with a commit that a stream has not seen yet.
    for row in [*whole, *parts]:
        del row["pause_ms"]
    order = lambda row: (row["group"], row["at"], row["generation"])  # noqa: E731 - the one order both sides are put in
    assert sorted(parts, key=order) == sorted(whole, key=order)


@pytest.mark.slow
@given(histories(), st.lists(st.integers(0, 40), max_size=5))
def test_looks_add_up_to_how_long_members_stood_still(journal: Journal, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.fleet.analysis.AWAITED_MAX", 100)
        parts = stood_still(journal, sorted(min(cut, len(journal)) for cut in cuts))
        assert parts == stood_still(journal)


def test_what_was_taken_and_when_was_committed_is_carried_on() -> None:
    cooperative = Journal()
    cooperative.generation("g", 1, {"a": ALL}, 0)
    cooperative.generation("g", 2, {"a": ALL[:2], "b": []}, 5)
    cooperative.generation("g", 3, {"a": ALL[:2], "b": ALL[2:]}, 6)
    assert in_parts(cooperative, [1, 2])[-1]["cause"] == SECOND_ROUND
    expired = Journal()
    two_members(expired)
    commit_every_second(expired, 11, 15, 2)
    expired.generation("g", 3, {"a": ALL}, 26)
    assert in_parts(expired, [len(expired) - 1])[-1]["cause"] == "member expired"
