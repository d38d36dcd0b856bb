"""Quotas in a broker: told to the client, kept by not reading from it, and stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal import Admin, Producer
from shoal.errors import BrokerError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import ApiKey
from tests.broker.raw_client import RawClient, batch

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
ANONYMOUS = "ANONYMOUS"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as one:
        yield one


def produce(size: int, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"x" * size))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


def fetch(max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchRequest.Partition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchRequest.Topic(topic="t", partitions=[partition])],
    )


def test_who_writes_too_much_is_told_at_once_and_not_read_from_for_as_long(broker, admin):
    admin.alter_quotas({PRODUCE: 2_000}, client_id="raw")
    with RawClient(broker.port) as raw:
        # Two seconds' worth go through.
        assert raw.ask(produce(3_500), 9).throttle_time_ms == 0
        began = time.monotonic()
        told_ms = raw.ask(produce(3_500), 9).throttle_time_ms
        assert 0 < told_ms <= 2_000, "a second and a half, less what has passed"
        raw.ask(ApiVersionsRequest(), 0)
        assert time.monotonic() - began >= told_ms / 1000 * 0.9
    assert broker.live.counters.throttled == 1


def test_a_clock_that_is_set_moves_no_quota(broker, admin, monkeypatch):
    admin.alter_quotas({PRODUCE: 2_000}, client_id="raw")
    with RawClient(broker.port) as raw:
        assert raw.ask(produce(3_500), 9).throttle_time_ms == 0
        platform = broker.live._platform
        set_ms = platform.now_ms() + 3_600_000
        monkeypatch.setattr(platform, "now_ms", lambda: set_ms)
        assert raw.ask(produce(3_500), 9).throttle_time_ms > 0


def test_others_are_not_held_back(broker, admin):
    admin.alter_quotas({PRODUCE: 1_000}, client_id="other")
    admin.alter_quotas({FETCH: 1_000}, client_id="raw")
    with RawClient(broker.port) as raw:
        assert raw.ask(produce(50_000), 9).throttle_time_ms == 0


def test_the_quick_way_counts_as_well(broker, admin):
    with RawClient(broker.port) as raw:
        for _ in range(3):
            raw.ask(produce(1_000), 9)
        admin.alter_quotas({PRODUCE: 4_000}, client_id="raw")
        assert raw.ask(produce(1_000), 9).throttle_time_ms == 0
        waits = [raw.ask(produce(5_000), 9).throttle_time_ms for _ in range(2)]
        assert waits[-1] > 0


def test_writes_without_an_answer_count_too(broker, admin):
    admin.alter_quotas({PRODUCE: 20_000}, client_id="raw")
    with RawClient(broker.port) as raw:
        began = time.monotonic()
        raw.send(produce(50_000, acks=0), 9)
        raw.ask(ApiVersionsRequest(), 0)
        assert time.monotonic() - began > 0.4


def test_who_reads_too_much_gets_less_at_once_and_waits(broker, admin):
    with RawClient(broker.port) as raw:
        for _ in range(4):
            raw.ask(produce(6_000), 9)
        admin.alter_quotas({FETCH: 10_000}, client_id="raw")
        first = raw.ask(fetch(), 11)
        # No more than a second allows, though all of it was asked for.
        assert 6_000 < len(first.responses[0].partitions[0].records) <= 10_000
        assert first.throttle_time_ms == 0
        waits = [raw.ask(fetch(), 11).throttle_time_ms for _ in range(4)]
        assert waits[-1] > 0


def test_who_wants_more_at_once_than_an_answer_holds_gets_what_it_holds(broker, admin):
    with RawClient(broker.port) as raw:
        for _ in range(4):
            raw.ask(produce(6_000), 9)
        admin.alter_quotas({FETCH: 10_000}, client_id="raw")
        request = fetch()
        request.min_bytes, request.max_wait_ms = 20_000, 20_000
        began = time.monotonic()
        answer = raw.ask(request, 11)
        assert len(answer.responses[0].partitions[0].records) > 6_000
        assert time.monotonic() - began < 15


def test_changes_of_topics_beyond_the_quota_are_refused(broker, admin):
    admin.alter_quotas({"controller_mutation_rate": 1}, client_id="raw")

    def create(raw: RawClient, name: str, version: int) -> Any:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=6, replication_factor=1, assignments=[], configs=[]
        )
        return raw.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), version)

    with RawClient(broker.port) as raw:
        assert create(raw, "a", 7).topics[0].error_code == 0
        # A debt is allowed once; then it is waited for.
        assert create(raw, "b", 7).topics[0].error_code == 0
    with RawClient(broker.port) as raw:
        refused = create(raw, "c", 7)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < refused.throttle_time_ms <= 1_000
    assert "c" not in admin.list_topics()
    with RawClient(broker.port) as raw:
        # Older clients do not know the error: they wait afterwards.
        done = create(raw, "d", 4)
        assert done.topics[0].error_code == 0
        assert done.throttle_time_ms > 1_000


def test_quotas_are_found_and_survive_a_restart(tmp_path):
    expected = {
        (("user", "ann"),): {PRODUCE: 1_000.0, FETCH: 2_000.0},
        (("user", "ann"), ("client-id", None)): {"request_percentage": 12.5},
        (("client-id", "app"),): {PRODUCE: 5.0},
    }
    broker = Broker(data_dir=tmp_path)
    with broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_quotas({PRODUCE: 1_000, FETCH: 2_000}, user="ann")
        admin.alter_quotas({"request_percentage": 12.5}, user="ann", default_client_id=True)
        admin.alter_quotas({PRODUCE: 5}, client_id="app")
        admin.alter_quotas({PRODUCE: 7}, default_user=True)
        admin.alter_quotas({PRODUCE: None}, default_user=True)
        assert admin.describe_quotas() == expected
    with broker:
        pass  # each start writes the journal anew
    with broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_quotas() == expected
        with RawClient(broker.port) as raw:
            raw.send(produce(10), 9, client_id="app")
            assert raw.receive(ApiKey.PRODUCE, 9).throttle_time_ms > 0
        with RawClient(broker.port) as raw:
            found = raw.ask(described("user", 0, "ann", strict=True))
            assert [entry.entity[0].entity_name for entry in found.entries] == ["ann"]
            assert len(raw.ask(described("user", 2, None, strict=False)).entries) == 2
            assert len(raw.ask(described("client-id", 1, None, strict=False)).entries) == 1


def described(kind: str, match_type: int, match: str | None, *, strict: bool) -> Any:
    component = DescribeClientQuotasRequest.ComponentData(
        entity_type=kind, match_type=match_type, match=match
    )
    return DescribeClientQuotasRequest(components=[component], strict=strict)


@pytest.mark.parametrize(
    ("quotas", "whom", "why"),
    [
        ({"speed": 1}, {"user": "ann"}, "not one of producer_byte_rate"),
        ({PRODUCE: -1}, {"user": "ann"}, "more than 0"),
        ({PRODUCE: 1}, {}, "whom is the quota for"),
        ({PRODUCE: 1}, {"user": "ann", "default_user": True}, "not both"),
        ({}, {"user": "ann"}, "no quota is named"),
    ],
)
def test_a_bad_quota_is_refused_by_name(admin, quotas, whom, why):
    with pytest.raises(ValueError, match=why):
        admin.alter_quotas(quotas, **whom)


def test_the_broker_refuses_bad_entities_one_by_one(broker, admin):
    with pytest.raises(BrokerError, match="empty name"):
        admin.alter_quotas({PRODUCE: 1}, user="")
    assert admin.describe_quotas() == {}


def test_our_producer_waits_and_loses_nothing(broker, admin):
    admin.alter_quotas({PRODUCE: 20_000}, user=ANONYMOUS)
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        for _ in range(4):
            sent = [producer.send("t", value=b"x" * 1_800) for _ in range(10)]
            for one in sent:
                one.result(20)
    assert broker.live.counters.throttled > 0


def test_an_address_that_connects_too_often_is_held_off_then_cut(broker, admin):
    admin.alter_quotas({"connection_creation_rate": 1}, ip="127.0.0.1")
    assert admin.describe_quotas() == {(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}}
    clients = [RawClient(broker.port) for _ in range(14)]
    try:
        cut = 0
        for client in clients:
            try:
                client.send(ApiVersionsRequest(), 0)
                cut += client.receive_frame() is None
            except ConnectionError:
                cut += 1
        assert 2 <= cut <= 6
        assert broker.counters()["refused"]["connection quota of the address"] == cut
        # Who is in is not touched, and elsewhere nobody is counted.
        assert admin.list_topics()
        admin.alter_quotas({"connection_creation_rate": None}, ip="127.0.0.1")
        with RawClient(broker.port) as client:
            assert client.ask(ApiVersionsRequest(), 0).api_keys
    finally:
        for client in clients:
            client.sock.close()


def test_connections_that_are_held_off_go_with_the_broker(broker, admin):
    admin.alter_quotas({"connection_creation_rate": 1}, default_ip=True)
    clients = [RawClient(broker.port) for _ in range(20)]
    while not broker.on_loop(lambda live: len(live.server._held_off)):
        time.sleep(0.01)
    broker.stop()
    for client in clients:
        client.sock.close()
    broker.start()


def test_a_quota_of_an_address_goes_with_nobody_else(admin):
    for whom in ({"ip": "::1", "user": "ann"}, {"ip": "::1", "default_ip": True}):
        with pytest.raises(ValueError, match="cannot name a user"):
            admin.alter_quotas({"connection_creation_rate": 1}, **whom)
    with pytest.raises(ValueError, match="not one of connection_creation_rate"):
        admin.alter_quotas({PRODUCE: 1}, ip="::1")


def test_topics_that_are_only_tried_out_cost_nothing(broker, admin):
    admin.alter_quotas({"controller_mutation_rate": 1}, client_id="raw")
    topic = CreateTopicsRequest.CreatableTopic(
        name="tried", num_partitions=50, replication_factor=1, assignments=[], configs=[]
    )
    with RawClient(broker.port) as raw:
        for _ in range(3):
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=True)
            answer = raw.ask(request, 7)
            assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
