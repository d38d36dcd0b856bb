"""Histories of heartbeats, compared with Apache Kafka answer by answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from tests.broker.raw_client import RawClient
from tests.conformance.consumer_histories import History, Topic, same_topics
from tests.conformance.static_pairs import ClassicPair, ConsumerPair
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.peer]

STEPS = 60

Sides = tuple[RawClient, RawClient, list[Topic]]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    need(java)
    need(kafka_jars)
    settings = {"group.consumer.assignment.interval.ms": "0"}
    groups = GroupSettings(consumer_assignment_interval_ms=0, consumer_heartbeat_interval_ms=5_000)
    with (
        ApacheKafka(heap="512m", settings=settings) as kafka,
        Broker(config=BrokerConfig(groups=groups)) as broker,
        RawClient(kafka.port, timeout=30) as theirs,
        RawClient(broker.port) as mine,
    ):
        yield theirs, mine, same_topics(theirs, broker, {"h-a": 3, "h-b": 4, "h-c": 1})


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 200))]
)
def test_the_same_history_gets_the_same_answers(seed: int, sides: Sides) -> None:
    theirs, mine, topics = sides
    History(seed, theirs, mine, topics).run(STEPS)


def test_a_replaced_static_member_that_commits_under_its_old_id_hears_the_same(
    sides: Sides,
) -> None:
    """The classic group looks at the instance id, the other kind does not; a dynamic one with an
    id that is gone is unknown to both."""
    theirs, mine, topics = sides
    heard = {}
    for kind in (ClassicPair, ConsumerPair):
        pair = kind(topics[0])
        answers = [pair.replaced_and_committed(side) for side in (theirs, mine)]
        assert answers[0] == answers[1]
        heard[kind] = answers[0]
    assert heard == {
        ClassicPair: {
            "its instance id": ErrorCode.FENCED_INSTANCE_ID,
            "no instance id": ErrorCode.UNKNOWN_MEMBER_ID,
            "an unknown instance id": ErrorCode.UNKNOWN_MEMBER_ID,
            "the new one": ErrorCode.NONE,
        },
        ConsumerPair: {
            "its instance id": ErrorCode.UNKNOWN_MEMBER_ID,
            "no instance id": ErrorCode.UNKNOWN_MEMBER_ID,
            "an unknown instance id": ErrorCode.UNKNOWN_MEMBER_ID,
            "the new one": ErrorCode.NONE,
        },
    }
