"""Whatever goes wrong while a request is answered, its client gets an answer or a closed socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.broker.dispatch import Call
from shoal.broker.handlers import fetch, list_groups
from shoal.broker.handlers.describe_cluster import handle as describe_cluster
from shoal.testing.broker import Broker
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_cluster import DescribeClusterRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.metadata import MetadataRequest
from tests.broker.asking import fetch_request, produce
from tests.broker.raw_client import RawClient, batch

# Every answer with this in place of a number cannot be encoded.
NOT_A_NUMBER: Any = "seven"
DESCRIBE = DescribeClusterRequest(include_cluster_authorized_operations=False)


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as broker:
        yield broker


def breaks(
    broker: Broker, caplog: pytest.LogCaptureFixture, ask: Callable[[RawClient], object]
) -> None:
    """The connection is closed, the log says why, and nothing of it is left."""
    with RawClient(broker.port, timeout=5) as client:
        ask(client)
        assert client.is_cut()
    counted = broker.counters()
    assert counted["connections_open"] == 0
    assert counted["in_flight_bytes"] == 0
    assert counted["errors"]["not answered"] == 1
    (told,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.exc_info
    with RawClient(broker.port, timeout=5) as client:
        assert client.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_direct_answer_that_cannot_be_encoded(own_broker, caplog, monkeypatch):
    def handle(broker: Any, call: Any, request: Any) -> Any:
        response = describe_cluster(broker, call, request)
        response.controller_id = NOT_A_NUMBER
        return response

    monkeypatch.setattr("shoal.broker.handlers.describe_cluster.handle", handle)
    breaks(own_broker, caplog, lambda client: client.send(DESCRIBE, 0))


def test_a_sliced_answer_that_cannot_be_encoded(own_broker, caplog, monkeypatch):
    monkeypatch.setattr(Call, "operations", lambda *_: NOT_A_NUMBER)
    request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    breaks(own_broker, caplog, lambda client: client.send(request, 9))


def test_an_answer_that_waited_for_a_topic_and_cannot_be_encoded(own_broker, caplog, monkeypatch):
    monkeypatch.setattr(Call, "operations", lambda *_: NOT_A_NUMBER)
    new = MetadataRequest.Topic(name="made-by-asking")
    request = MetadataRequest(topics=[new], include_cluster_authorized_operations=True)
    breaks(own_broker, caplog, lambda client: client.send(request, 9))


def test_an_asynchronous_answer_that_cannot_be_encoded(own_broker, caplog, monkeypatch):
    made = "shoal.broker.handlers.delete_topics.DeleteTopicsResponse"
    monkeypatch.setattr(made, lambda responses: _Unwritable())
    request = DeleteTopicsRequest(topic_names=["nowhere"], timeout_ms=1000)
    breaks(own_broker, caplog, lambda client: client.send(request, 5))


class _Unwritable:
    def encode_parts(self, version: int) -> list[bytes]:
        raise ValueError("not to be written")


def test_a_long_poll_whose_answer_cannot_be_encoded(own_broker, caplog, monkeypatch):
    monkeypatch.setattr(fetch, "FetchResponse", lambda **_: _Unwritable())

    def ask(client: RawClient) -> None:
        client.send(fetch_request("t", 0, max_wait_ms=200), 12)

    breaks(own_broker, caplog, ask)


def test_a_long_poll_that_raises_when_it_is_woken(own_broker, caplog, monkeypatch):
    with RawClient(own_broker.port) as client:
        produce(client, "t", batch(b"first"))
    seen = iter([fetch._Attempt._read])

    def read(attempt: Any, wanted: Any) -> Any:
        return next(seen)(attempt, wanted)  # the second look raises

    monkeypatch.setattr(fetch._Attempt, "_read", read)
    request = fetch_request("t", 1, max_wait_ms=60_000)

    def wait_and_wake(client: RawClient) -> None:
        client.send(request, 12)
        with RawClient(own_broker.port) as producer:
            produce(producer, "t", batch(b"second"))

    breaks(own_broker, caplog, wait_and_wake)


def test_an_answer_gathered_from_coordinators_that_cannot_be_encoded(
    own_broker, caplog, monkeypatch
):
    monkeypatch.setattr(list_groups, "ListGroupsResponse", lambda groups: _Unwritable())
    breaks(own_broker, caplog, lambda client: client.send(ListGroupsRequest(), 4))


def test_a_request_that_raises_before_its_handler(own_broker, caplog, monkeypatch):
    def ask(client: RawClient) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("shoal.broker.dispatch.Dispatch.api", lambda *_: 1 / 0)
            client.send(DESCRIBE, 0)
            assert client.is_cut()

    breaks(own_broker, caplog, ask)
