"""Facts about groups, collected from a live broker, ours and Apache Kafka's: the rules of lag."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer
from shoal.client.metadata import Metadata
from shoal.client.survey import ClusterSurvey, SurveyedGroup
from shoal.fleet.collector import ClusterCollector, GroupFacts
from shoal.fleet.rebalance_watch import RebalanceWatch
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.conformance.client import until
from tests.peers import need
from tests.peers.jars import kafka_jars


@pytest.fixture(
    scope="module",
    params=["ours", pytest.param("Apache Kafka", marks=[pytest.mark.kafka, pytest.mark.slow])],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ours":
        with Broker() as ours:
            yield ours.bootstrap_servers
    else:
        from tests.peers.kafka import ApacheKafka

        need(kafka_jars)
        with ApacheKafka(heap="512m") as theirs:
            yield theirs.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, partitions=2)
    return name


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def write(servers: str, tp: TopicPartition, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(count):
            producer.send(tp.topic, b"x", partition=tp.partition)


def facts(admin: Admin, group: str, isolation_level: str = "read_uncommitted") -> GroupFacts:
    collector = ClusterCollector(admin, groups=(group,), isolation_level=isolation_level)
    (found,) = collector.sweep().groups
    return found


def test_lag_is_what_is_left_to_read(servers: str, admin: Admin, topic: str, group: str) -> None:
    tp = TopicPartition(topic, 0)
    write(servers, tp, 10)
    admin.alter_group_offsets(group, {tp: 4})
    found = facts(admin, group)
    assert (found.state, found.members, found.lag) == ("Empty", 0, 6)
    assert found.positions[tp].committed == 4
    assert TopicPartition(topic, 1) not in found.positions, "nothing is committed there"


def test_what_was_deleted_unread_is_no_lag(
    servers: str, admin: Admin, topic: str, group: str
) -> None:
    tp = TopicPartition(topic, 0)
    write(servers, tp, 10)
    admin.alter_group_offsets(group, {tp: 2})
    admin.delete_records({tp: 7})
    assert facts(admin, group).positions[tp].lag == 3


def test_a_commit_beyond_the_end_is_no_negative_lag(
    servers: str, admin: Admin, topic: str, group: str
) -> None:
    tp = TopicPartition(topic, 0)
    write(servers, tp, 3)
    admin.alter_group_offsets(group, {tp: 50})
    found = facts(admin, group).positions[tp]
    assert (found.lag, found.behind_s) == (0, 0)


def test_a_topic_that_was_deleted_is_left_out(
    servers: str, admin: Admin, topic: str, group: str
) -> None:
    other = f"{topic}-other"
    admin.create_topic(other)
    write(servers, TopicPartition(topic, 0), 5)
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1, TopicPartition(other, 0): 0})
    admin.delete_topics(other)
    until(lambda: other not in admin.list_topics(), "the topic is gone")
    found = facts(admin, group)
    assert (found.lag, set(found.positions)) == (4, {TopicPartition(topic, 0)})


class _Surveyed:
    """What an ``Admin`` found, at a moment no broker can be held at."""

    def __init__(self, found: ClusterSurvey) -> None:
        self._found = found

    def survey(self, **_: object) -> ClusterSurvey:
        return self._found


def test_a_partition_without_an_end_has_no_lag() -> None:
    """It was deleted between the two questions, or nobody leads it."""
    known, gone = TopicPartition("orders", 0), TopicPartition("orders", 1)
    group = SurveyedGroup("g", "Empty", "classic", 1, None, {known: 4, gone: 4})
    survey = ClusterSurvey(Metadata(), {known: 0}, {known: 10}, [group])
    (found,) = ClusterCollector(_Surveyed(survey)).sweep().groups  # type: ignore[arg-type]
    assert {tp: one.lag for tp, one in found.positions.items()} == {known: 6}


def test_an_open_transaction_is_lag_for_one_level_only(
    servers: str, admin: Admin, topic: str, group: str
) -> None:
    tp = TopicPartition(topic, 0)
    write(servers, tp, 5)
    admin.alter_group_offsets(group, {tp: 5})
    with Producer(bootstrap_servers=servers, transactional_id=f"x-{group}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(3):
            producer.send(topic, b"y", partition=0)
        producer.flush()
        assert facts(admin, group).lag == 3
        assert facts(admin, group, "read_committed").lag == 0
        producer.commit_transaction()
    # Its marker counts too: nobody can tell it from a record without reading it.
    until(lambda: facts(admin, group, "read_committed").lag == 4, "the end of the transaction")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_states_and_rebalances_of_both_protocols(
    servers: str, admin: Admin, topic: str, group: str, protocol: str
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers}
    collector = ClusterCollector(admin, groups=(group,))
    watch = RebalanceWatch(admin, settings)
    watch.look(collector.sweep().survey.ends)
    assert not watch.by_group, "what happened before it looked is not counted"
    with (
        Consumer(**settings, group_id=group, group_protocol=protocol) as ann,
        Consumer(**settings, group_id=group, group_protocol=protocol) as ben,
    ):
        for one in (ann, ben):
            one.subscribe([topic])

        def settled() -> bool:
            for one in (ann, ben):
                one.poll(0.05)
            return len(ann.assignment()) == len(ben.assignment()) == 1

        until(settled, "a partition for each")
        until(lambda: settled() and collector.sweep().groups[0].state == "Stable", "a stable group")
        (found,) = collector.sweep().groups
        assert (found.state, found.members, found.protocol) == ("Stable", 2, protocol)
    watch.look(collector.sweep().survey.ends)
    counted = {cause: count for (name, cause), count in watch.by_group.items() if name == group}
    # A first generation that was never assigned leaves no trace in Apache Kafka's records.
    assert set(counted) & {"joined", "group_started", "first_seen"}, counted
    assert sum(counted.values()) >= 2
    (found,) = collector.sweep().groups
    assert (found.state, found.members) == ("Empty", 0)


def test_a_pattern_chooses_groups(servers: str, admin: Admin, topic: str, group: str) -> None:
    tp = TopicPartition(topic, 0)
    for name in (f"{group}-a", f"{group}-b", f"x{group}"):
        admin.alter_group_offsets(name, {tp: 0})
    found = admin.survey(groups=(f"{group}-*",)).groups
    assert [one.group_id for one in found] == [f"{group}-a", f"{group}-b"]
    assert admin.survey(groups=()).groups == []


def test_many_groups_take_few_requests(servers: str, admin: Admin, topic: str, group: str) -> None:
    tp = TopicPartition(topic, 0)
    write(servers, tp, 3)
    for number in range(450):
        admin.alter_group_offsets(f"{group}-{number:03}", {tp: number % 3})
    began = time.process_time()
    found = admin.survey(groups=(f"{group}-*",)).groups
    assert [one.committed[tp] for one in found] == [number % 3 for number in range(450)]
    assert time.process_time() - began < 5
