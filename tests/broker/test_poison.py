"""Batches that nobody could read are not stored, whichever way they come; good ones are.

The codes are those that Apache Kafka 4.3 answers, but where it fails without a word for it
(UNKNOWN_SERVER_ERROR for a codec that lies) or stores what readers stumble over: then it is
INVALID_RECORD, which no producer sends again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from shoal.errors import ErrorCode
from shoal.records.batch import HEADER_SIZE, encode_batch
from shoal.records.compression import Codec, compress
from shoal.testing.broker import Broker
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.frames import encode_request
from tests.broker.asking import fetch, list_offset, produce
from tests.broker.raw_client import RawClient, batch, values_of
from tests.records.test_vetting import THREE, TIME_MS, WRONG, sealed

INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
GOOD = sealed(THREE, 3)


def patched(at: int, form: str, value: int) -> bytes:
    changed = bytearray(GOOD)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


POISON: dict[str, tuple[bytes, ErrorCode]] = {
    **{name: (sealed(body, count), INVALID) for name, (body, count) in WRONG.items()},
    **{
        f"{name}, {codec.name}": (sealed(body, count, codec), INVALID)
        for name, (body, count) in WRONG.items()
        for codec in (Codec.GZIP, Codec.ZSTD)
    },
    **{
        f"{codec.name} in name only": (sealed(THREE, 3, codec, pack=False), INVALID)
        for codec in Codec
        if codec
    },
    "cut gzip": (sealed(compress(Codec.GZIP, THREE)[:-4], 3, Codec.GZIP, pack=False), INVALID),
    "cut": (GOOD[:-1], INVALID),
    "a header": (GOOD[:HEADER_SIZE], INVALID),
    "half a header": (GOOD[:30], INVALID),
    "a word": (b"hello", INVALID),
    "two batches": (GOOD + GOOD, INVALID),
    "a changed byte": (GOOD[:-1] + b"!", CORRUPT),
    "a magic of tomorrow": (patched(16, ">b", 3), CORRUPT),
    "a length too small": (patched(8, ">i", 5), CORRUPT),
    "a length a bit too small": (patched(8, ">i", len(GOOD) - 15), CORRUPT),
    "a negative length": (patched(8, ">i", -1), CORRUPT),
    "a negative offset": (patched(0, ">q", -7), INVALID),
}


@pytest.fixture(scope="module", params=["os", "group"])
def poisoned(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(topics={"t": 1, "other": 1}, durability=request.param) as broker:
        yield broker


@pytest.mark.parametrize("name", POISON)
def test_poison_is_not_stored_on_either_path(poisoned, name):
    data, code = POISON[name]
    with RawClient(poisoned.port) as raw:
        end = list_offset(raw, "t", -1).offset
        first = produce(raw, "t", data)  # the long way: nothing is known of this client yet
        for number in range(3):
            assert produce(raw, "t", GOOD).base_offset == end + 3 * number
        second = produce(raw, "t", data)  # the quick one
        assert (first.error_code, second.error_code) == (code, code)
        assert first.error_message == second.error_message
        assert first.error_message
        assert list_offset(raw, "t", -1).offset == end + 9
        assert values_of(fetch(raw, "t", end).records)[-1] == b"value"


def test_poison_in_the_middle_of_a_run_is_refused_alone(poisoned):
    bad, _ = POISON["bytes left over"]
    with RawClient(poisoned.port) as raw:
        for _ in range(3):
            produce(raw, "t", GOOD)
        end = list_offset(raw, "t", -1).offset
        frames = [GOOD, bad, GOOD, bad, GOOD]
        for records in frames:
            data = ProduceRequest.PartitionProduceData(index=0, records=records)
            topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            raw.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        answers = [raw.receive(0, 9).responses[0].partition_responses[0] for _ in frames]
        assert [each.error_code for each in answers] == [0, INVALID, 0, INVALID, 0]
        assert [each.base_offset for each in answers] == [end, -1, end + 3, -1, end + 6]


@pytest.mark.parametrize("version", [8, 9, 12])
def test_the_records_to_blame_are_named(poisoned, version):
    late = int(time.time() * 1000) + 7_200_000
    now = late - 7_200_000
    records = [(b"k", b"v", (), now), (b"k", b"v", (), late), (b"k", b"v", (), now)]
    with RawClient(poisoned.port) as raw:
        for _ in range(3):  # long and quick
            found = produce(raw, "t", encode_batch(records), version=version)
            assert found.error_code == ErrorCode.INVALID_TIMESTAMP
            (blamed,) = found.record_errors
            assert blamed.batch_index == 1
            assert str(late) in blamed.batch_index_error_message
            assert produce(raw, "t", GOOD, version=version).error_code == 0


def test_a_compacted_topic_names_the_records_without_a_key(poisoned):
    poisoned.create_topic("compacted", 1, cleanup_policy="compact")
    now = int(time.time() * 1000)
    records = [(b"k", b"v", (), now), (None, b"v", (), now), (None, b"v", (), now)]
    with RawClient(poisoned.port) as raw:
        for codec in (Codec.NONE, Codec.LZ4):
            found = produce(raw, "compacted", encode_batch(records, codec=codec))
            assert found.error_code == INVALID
            assert [each.batch_index for each in found.record_errors] == [1, 2]
            assert produce(raw, "compacted", encode_batch(records[:1])).error_code == 0


# --- what takes long to look at -----------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_large_compressed_batches_are_stored_in_order(poisoned, codec, acks):
    """They are inflated in a thread; whatever comes behind them on the connection waits."""
    large = encode_batch([(None, b"%d" % n * 1000, (), TIME_MS) for n in range(700)], codec=codec)
    with RawClient(poisoned.port) as raw:
        end = list_offset(raw, "other", -1).offset
        for records in (large, GOOD, large):
            data = ProduceRequest.PartitionProduceData(index=0, records=records)
            topic = ProduceRequest.TopicProduceData(name="other", partition_data=[data])
            raw.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 9)
        if acks:
            answers = [raw.receive(0, 9).responses[0].partition_responses[0] for _ in range(3)]
            assert [each.base_offset - end for each in answers] == [0, 700, 703]
        while list_offset(raw, "other", -1).offset < end + 1403:
            time.sleep(0.01)
        stored = fetch(raw, "other", end, partition_max_bytes=1 << 22).records
        assert values_of(stored)[699:704] == [b"699" * 1000, *[b"value"] * 3, b"0" * 1000]


def test_a_bad_frame_behind_what_is_not_answered_ends_the_connection(poisoned):
    large = encode_batch([(None, bytes(900_000), (), TIME_MS)], codec=Codec.GZIP)
    data = ProduceRequest.PartitionProduceData(index=0, records=large)
    topic = ProduceRequest.TopicProduceData(name="other", partition_data=[data])
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
    with RawClient(poisoned.port) as raw, RawClient(poisoned.port) as other:
        end = list_offset(other, "other", -1).offset
        frame = b"".join(encode_request(0, 9, 1, "raw", request))
        raw.sock.sendall(frame + struct.pack(">i", -1))
        assert raw.is_cut()
        # Nobody waits for it, so it may be seen a moment later: when it is synced.
        until = time.monotonic() + 10
        while list_offset(other, "other", -1).offset == end and time.monotonic() < until:
            time.sleep(0.01)
        assert list_offset(other, "other", -1).offset == end + 1


def test_a_large_batch_that_is_wrong_inside_is_refused_too(poisoned):
    body = encode_batch([(None, bytes(900_000), (), TIME_MS)])[HEADER_SIZE:]
    with RawClient(poisoned.port) as raw:
        end = list_offset(raw, "t", -1).offset
        assert produce(raw, "t", sealed(body + b"x", 1, Codec.GZIP)).error_code == INVALID
        assert list_offset(raw, "t", -1).offset == end


def test_bombs_do_not_stop_the_loop(caplog):
    bomb = encode_batch([(None, bytes(30 << 20), (), TIME_MS)], codec=Codec.GZIP)
    too_much = encode_batch([(None, bytes(33 << 20), (), TIME_MS)], codec=Codec.ZSTD)
    with (
        Broker(topics={"t": 1}) as broker,
        RawClient(broker.port, timeout=60) as raw,
        RawClient(broker.port) as other,
    ):
        request = MetadataRequest(topics=[])
        other.ask(request)
        answers = []
        # The first ones are the lesson: from then on the quick way is tried.
        for data in (GOOD, GOOD, GOOD, bomb, too_much):
            part = ProduceRequest.PartitionProduceData(index=0, records=data)
            topic = ProduceRequest.TopicProduceData(name="t", partition_data=[part])
            raw.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
            for _ in range(20):
                other.ask(request)
            answers.append(raw.receive(0, 9).responses[0].partition_responses[0].error_code)
        assert answers == [0, 0, 0, 0, ErrorCode.MESSAGE_TOO_LARGE]
        # Time on the loop, not time that passes: the machine may be busy.
        assert broker.counters()["slowest_request_ms"].get("Produce", 0) < 50
        assert broker.counters()["in_flight_bytes"] == 0


def test_eighty_bytes_that_announce_two_billion_records_are_refused(poisoned):
    announced = sealed(b"", 2**31 - 1, Codec.GZIP)
    assert len(announced) < 100
    with RawClient(poisoned.port) as raw:
        for _ in range(3):
            assert produce(raw, "t", announced).error_code == INVALID
            assert produce(raw, "t", batch(b"v")).error_code == 0
