"""Several who change the same topic at once: one after the other, however long the disk takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.registry import API
from tests.broker.raw_client import RawClient

AT_ONCE = 8
TOPIC = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """On disk and synced: between a decision and its effect there is time for others."""
    with Broker(data_dir=tmp_path, durability="group") as running:
        running.create_topic("orders", 1)
        yield running


def all_at_once(broker: Broker, requests: Sequence[Any]) -> list[Any]:
    """Send every request on a connection of its own, and only then wait for the replies."""
    version = API[requests[0].API_KEY].max_version
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in requests]
        for client, request in zip(clients, requests, strict=True):
            client.send(request, version)
        return [client.receive(requests[0].API_KEY, version) for client in clients]


def named(answers: Sequence[Any]) -> list[str]:
    return sorted(ErrorCode.of(answer.error_code).name for answer in answers)


def test_a_topic_is_deleted_once_and_the_broker_starts_again(broker: Broker) -> None:
    state = DeleteTopicsRequest.DeleteTopicState(name="orders", topic_id=bytes(16))
    request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
    replies = all_at_once(broker, [request] * AT_ONCE)
    assert named([reply.responses[0] for reply in replies]) == [
        "NONE",
        *["UNKNOWN_TOPIC_OR_PARTITION"] * (AT_ONCE - 1),
    ]
    broker.restart()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_topics() == []


def test_a_topic_is_created_once(broker: Broker) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="new", num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    replies = all_at_once(broker, [CreateTopicsRequest(topics=[topic])] * AT_ONCE)
    answers = [reply.topics[0] for reply in replies]
    assert named(answers) == ["NONE", *["TOPIC_ALREADY_EXISTS"] * (AT_ONCE - 1)]
    (made,) = [answer for answer in answers if not answer.error_code]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_topics("new")["new"].topic_id == made.topic_id


def test_partitions_never_become_fewer(broker: Broker) -> None:
    counts = [9, 3, 8, 2, 7, 4, 6, 5]
    replies = all_at_once(
        broker,
        [
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.Topic(name="orders", count=count, assignments=None)
                ],
                timeout_ms=1000,
                validate_only=False,
            )
            for count in counts
        ],
    )
    assert set(named([reply.results[0] for reply in replies])) == {"INVALID_PARTITIONS", "NONE"}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics("orders")["orders"].partitions) == max(counts)


def test_no_setting_is_lost(broker: Broker) -> None:
    settings = {
        "retention.ms": "60000",
        "segment.bytes": "1048576",
        "max.message.bytes": "2000000",
        "retention.bytes": "100000000",
        "segment.ms": "120000",
    }
    change = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    replies = all_at_once(
        broker,
        [
            IncrementalAlterConfigsRequest(
                resources=[
                    resource(
                        resource_type=TOPIC,
                        resource_name="orders",
                        configs=[change(name=name, config_operation=0, value=value)],
                    )
                ],
                validate_only=False,
            )
            for name, value in settings.items()
        ],
    )
    assert named([reply.responses[0] for reply in replies]) == ["NONE"] * len(settings)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.describe_configs(topic="orders")
        assert {name: found[name].value for name in settings} == settings
