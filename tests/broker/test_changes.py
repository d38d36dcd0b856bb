"""Several who change the same topic at once: one after the other, however long the disk takes.

And a disk that takes nothing: everybody is told, nothing is half done, and later it goes on.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin
from shoal.broker.journal import Journal
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.metadata import MetadataRequest
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


def create(raw: RawClient, name: str) -> ErrorCode:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return ErrorCode.of(raw.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code)


def producer_id(raw: RawClient) -> tuple[ErrorCode, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = raw.ask(request, 4)
    return ErrorCode.of(answer.error_code), answer.producer_id


@contextmanager
def journal_on(broker: Broker, file: int) -> Iterator[None]:
    """The journal's descriptor leads to another file for a while."""

    def swap(live: Any) -> int:
        kept = os.dup(live.journal._fd)
        os.dup2(file, live.journal._fd)
        return kept

    kept = broker.on_loop(swap)
    try:
        yield
    finally:
        broker.on_loop(lambda live: os.dup2(kept, live.journal._fd))
        os.close(kept)


def test_a_full_disk_is_told_to_everybody_and_forgotten_when_there_is_room(broker: Broker) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    wanted = MetadataRequest(
        topics=[MetadataRequest.Topic(name="by-itself", topic_id=bytes(16))],
        allow_auto_topic_creation=True,
    )
    with RawClient(broker.port) as raw:
        with journal_on(broker, full):
            assert create(raw, "new") is ErrorCode.KAFKA_STORAGE_ERROR
            for _ in range(2):
                assert producer_id(raw) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            (topic,) = raw.ask(wanted).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert create(raw, "new") is ErrorCode.NONE
        assert producer_id(raw)[0] is ErrorCode.NONE
        assert raw.ask(wanted).topics[0].error_code == 0
    os.close(full)
    broker.restart()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert sorted(admin.list_topics()) == ["by-itself", "new", "orders"]


def test_what_could_not_be_synced_does_not_count_after_a_restart_either(broker: Broker) -> None:
    """A pipe takes what is written and cannot be synced."""
    end, start = os.pipe()
    with RawClient(broker.port) as raw:
        swapped = broker.on_loop(lambda live: os.dup2(start, live.journal._fd))
        assert swapped > 0
        assert create(raw, "lost") is ErrorCode.KAFKA_STORAGE_ERROR
        assert create(raw, "kept") is ErrorCode.NONE
    os.close(end)
    os.close(start)
    broker.restart(kill=True)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert sorted(admin.list_topics()) == ["kept", "orders"]


def test_an_entry_that_was_written_in_part_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.journal"
    journal = Journal(path)
    journal.rewrite([{"kind": "producer_ids", "next": 1}])
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, most))
    try:
        with pytest.raises(OSError, match="the disk is full"):
            journal.append([{"kind": "producer_ids", "next": 2}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    journal.append([{"kind": "producer_ids", "next": 3}])
    journal.close()
    assert [entry["next"] for entry in Journal(path).load()] == [1, 3]


def test_a_journal_that_cannot_be_written_anew_takes_nothing_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone" / "catalogue.journal")
    with pytest.raises(FileNotFoundError):
        journal.rewrite([])
    with pytest.raises(OSError, match="make room and restart the broker"):
        journal.append([{"kind": "producer_ids", "next": 1}])
