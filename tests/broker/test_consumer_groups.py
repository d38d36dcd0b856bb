"""Consumer groups as the broker around them serves them: topics, settings, restarts, rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.broker.raw_client import RawClient

GROUP = 32


@pytest.fixture
def broker() -> Iterator[Broker]:
    groups = GroupSettings(consumer_assignment_interval_ms=0)
    with Broker(config=BrokerConfig(groups=groups)) as made:
        yield made


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def beat(raw: RawClient, member_id: str = "m", epoch: int = 0, **fields: Any) -> Any:
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    return raw.ask(request)


def count(response: Any) -> int:
    assert response.error_code == ErrorCode.NONE, response
    return sum(len(row.partitions) for row in response.assignment.topic_partitions)


def test_topics_that_come_and_grow_reach_members(broker: Broker, raw: RawClient) -> None:
    joined = beat(raw)
    assert count(joined) == 0
    broker.create_topic("t", 2)
    grown = beat(raw, epoch=joined.member_epoch)
    assert count(grown) == 2

    async def grow() -> None:
        async with broker.live.changes.turn:
            entry = broker.live.catalogue.decide_partitions("t", 5)
            assert isinstance(entry, dict)
            await broker.live.changes.commit([entry])

    broker._run(grow())
    assert count(beat(raw, epoch=grown.member_epoch)) == 5


def alter(raw: RawClient, **values: str) -> int:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=GROUP,
                resource_name="g",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=f"consumer.{name.replace('_', '.')}", config_operation=0, value=value
                    )
                    for name, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    return raw.ask(request).responses[0].error_code


def test_settings_of_a_group_reach_members_and_survive_restarts(
    broker: Broker, raw: RawClient
) -> None:
    broker.create_topic("t", 2)
    assert beat(raw).heartbeat_interval_ms == 1_000
    assert alter(raw, heartbeat_interval_ms="7000") == ErrorCode.NONE
    assert beat(raw, epoch=2).heartbeat_interval_ms == 7_000
    broker.restart(kill=True)
    with RawClient(broker.port) as again:
        assert beat(again, epoch=2).heartbeat_interval_ms == 7_000


@pytest.mark.parametrize(
    "values",
    [
        {"heartbeat_interval_ms": "1"},
        {"heartbeat_interval_ms": "soon"},
        {"session_timeout_ms": "70000"},
        {"assignment_interval_ms": "20000"},
        {"no_such_thing": "1"},
    ],
)
def test_settings_that_make_no_sense(raw: RawClient, values: dict[str, str]) -> None:
    assert alter(raw, **values) == ErrorCode.INVALID_CONFIG


def test_a_session_must_be_longer_than_an_interval() -> None:
    groups = GroupSettings(consumer_min_session_timeout_ms=5_000)
    with Broker(config=BrokerConfig(groups=groups)) as broker, RawClient(broker.port) as raw:
        wrong = {"session_timeout_ms": "6000", "heartbeat_interval_ms": "6000"}
        assert alter(raw, **wrong) == ErrorCode.INVALID_CONFIG
        assert alter(raw, session_timeout_ms="6000") == ErrorCode.NONE


def test_what_the_broker_says_is_shown_behind_what_the_group_says() -> None:
    groups = GroupSettings(consumer_session_timeout_ms=50_000)
    with Broker(config=BrokerConfig(groups=groups)) as broker, RawClient(broker.port) as raw:
        resource = DescribeConfigsRequest.Resource(
            resource_type=GROUP,
            resource_name="g",
            configuration_keys=["consumer.session.timeout.ms"],
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (row,) = raw.ask(request).results[0].configs
        assert row.value == "50000"
        assert row.synonyms[0].name == "group.consumer.session.timeout.ms"


def test_a_restart_finds_members_where_they_were(broker: Broker, raw: RawClient) -> None:
    broker.create_topic("t", 4)
    beat(raw, "a")
    beat(raw, "b")
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    before = raw.ask(request).groups[0]
    broker.restart(kill=True)
    with RawClient(broker.port) as again:
        after = again.ask(request).groups[0]
    assert (after.group_epoch, after.assignment_epoch) == (3, 3)
    assert after.authorized_operations == before.authorized_operations != -(2**31)
    held = [each.target_assignment for each in after.members]
    assert held == [each.target_assignment for each in before.members]


def test_an_expression_is_resolved_soon(broker: Broker, raw: RawClient) -> None:
    broker.create_topic("t", 2)
    response = beat(raw, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert count(response) == 0
    for _ in range(1_000):
        response = beat(raw, epoch=response.member_epoch)
        if response.assignment is not None:
            break
    assert count(response) == 2


def test_an_expression_matches_the_topic_that_the_group_itself_made(raw: RawClient) -> None:
    """Nobody has used a group before, so its first request makes the topic of offsets."""
    regex = "__consumer_.*"
    response = beat(raw, subscribed_topic_names=None, subscribed_topic_regex=regex)
    for _ in range(1_000):
        response = beat(raw, epoch=response.member_epoch)
        if response.assignment is not None:
            break
    assert count(response) == 50


def test_an_expression_is_refused(raw: RawClient) -> None:
    response = beat(raw, subscribed_topic_names=None, subscribed_topic_regex="(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def members(raw: RawClient) -> list[str]:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    return [each.member_id for each in raw.ask(request).groups[0].members]


def test_a_member_whose_connection_broke_is_soon_out() -> None:
    with Broker(dead_connection_grace=0.2) as broker, RawClient(broker.port) as watcher:
        broker.create_topic("t", 2)
        with RawClient(broker.port) as dying:
            beat(dying, "dead")
            beat(dying, "dead", epoch=2)
        beat(watcher, "alive")
        beat(watcher, "alive", epoch=2)
        deadline = time.monotonic() + 20
        while members(watcher) != ["alive"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
