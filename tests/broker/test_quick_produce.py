"""Produce requests that are recognised by their bytes are served as those that are decoded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.quick_produce import Shape, learn
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.frames import decode_request_header, encode_request
from tests.broker.asking import fetch, topic_id
from tests.broker.raw_client import RawClient, batch, values_of
from tests.broker.transactional import NEW, OLD, Transactional

VERSIONS = [3, 7, 8, 9, 11, 12, 13]
QUICK_VERSIONS = [7, 8, 9, 11, 12, 13]


def request_for(
    name: str, index: int, records: bytes | None, *, version: int, identity: bytes, acks: int = -1
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic = ProduceRequest.TopicProduceData(
        name="" if version >= 13 else name,
        topic_id=identity if version >= 13 else bytes(16),
        partition_data=[data],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def frame_of(request: ProduceRequest, version: int, correlation_id: int = 1) -> memoryview:
    whole = b"".join(encode_request(0, version, correlation_id, "client", request))
    return memoryview(bytearray(whole))[4:]


def shape_of(frame: memoryview) -> Shape | None:
    header, body = decode_request_header(frame)
    return learn(header, frame, body, 1000)


@pytest.fixture(scope="module", params=["os", "interval", "group"])
def quick_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """What waits for no sync is answered at once, the rest later: the same answers."""
    with Broker(topics={"t": 3}, durability=request.param) as broker:
        yield broker


@pytest.mark.parametrize("version", VERSIONS)
def test_replies_of_the_quick_way_equal_those_of_the_long_one(quick_broker, version):
    with RawClient(quick_broker.port) as raw:
        identity = topic_id(raw, "t")

        def ask(value: bytes, index: int):
            request = request_for("t", index, batch(value), version=version, identity=identity)
            return raw.ask(request, version).responses[0]

        first = ask(b"long", 1)
        again = [ask(b"quick", 1), ask(b"quick" * 100, 1), ask(b"quick", 2)]
        for answer in (first, *again):
            assert answer.name == first.name
            assert answer.topic_id == first.topic_id
            (one,) = answer.partition_responses
            assert one.error_code == 0
            assert one.log_append_time_ms == -1
        offsets = [each.partition_responses[0].base_offset for each in (first, *again[:2])]
        assert offsets == list(range(offsets[0], offsets[0] + 3))
        assert again[2].partition_responses[0].index == 2


def habit_of(broker: Broker) -> tuple[int, bool]:
    """Lessons of the newest connection, and whether it knows a shape."""

    def look(live):
        (habit,) = [each.produces for each in live.server.connections if each.produces]
        return habit.lessons, habit.shape is not None

    return broker.on_loop(look)


@pytest.mark.parametrize("version", QUICK_VERSIONS)
def test_the_second_request_needs_no_lesson(version):
    with Broker(topics={"t": 1}) as broker, RawClient(broker.port) as raw:
        identity = topic_id(raw, "t")
        for _ in range(5):
            raw.ask(request_for("t", 0, batch(b"v"), version=version, identity=identity), version)
        assert habit_of(broker) == (1, True)
        assert broker.counters()["requests"]["Produce"] == 5


@pytest.mark.parametrize(("flow", "lessons"), [(OLD, 1), (NEW, 2)])
def test_the_second_batch_of_a_transaction_needs_no_lesson(flow, lessons):
    """In the new flow the first one of each transaction adds its partition, on the long way."""
    with Broker(topics={"t": 1}) as broker, RawClient(broker.port) as raw:
        one = Transactional(raw, "id", flow)
        assert one.init() is ErrorCode.NONE
        for _ in range(2):
            one.write("t", b"first")
            for _ in range(3):
                assert one.produce("t", b"more") is ErrorCode.NONE
            one.commit()
        assert habit_of(broker) == (lessons, True)


def test_who_produces_differently_every_time_is_not_studied_for_ever():
    with Broker(topics={"a": 1, "b": 1}) as broker, RawClient(broker.port) as raw:
        for turn in range(60):
            request = request_for("ab"[turn % 2], 0, batch(b"v"), version=9, identity=b"")
            assert raw.ask(request, 9).responses[0].partition_responses[0].error_code == 0
        assert habit_of(broker)[0] == 20
        assert len(values_of(fetch(raw, "a", 0).records)) == 30


def test_refusals_are_the_same_both_ways(quick_broker):
    with RawClient(quick_broker.port) as raw:
        broken = bytearray(batch(b"v"))
        broken[-1] ^= 1

        def refused(index: int, records: bytes):
            request = request_for("t", index, records, version=9, identity=b"")
            (one,) = raw.ask(request, 9).responses[0].partition_responses
            return one.index, one.error_code, one.base_offset, one.error_message

        slow = refused(0, bytes(broken))
        assert slow[1] == ErrorCode.CORRUPT_MESSAGE
        assert refused(0, batch(b"v"))[1] == 0
        assert refused(0, bytes(broken)) == slow
        assert refused(7, batch(b"v"))[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_deleted_is_unknown_to_the_quick_way_too(quick_broker):
    with RawClient(quick_broker.port) as raw:
        quick_broker.create_topic("gone", 1)
        request = request_for("gone", 0, batch(b"v"), version=9, identity=b"")
        for _ in range(2):
            assert raw.ask(request, 9).responses[0].partition_responses[0].error_code == 0
        quick_broker.on_loop(
            lambda live: live.spawn(live.changes.commit([{"kind": "delete", "name": "gone"}]))
        )
        while quick_broker.on_loop(lambda live: "gone" in live.catalogue):
            pass
        (one,) = raw.ask(request, 9).responses[0].partition_responses
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_full_disk_is_told_by_the_quick_way_too(quick_broker):
    with RawClient(quick_broker.port) as raw:
        request = request_for("t", 0, batch(b"v"), version=9, identity=b"")
        for _ in range(2):
            assert raw.ask(request, 9).responses[0].partition_responses[0].error_code == 0

        def reserve(live, size_bytes: int) -> int:
            kept = live.directory._reserve
            before, kept.reserve_bytes, kept._lent = kept.reserve_bytes, size_bytes, 0
            return before

        before = quick_broker.on_loop(lambda live: reserve(live, 1 << 62))
        (one,) = raw.ask(request, 9).responses[0].partition_responses
        assert one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "almost full" in one.error_message
        quick_broker.on_loop(lambda live: reserve(live, before))
        (one,) = raw.ask(request, 9).responses[0].partition_responses
        assert one.error_code == 0


def test_replies_keep_their_order_behind_one_that_waits(quick_broker):
    with RawClient(quick_broker.port) as raw:
        request = request_for("t", 2, batch(b"v"), version=9, identity=b"")
        for _ in range(2):
            raw.ask(request, 9)
        asked = [raw.send(request, 9) for _ in range(3)]
        answers = [raw.receive(0, 9) for _ in asked]
        offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
        assert offsets == sorted(offsets)


def test_requests_that_come_together_are_answered_one_by_one(quick_broker):
    damaged = bytearray(batch(b"v"))
    damaged[-1] ^= 1
    sent = [*[(1, batch(b"%d" % n)) for n in range(5)], (2, batch(b"x")), (1, bytes(damaged))]
    sent += [(1, batch(b"6")), (9, batch(b"nowhere")), (1, batch(b"7", b"8"))]
    with RawClient(quick_broker.port) as raw:
        usual = request_for("t", 1, batch(b"v"), version=9, identity=b"")
        raw.ask(usual, 9)
        (before,) = raw.ask(usual, 9).responses[0].partition_responses
        frames = [
            b"".join(
                encode_request(
                    0, 9, 100 + n, "raw", request_for("t", *one, version=9, identity=b"")
                )
            )
            for n, one in enumerate(sent)
        ]
        raw.sock.sendall(b"".join(frames))
        answers = [raw.receive(0, 9).responses[0].partition_responses[0] for _ in sent]
        asked = quick_broker.counters()["requests"]["Produce"]
        first = before.base_offset + 1
        stored = values_of(fetch(raw, "t", first, partition=1).records)
    assert [one.index for one in answers] == [index for index, _ in sent]
    codes = [ErrorCode.of(one.error_code) for one in answers]
    assert codes[6] is ErrorCode.CORRUPT_MESSAGE
    assert codes[8] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    good = [one.base_offset - first for one in answers if one.index == 1 and not one.error_code]
    assert good == [0, 1, 2, 3, 4, 5, 6]
    assert stored == [b"0", b"1", b"2", b"3", b"4", b"6", b"7", b"8"]
    assert asked >= len(sent) + 2


def test_faults_of_tests_hit_the_quick_way_too():
    with Broker(topics={"t": 1}) as broker, RawClient(broker.port) as raw:
        request = request_for("t", 0, batch(b"v"), version=9, identity=b"")
        raw.ask(request, 9)
        raw.ask(request, 9)
        broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        (one,) = raw.ask(request, 9).responses[0].partition_responses
        assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_that_cannot_be_decoded_is_refused_once():
    with Broker(topics={"t": 1}) as broker, RawClient(broker.port) as raw:
        raw.send(request_for("t", 0, batch(b"v"), version=9, identity=b""), 9)
        raw.receive(0, 9)
        whole = b"".join(
            encode_request(0, 9, 1, "c", request_for("t", 0, batch(b"v"), version=9, identity=b""))
        )
        broken = whole[4:-3]
        raw.sock.sendall(len(broken).to_bytes(4, "big") + broken)
        assert raw.is_cut()
        counted = broker.counters()
        assert counted["errors"] == {"undecodable": 1}
        assert counted["refused"] == {}


@pytest.mark.parametrize("version", [3, 9])
def test_what_is_not_usual_has_no_shape(version):
    plain = request_for("t", 0, batch(b"v"), version=version, identity=b"")
    assert (shape_of(frame_of(plain, version)) is None) == (version == 3)
    assert shape_of(frame_of(request_for("t", 0, None, version=9, identity=b""), 9)) is None
    for acks in (0, 2):
        other = request_for("t", 0, batch(b"v"), version=version, identity=b"", acks=acks)
        assert shape_of(frame_of(other, version)) is None
    twice = request_for("t", 0, batch(b"v"), version=version, identity=b"")
    twice.topic_data = [*twice.topic_data, *twice.topic_data]
    assert shape_of(frame_of(twice, version)) is None


@given(
    st.sampled_from(QUICK_VERSIONS),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(min_size=1, max_size=300),
    st.binary(min_size=1, max_size=300),
)
def test_a_shape_finds_what_a_decoder_finds(version, index, learnt, records):
    identity = bytes(range(16))
    first = frame_of(request_for("t", 0, learnt, version=version, identity=identity), version)
    shape = shape_of(first)
    assert shape is not None
    request = request_for("t", index, records, version=version, identity=identity)
    assert shape.find(frame_of(request, version, correlation_id=-5)) == (-5, index, records)


@given(
    st.sampled_from(QUICK_VERSIONS),
    st.binary(min_size=1, max_size=200),
    st.data(),
)
def test_damaged_frames_are_found_only_if_a_decoder_agrees(version, records, data):
    identity = bytes(range(16))
    frame = frame_of(request_for("t", 3, records, version=version, identity=identity), version)
    shape = shape_of(frame)
    assert shape is not None
    damaged = bytearray(frame)
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(len(frame) - 8, len(frame))) :]
    found = shape.find(memoryview(damaged))
    if found is not None:
        header, body = decode_request_header(memoryview(damaged))
        assert header.client_id == "client"
        decoded = ProduceRequest.decode(body, header.api_version)
        (one,) = decoded.topic_data[0].partition_data
        assert found == (header.correlation_id, one.index, one.records)
        assert decoded.acks == -1
