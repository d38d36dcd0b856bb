"""Hostile bytes against a live broker: no crash, no stall, no growth; other clients go on.

Every API in every version is sent as its smallest message and then with one byte changed, one
length replaced, cut or extended. The broker may answer or close the connection; whatever it does,
a well-behaved client on another connection must be served at once afterwards.
"""

from __future__ import annotations

import random
import socket
import struct
import time

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.broker.handlers import SERVED
from shoal.errors import ErrorCode
from shoal.records.batch import encode_batch
from shoal.records.compression import Codec
from shoal.testing.broker import Broker
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API
from shoal.wire.frames import encode_request
from tests.broker.asking import commit, fetch, produce
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient, batch, values_of
from tests.patience import PATIENCE_S

# What only a broker with a metrics port serves is attacked in test_client_telemetry.py.
PAIRS = [
    (key, version)
    for key, served in SERVED.items()
    if not served.needs_receiver
    for version in served.versions(key)
]
NASTY = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 10, b"\0" * 8)


def frame_of(key: int, version: int) -> bytes:
    message = minimal(API[key].request, version)
    return b"".join(encode_request(key, version, 1, "hostile", message))


def mutations(frame: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Changed bodies behind a right length: the frame is taken, its content is the attack."""
    body = frame[4:]
    found = []
    for _ in range(count):
        changed = bytearray(body)
        # The first 8 bytes name the API; what is beyond is its message.
        at = rng.randrange(8, len(changed)) if len(changed) > 8 else 0
        match rng.randrange(5):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                nasty = rng.choice(NASTY)
                changed[at : at + len(nasty)] = nasty
            case 2:
                del changed[at:]
            case 3:
                changed += rng.randbytes(rng.randrange(1, 64))
            case _:
                changed[at:at] = rng.choice(NASTY)
        found.append(struct.pack(">i", len(changed)) + bytes(changed))
    return found


def throw(port: int, frames: list[bytes]) -> None:
    """Send, read what comes back, do not care what it is; open anew when cut."""
    sock = None
    for frame in frames:
        if sock is None:
            sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            sock.settimeout(0.02)
        try:
            sock.sendall(frame)
            if not sock.recv(65536):
                raise ConnectionError
        except TimeoutError:
            # No reply (parked, or a frame without an end): as good as any.
            sock.close()
            sock = None
        except ConnectionError:
            sock.close()
            sock = None
    if sock is not None:
        sock.close()


def serves(broker: Broker) -> None:
    with RawClient(broker.port, timeout=5) as client:
        assert client.ask(MetadataRequest(topics=[])).brokers


def test_the_smallest_message_of_every_api_and_version_gets_a_reply(shared_broker):
    for key, version in PAIRS:
        if key == 36:
            continue
        with RawClient(shared_broker.port, timeout=5) as client:
            client.sock.sendall(frame_of(key, version))
            # A group request may be parked; everything else must answer.
            if key not in (11, 14):
                assert client.receive(key, version) is not None
    assert not shared_broker.counters()["errors"].get("undecodable")


def test_bytes_behind_any_request_are_ignored_and_counted(shared_broker):
    """confluent-kafka's ``list_topics`` sends Metadata v13 with three bytes too many."""
    before = shared_broker.counters()["surplus_bytes"]
    for key, version in PAIRS:
        if key in (11, 14, 36):  # parked, or only with a login
            continue
        body = frame_of(key, version)[4:] + b"\0\xff\7"
        with RawClient(shared_broker.port, timeout=5) as client:
            client.sock.sendall(struct.pack(">i", len(body)) + body)
            assert client.receive(key, version) is not None, (key, version)
    after = shared_broker.counters()["surplus_bytes"]
    metadata = API[3].name
    assert after[metadata] - before.get(metadata, 0) == 3 * sum(key == 3 for key, _ in PAIRS)
    assert not shared_broker.counters()["errors"].get("undecodable")


@pytest.mark.parametrize("version", [3, 9])
def test_a_producer_whose_requests_have_surplus_bytes_is_served(shared_broker, topic, version):
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"v"))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    whole = b"".join(encode_request(0, version, 1, "raw", request))[4:]
    with RawClient(shared_broker.port) as client:
        for number, surplus in enumerate([b"", b"\0", b"", b"xyz", b"xyz", b""]):
            client.sock.sendall(struct.pack(">i", len(whole + surplus)) + whole + surplus)
            (found,) = client.receive(0, version).responses[0].partition_responses
            assert (found.error_code, found.base_offset) == (0, number)


