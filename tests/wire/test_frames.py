"""Frames, headers, and peers which speak something else."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from shoal.errors import ErrorCode, InvalidFrameError, InvalidMessageError
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.fetch import FetchResponse
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.frames import (
    MAX_FRAME_BYTES,
    FrameReader,
    RequestHeader,
    decode_correlation_id,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    recognise,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def request(version: int, client_id: str | None = "me", correlation_id: int = 7) -> bytes:
    parts = encode_request(ApiKey.HEARTBEAT, version, correlation_id, client_id, HEARTBEAT)
    return b"".join(parts)


def frame_of(data: bytes) -> bytes:
    (frame,) = FrameReader().feed(data)
    return frame


# ---------------------------------------------------------------------- frames


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=6), st.data())
def test_frames_come_out_whole_however_the_bytes_are_cut(bodies, data):
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[start:end])
    assert received == bodies
    assert reader.buffered_bytes == 0


def test_a_frame_that_is_not_complete_is_kept():
    reader = FrameReader()
    assert reader.feed(b"\0\0") == []
    assert reader.feed(b"\0\6abc") == []
    assert reader.buffered_bytes == 7
    assert reader.feed(memoryview(b"def\0\0\0\4gh")) == [b"abcdef"]
    assert reader.feed(bytearray(b"ij")) == [b"ghij"]


def test_an_announced_size_allocates_nothing():
    reader = FrameReader()
    assert reader.feed(MAX_FRAME_BYTES.to_bytes(4, "big")) == []
    assert reader.buffered_bytes == 4


@pytest.mark.parametrize("size", [-1, 0, 3, -(2**31)])
def test_an_impossible_size_is_refused(size):
    with pytest.raises(InvalidFrameError, match=f"cannot have {size} bytes"):
        FrameReader().feed(size.to_bytes(4, "big", signed=True) + b"more")


def test_a_size_above_the_limit_is_refused_with_the_limit():
    reader = FrameReader(max_size_bytes=10)
    with pytest.raises(InvalidFrameError, match="11 bytes is above the limit of 10"):
        reader.feed(b"\0\0\0\x0b")
    reader = FrameReader(max_size_bytes=10)
    reader.max_size_bytes = 11
    assert reader.feed(b"\0\0\0\x0b" + bytes(11)) == [bytes(11)]


def test_a_bad_size_behind_a_good_frame_is_refused_too():
    with pytest.raises(InvalidFrameError):
        FrameReader().feed(b"\0\0\0\4abcd" + b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (bytes.fromhex("160301020001000001fc0303"), "TLS handshake"),
        (bytes.fromhex("802e0103010015000000"), "TLS handshake"),
        (bytes.fromhex("15030300020228"), "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"SSH-2.0-OpenSSH", "SSH"),
    ],
)
def test_other_protocols_are_recognised(start, hint):
    assert hint in recognise(start)
    with pytest.raises(InvalidFrameError) as raised:
        FrameReader().feed(start)
    assert hint in raised.value.hint
    assert hint in str(raised.value)


def test_nothing_is_recognised_in_nothing():
    assert recognise(b"") == ""
    assert recognise(b"\x7f\xff\xff\xff") == ""


# ---------------------------------------------------------------------- requests


@pytest.mark.parametrize("client_id", ["me", "", None, "é" * 50])
@pytest.mark.parametrize("version", range(5))
def test_a_request_survives_the_trip(version, client_id):
    header, message = decode_request(frame_of(request(version, client_id)))
    assert header == RequestHeader(ApiKey.HEARTBEAT, version, 7, client_id)
    assert message == HEARTBEAT


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_header_is_the_one_kio_writes(version):
    kio_type = KioHeaderV2 if version == 4 else KioHeaderV1
    out = io.BytesIO()
    header = kio_type(
        request_api_key=12, request_api_version=version, correlation_id=7, client_id="me"
    )
    entity_writer(kio_type)(out, header)
    expected = out.getvalue() + HEARTBEAT.encode(version)
    assert frame_of(request(version)) == expected


def test_unknown_tags_of_a_header_are_skipped():
    frame = frame_of(request(4))
    head = frame[: 10 + 2]
    tagged = head + bytes.fromhex("02 00 01 aa 05 00") + HEARTBEAT.encode(4)
    header, message = decode_request(tagged)
    assert header.client_id == "me"
    assert message == HEARTBEAT


def test_the_header_of_an_api_versions_request_from_the_future_can_be_read():
    frame = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes.fromhex("00000007 ffff 00 aa")
    header, body = decode_request_header(frame)
    assert header == RequestHeader(18, 99, 7, None)
    assert bytes(body) == b"\xaa"
    with pytest.raises(InvalidMessageError, match="api key 18, version 99"):
        decode_request(frame)


def test_the_header_of_an_unknown_api_can_be_read():
    frame = bytes.fromhex("03e7 0000 00000007 0001 78 aabb")
    header, body = decode_request_header(frame)
    assert header == RequestHeader(999, 0, 7, "x")
    assert bytes(body) == b"\xaa\xbb"
    with pytest.raises(InvalidMessageError, match="api key 999, version 0"):
        decode_request(frame)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("", "0 bytes has no header"),
        ("000c 0004 00000007", "8 bytes has no header"),
        ("000c 0000 00000007 0005 61", "client id is longer than its frame"),
        ("000c 0000 00000007 fffe", "client id has the length -2"),
        ("000c 0000 00000007 0001 ff", "client id is not valid UTF-8"),
        ("000c 0004 00000007 ffff", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff ffffffffff0f", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff ffffffff0f", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff 01 00 05 61", "tag section of the header is longer"),
    ],
)
def test_a_broken_request_header_is_refused(frame, text):
    with pytest.raises(InvalidFrameError, match=text):
        decode_request_header(bytes.fromhex(frame))


def test_the_budget_reaches_the_message():
    message = API[ApiKey.LEAVE_GROUP].request
    leave = message(group_id="g", members=[message.MemberIdentity(member_id="m")] * 5)
    frame = frame_of(b"".join(encode_request(ApiKey.LEAVE_GROUP, 3, 1, None, leave)))
    assert decode_request(frame, budget=5)[1] == leave
    with pytest.raises(InvalidMessageError, match="budget"):
        decode_request(frame, budget=4)


# ---------------------------------------------------------------------- responses


@pytest.mark.parametrize("version", range(5))
def test_a_response_survives_the_trip(version):
    response = HeartbeatResponse(error_code=27)
    frame = frame_of(b"".join(encode_response(ApiKey.HEARTBEAT, version, 7, response)))
    assert decode_correlation_id(frame) == 7
    assert decode_response(frame, ApiKey.HEARTBEAT, version) == (7, response)
    tags = 1 if version == 4 else 0
    assert len(frame) == 4 + tags + len(response.encode(version))


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_response_never_has_a_tagged_header(version):
    response = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    frame = frame_of(b"".join(encode_response(ApiKey.API_VERSIONS, version, 7, response)))
    assert frame == b"\0\0\0\7" + response.encode(version)
    assert decode_response(frame, ApiKey.API_VERSIONS, version) == (7, response)


def test_a_refused_version_of_api_versions_is_answered_in_version_0():
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    frame = frame_of(b"".join(encode_response(ApiKey.API_VERSIONS, 0, 7, refusal)))
    assert decode_response(frame, ApiKey.API_VERSIONS, 4) == (7, refusal)


def test_record_batches_of_a_response_are_not_copied():
    records = bytes(10_000)
    data = FetchResponse.PartitionData(partition_index=0, records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])
    response = FetchResponse(responses=[topic])
    parts = encode_response(ApiKey.FETCH, 12, 7, response)
    assert parts[1] is records
    assert decode_response(frame_of(b"".join(parts)), ApiKey.FETCH, 12) == (7, response)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0"])
def test_a_response_without_a_header_is_refused(frame):
    with pytest.raises(InvalidFrameError, match="has no header"):
        decode_response(frame, ApiKey.HEARTBEAT, 0)


def test_an_empty_api_versions_response_is_refused():
    with pytest.raises(InvalidMessageError, match="too early"):
        decode_response(b"\0\0\0\7", ApiKey.API_VERSIONS, 3)


def test_a_client_request_names_its_software():
    asked = ApiVersionsRequest(client_software_name="shoal", client_software_version="1")
    frame = frame_of(b"".join(encode_request(ApiKey.API_VERSIONS, 3, 1, "c", asked)))
    assert decode_request(frame)[1] == asked
