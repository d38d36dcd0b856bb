"""What the watcher of consumer groups forgives, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.consumer_journal import (
    ClassicProtocols,
    ConsumerGroupEpoch,
    ConsumerMemberMetadata,
    CurrentAssignment,
    TargetAssignment,
    TargetEpoch,
)
from shoal.group.coordinator.journal import JournalRecord, OffsetRecord
from shoal.testing.simulation.consumer_group_invariants import ConsumerGroupWatcher
from shoal.testing.simulation.invariants import Moment, Violation
from shoal.testing.simulation.simulated_cluster import SimulatedTopics
from shoal.testing.simulation.simulated_offsets import commit_request
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.join_group import JoinGroupRequest

NOW = Moment(0, 0)
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Connection(NamedTuple):
    """As much of a connection as the watcher looks at."""

    is_open: bool


@pytest.fixture
def watcher() -> ConsumerGroupWatcher:
    """Of a group in which ``a``, a classic member, has the first partition and ``b`` the other."""
    topics = SimulatedTopics({"t": 2})
    made = ConsumerGroupWatcher("g", topics, GroupConfig())
    topic_id = topics.ids["t"]
    held = {"a": 0, "b": 1}
    classic = {"a": ClassicProtocols(6_000, ()), "b": None}
    records: list[JournalRecord] = [
        *(
            ConsumerMemberMetadata("g", each, topics=frozenset({"t"}), classic=classic[each])
            for each in held
        ),
        ConsumerGroupEpoch("g", 2, 0),
        *(TargetAssignment("g", each, {topic_id: [number]}) for each, number in held.items()),
        TargetEpoch("g", 2),
        *(
            CurrentAssignment("g", each, 2, 2, assigned={topic_id: {number: 2}})
            for each, number in held.items()
        ),
    ]
    made.appended(records, 0, None, None, NOW, None)
    return made


def consumer(member_id: str, *owned: TopicPartition, sent: int = 0) -> Any:
    identity = ConsumerGroupMetadata("g", 2, member_id, None)
    return SimpleNamespace(
        label=member_id,
        is_alive=True,
        member=SimpleNamespace(group_metadata=identity, owned=owned),
        engine=SimpleNamespace(last_ticket=-sent),
    )


def commit(watcher: ConsumerGroupWatcher, member_id: str, tp: TopicPartition, number: int) -> None:
    """The ``number``-th request of a member's shell arrives."""
    ticket = (Connection(is_open=True), -number)
    request = commit_request(ConsumerGroupMetadata("g", 2, member_id, None), {tp: 0})
    watcher.asked(request, ticket, NOW)
    record = OffsetRecord("g", tp.topic, tp.partition, 0, None, "", 0)
    watcher.appended([record], 10 + number, request, ticket, NOW, None)


def mislead(watcher: ConsumerGroupWatcher, member_id: str) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[],
    )
    watcher.asked(request, (Connection(is_open=False), 1), NOW)


def test_commits_of_what_is_another_members_are_noticed(watcher: ConsumerGroupWatcher) -> None:
    commit(watcher, "a", ONE, 1)
    with pytest.raises(Violation, match="C3"):
        commit(watcher, "a", OTHER, 2)


def test_what_a_misled_member_sent_may_arrive_when_it_is_set_right_and_nothing_more(
    watcher: ConsumerGroupWatcher,
) -> None:
    mislead(watcher, "a")
    commit(watcher, "a", OTHER, 1)
    watcher.adopted(consumer("a", ONE, sent=2), [])
    commit(watcher, "a", OTHER, 2)
    with pytest.raises(Violation, match="C3"):
        commit(watcher, "a", OTHER, 3)


def test_an_assignment_from_before_something_late_sets_nothing_right(
    watcher: ConsumerGroupWatcher,
) -> None:
    a, b = consumer("a", ONE, OTHER), consumer("b", OTHER)
    mislead(watcher, "a")
    watcher.adopted(a, [a])
    watcher.adopted(b, [a, b])
    a.member.owned = (ONE,)
    watcher.adopted(a, [a])
    a.member.owned = (ONE, OTHER)
    with pytest.raises(Violation, match="E11"):
        watcher.adopted(b, [a, b])