@pytest.mark.slow
def test_one_field_mutations_of_every_api_and_version_harm_nobody(caplog):
    rng = random.Random(20)
    # Thousands of new connections: the limit on their rate has its own test.
    config = BrokerConfig(limits=BrokerLimits(connections_per_second=1_000_000))
    with Broker(config=config) as broker:
        process = psutil.Process()
        serves(broker)
        before = process.memory_info().rss
        for key, version in PAIRS:
            throw(broker.port, mutations(frame_of(key, version), rng, 60))
        serves(broker)
        counters = broker.counters()
        assert counters["in_flight_bytes"] == 0
        failed = {
            k: v for k, v in counters["errors"].items() if k in {a.name for a in API.values()}
        }
        assert not failed, "a handler raised: see the log"
        assert process.memory_info().rss - before < 100 << 20
        assert counters["loop_lag_ms"]["max"] < 500


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_harm_nobody(shared_broker, data):
    throw(shared_broker.port, [data, struct.pack(">i", len(data)) + data])
    serves(shared_broker)


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 100 << 20, (1 << 31) - 1])
def test_a_frame_of_any_announced_size_costs_only_what_arrives(shared_broker, size):
    process = psutil.Process()
    before = process.memory_info().rss
    socks = [socket.create_connection(("127.0.0.1", shared_broker.port)) for _ in range(20)]
    for sock in socks:
        sock.sendall(struct.pack(">i", size) + b"x" * 100)
    serves(shared_broker)
    assert process.memory_info().rss - before < 30 << 20
    for sock in socks:
        sock.close()


def test_a_million_elements_in_one_request_are_refused(shared_broker):
    names = struct.pack(">i", 400_000) + b"\0\1x" * 400_000
    body = struct.pack(">hhih", 3, 1, 1, -1) + names
    with RawClient(shared_broker.port) as client:
        client.sock.sendall(struct.pack(">i", len(body)) + body)
        assert client.is_cut()
    serves(shared_broker)


def test_a_broken_batch_is_refused_and_does_not_stop_the_next_one(shared_broker, topic):
    good = batch(b"good")
    overwritten = range(12, 16)  # the leader epoch: no checksum covers it, the broker writes it
    with RawClient(shared_broker.port) as client:
        for position in range(len(good)):
            bad = bytearray(good)
            bad[position] ^= 0xFF
            refused = produce(client, topic, bytes(bad)).error_code != 0
            assert refused == (position not in overwritten), position
        answer = produce(client, topic, good)
        assert (answer.error_code, answer.base_offset) == (0, len(overwritten))
        stored = fetch(client, topic, 0).records
        assert values_of(stored) == [b"good"] * (len(overwritten) + 1)


# --- what a few bytes may cost ------------------------------------------------------------------


def producer_of(broker: Broker, name: str, *, quick: bool) -> RawClient:
    """A client whose produce requests go the long way, or are known by their bytes."""
    client = RawClient(broker.port)
    for _ in range(3 if quick else 0):
        assert produce(client, name, batch(b"known")).error_code == 0
    return client


def held(broker: Broker) -> dict[str, int]:
    found: dict[str, int] = broker.counters()["memory_bytes"]
    return found


@pytest.mark.parametrize("quick", [False, True])
def test_a_batch_that_never_ends_costs_what_arrived_of_it(shared_broker, topic, quick):
    before = held(shared_broker)["frames"]
    clients = [producer_of(shared_broker, topic, quick=quick) for _ in range(20)]
    for client in clients:
        client.sock.sendall(struct.pack(">i", 60 << 20) + bytes(100))
    while held(shared_broker)["frames"] < before + 20 * 104:
        pass
    assert held(shared_broker)["frames"] <= before + 20 * 8 * 104
    serves(shared_broker)
    for client in clients:
        client.sock.close()


def test_what_is_named_a_thousand_times_is_answered_once(shared_broker, topic, raw):
    times = 1000
    broker_id = str(shared_broker.live.node_id)
    resource = DescribeConfigsRequest.Resource(
        resource_type=4, resource_name=broker_id, configuration_keys=None
    )
    one_key = DescribeConfigsRequest.Resource(
        resource_type=4, resource_name=broker_id, configuration_keys=["log.dir"]
    )
    found = raw.ask(DescribeConfigsRequest(resources=[one_key, *[resource] * times])).results
    assert len(found) == 1
    assert len(found[0].configs) > 10, "somebody asked for all keys"
    assert len(raw.ask(DescribeGroupsRequest(groups=["g"] * times)).groups) == 1
    assert commit(raw, "g", topic, 0, 5) == 0
    everything = OffsetFetchRequest.Group(group_id="g", topics=None)
    assert len(raw.ask(OffsetFetchRequest(groups=[everything] * times), 8).groups) == 1
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0] * times)
    (answer,) = raw.ask(DescribeProducersRequest(topics=[wanted] * 2)).topics
    assert [one.partition_index for one in answer.partitions] == [0]
    assert len(raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)] * 9)).topics) == 1


