"""Subscriptions by pattern, and how a member paces itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.group.member.member_interface import (
    Assigned,
    Failed,
    FindCoordinator,
    Lost,
    RefreshMetadata,
    Revoked,
)
from shoal.group.member.pacing import Backoff
from shoal.wire.apis.join_group import JoinGroupRequest
from tests.group.member_driver import (
    Driver,
    partitions,
)
from tests.group.member_states import (
    REBALANCING,
    join_request,
    stable,
)

# --- patterns ------------------------------------------------------------------------------------


def test_a_pattern_is_matched_against_all_topics_before_joining() -> None:
    driver = Driver(counts={"logs-a": 2, "logs-b": 1, "mylogs-c": 1, "__logs": 1})
    driver.subscribe_pattern(r"(__)?logs.*")
    driver.find()
    driver.poll()
    assert not driver.sent
    assert driver.take_order(RefreshMetadata) == RefreshMetadata(None)
    driver.give_metadata(["logs-a"])
    assert not driver.member.wants_poll, "not an answer for all topics"
    driver.give_metadata(internal=["__logs"])
    assert driver.member.topics == {"logs-a", "logs-b"}
    assert driver.member.wanted_topics is None
    driver.poll()
    driver.rejoin(*partitions("logs-a", 0), generation_id=1)
    assert driver.member.owned == partitions("logs-a", 0)


def test_internal_topics_match_only_if_that_is_wanted() -> None:
    driver = Driver(counts={"__t": 1, "t": 1}, exclude_internal_topics=False)
    driver.subscribe_pattern(".*t")
    driver.give_metadata(internal=["__t"])
    assert driver.member.topics == {"__t", "t"}


def test_a_new_topic_that_matches_is_a_reason_to_rejoin() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), generation_id=1)
    driver.give_metadata(b1=1)
    assert not driver.member.wants_poll
    driver.give_metadata(a2=1)
    assert driver.member.wants_poll
    driver.orders.clear()
    driver.poll()
    assert driver.orders == [RefreshMetadata(None)]
    driver.give_metadata()
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_a_leader_with_a_pattern_joins_even_if_its_reason_is_gone_when_metadata_comes() -> None:
    # Found by the simulator (seed 532): prepared, but never joined.
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.join(1, leader="m", members=[])
    driver.sync(*partitions("a1", 0))
    driver.poll()
    driver.give_metadata(a1=2)
    driver.poll()
    driver.give_metadata(a1=1)
    driver.poll()
    assert driver.take_steps()[-1] == Revoked(partitions("a1", 0))
    assert join_request(driver).reason == "cached metadata has changed"


def test_topics_the_leader_knew_first_become_part_of_the_subscription() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), *partitions("a2", 0), generation_id=1)
    assert driver.member.topics == {"a1", "a2"}
    assert not driver.member.wants_poll
    assert driver.take_steps()[-1] == Assigned(driver.member.owned, driver.member.owned)


def test_a_topic_deleted_since_the_join_is_taken_as_the_leader_gave_it_and_then_given_up() -> None:
    # Found by the simulator (seed 77700169). Kafka's member does the same: the assignment of a
    # generation holds for everybody, and the rejoin that follows corrects it for everybody.
    driver = Driver(counts={"a1": 1, "a2": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.join(1)
    del driver.counts["a2"]
    driver.give_metadata()
    driver.sync(*partitions("a1", 0), *partitions("a2", 0))
    driver.poll()
    both = partitions("a1", 0) + partitions("a2", 0)
    assert driver.take_steps()[-1] == Assigned(both, both)
    assert driver.member.topics == {"a1"}
    assert driver.member.wants_poll
    driver.poll()
    driver.give_metadata()
    driver.poll()
    assert driver.take_steps()[-1] == Revoked(both)
    driver.rejoin(*partitions("a1", 0), generation_id=2)
    assert driver.member.owned == partitions("a1", 0)
    assert not driver.member.wants_poll


def test_an_assignment_that_does_not_match_the_pattern_is_dropped() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("b", 0), generation_id=1)
    assert driver.member.owned == ()
    assert driver.take_steps() == []


def test_a_list_after_a_pattern_wins_and_does_not_wait_for_metadata() -> None:
    driver = Driver()
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.subscribe("t")
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_lost_partitions_do_not_wait_for_the_metadata_of_a_pattern() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), generation_id=1)
    driver.take_steps()
    driver.heartbeat(REBALANCING)
    driver.orders.clear()
    driver.poll()
    assert driver.orders == [RefreshMetadata(None)]
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("a1", 0))]
    assert not driver.sent, "metadata comes before the join all the same"
    driver.give_metadata()
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_known_topics_need_no_second_metadata_request() -> None:
    driver = Driver(counts={"t": 2, "u": 2})
    driver.give_metadata()
    driver.subscribe("t")
    assert driver.orders == [FindCoordinator()]
    driver.give_metadata({"t"})
    driver.subscribe("u")
    assert len(driver.orders) == 1
    driver.subscribe("v")
    assert driver.orders[-1] == RefreshMetadata(frozenset({"v"}))


# --- pacing --------------------------------------------------------------------------------------


@given(
    first=st.integers(1, 1_000),
    longest=st.integers(1, 10_000),
    chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_a_backoff_doubles_is_spread_by_a_fifth_and_never_exceeds_its_limit(
    first: int, longest: int, chances: list[float]
) -> None:
    given_chances = iter(chances)
    backoff = Backoff(first, longest, lambda: next(given_chances))
    for attempt, chance in enumerate(chances):
        expected = min(first * 2**attempt, longest)
        wait = backoff.next_ms()
        assert wait == min(longest, int(expected * (0.8 + 0.4 * chance)))
    backoff.reset()
    again = Backoff(first, longest, lambda: 0.0)
    backoff._chance = lambda: 0.0  # the same source again, to compare
    assert backoff.next_ms() == again.next_ms()


def test_a_backoff_grows_for_ever_without_overflowing() -> None:
    backoff = Backoff(100, 1_000, lambda: 0.999)
    assert max(backoff.next_ms() for _ in range(10_000)) == 1_000


def test_no_deadline_means_that_nothing_can_happen() -> None:
    driver = Driver()
    assert driver.member.next_deadline() is None
    driver.perform(driver.member.tick(1_000_000))
    assert not driver.sent
    assert driver.orders == []


def test_a_failure_is_the_last_output() -> None:
    driver = stable()
    driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    outputs = driver.member.poll(driver.now)
    assert isinstance(outputs[-1], Failed)