def test_a_reply_has_no_more_elements_than_are_allowed():
    names = [f"group-{number}" for number in range(30)]
    asked = [
        DescribeConfigsRequest.Resource(
            resource_type=32, resource_name=name, configuration_keys=None
        )
        for name in names
    ]
    config = BrokerConfig(limits=BrokerLimits(elements_per_reply=100))
    with Broker(config=config) as broker, RawClient(broker.port) as raw:
        found = raw.ask(DescribeConfigsRequest(resources=asked)).results
        assert [one.resource_name for one in found] == names
        assert 0 < sum(len(one.configs) for one in found) <= 100
        assert not found[-1].configs
        assert "ask for less at once" in found[-1].error_message


def test_fetch_sessions_are_counted_and_go_with_their_connection(shared_broker, topic):
    partitions = [
        FetchRequest.Partition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(1000)
    ]

    def asked(name: str) -> FetchRequest:
        topics = [FetchRequest.Topic(topic=name, partitions=partitions)]
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)

    request, stranger = asked(topic), asked("no such")
    before = held(shared_broker)["fetch_sessions"]
    with RawClient(shared_broker.port) as raw:
        assert raw.ask(stranger, 12).session_id == 0
        assert held(shared_broker)["fetch_sessions"] == before
        assert raw.ask(request, 12).session_id != 0
        assert held(shared_broker)["fetch_sessions"] >= before + 300 * 1000
    while held(shared_broker)["fetch_sessions"] > before:
        pass


def loop_seconds(broker: Broker) -> float:
    """Processor time of the loop's thread so far: what threads do beside it does not count."""
    return broker.on_loop(lambda _: time.thread_time())


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_to_compress_anew_keeps_nobody_waiting(shared_broker, topic, codec, quick):
    """A few kilobytes of empty records to a gzip topic took half a second of the loop each."""
    name = f"{topic}.gzip"
    shared_broker.create_topic(name, 1, compression_type="gzip")
    count = 100_000
    now_ms = int(time.time() * 1000)
    records = encode_batch([(None, b"", (), now_ms)] * count, codec=codec)
    with producer_of(shared_broker, name, quick=quick) as client:
        produce(client, name, batch(b"known"))
        before = loop_seconds(shared_broker)
        answers = [produce(client, name, records) for _ in range(16)]
        assert loop_seconds(shared_broker) - before < 0.5
        assert {answer.error_code for answer in answers} == {0}
        assert answers[-1].base_offset - answers[0].base_offset == 15 * count
        stored = fetch(client, name, answers[0].base_offset).records
        assert stored[22] & 7 == Codec.GZIP
        assert values_of(stored[: 12 + int.from_bytes(stored[8:12])]) == [b""] * count


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_to_refuse_a_batch_of_many_bad_records_takes_little(shared_broker, topic, codec, quick):
    """To name each of them took longer than to store them, and 50 times their bytes."""
    name = f"{topic}.compacted"
    shared_broker.create_topic(name, 1, cleanup_policy="compact")
    now_ms = int(time.time() * 1000)
    bad = encode_batch([(None, b"", (), now_ms)] * 100_000, codec=codec)
    good = encode_batch([(b"key", b"", (), now_ms)])
    with RawClient(shared_broker.port) as client:
        for _ in range(3 if quick else 0):
            assert produce(client, name, good).error_code == 0
        before = loop_seconds(shared_broker)
        for _ in range(8):
            answer = produce(client, name, bad)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert not answer.record_errors
            assert "without a key" in answer.error_message
        assert loop_seconds(shared_broker) - before < 0.2


def test_a_batch_inflates_to_so_many_times_what_its_topic_allows(shared_broker, topic, raw):
    name = f"{topic}.small"
    shared_broker.create_topic(name, 1, max_message_bytes=100_000)
    for size, code in ((3_000_000, 0), (3_300_000, ErrorCode.MESSAGE_TOO_LARGE)):
        records = encode_batch([(None, bytes(size), (), 1)], codec=Codec.GZIP)
        assert len(records) < 10_000
        assert produce(raw, name, records).error_code == code


def test_ids_that_clients_choose_write_no_lines_of_their_own(shared_broker, topic, raw, caplog):
    group = "g\n2026-01-01 ERROR forged\x1b[31m"
    with caplog.at_level("INFO", "shoal"):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        assert raw.ask(request, 2).error_code == 0
    told = [message for message in caplog.messages if "forged" in message]
    assert told
    assert not any("\n" in message or "\x1b" in message for message in told)
