"""Frames, headers, and peers which speak something else."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from shoal.errors import ErrorCode, InvalidFrameError, InvalidMessageError
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.fetch import FetchResponse
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.frames import (
    RequestHeader,
    decode_correlation_id,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    recognise,
)
from shoal.wire.schema import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def request(version: int, client_id: str | None = "me", correlation_id: int = 7) -> bytes:
    parts = encode_request(ApiKey.HEARTBEAT, version, correlation_id, client_id, HEARTBEAT)
    return b"".join(parts)


def frame_of(data: bytes) -> bytes:
    """Without its size."""
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def decode_request(frame: bytes, *, budget: int | None = None) -> tuple[RequestHeader, Message]:
    header, body = decode_request_header(frame)
    spec = API[header.api_key]
    return header, spec.request.decode(body, header.api_version, budget=budget)


# ---------------------------------------------------------------------- peers


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
    numbers: dict[str, Any] = {"request_api_key": 12, "correlation_id": 7}
    header = kio_type(**numbers, request_api_version=version, client_id="me")
    entity_writer(kio_type)(out, header)
    expected = out.getvalue() + HEARTBEAT.encode(version)
    assert frame_of(request(version)) == expected


def test_unknown_tags_of_a_header_are_skipped():
    frame = frame_of(request(4))
    head = frame[: 10 + 2]
    tagged = head + bytes.fromhex("02 00 02 01 02 05 00") + HEARTBEAT.encode(4)
    header, message = decode_request(tagged)
    assert header.client_id == "me"
    assert message == HEARTBEAT


def test_the_header_of_an_api_versions_request_from_the_future_can_be_read():
    frame = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes.fromhex("00000007 ffff 00 aa")
    header, body = decode_request_header(frame)
    assert header == RequestHeader(18, 99, 7, None)
    assert bytes(body) == b"\xaa"


def test_the_header_of_an_unknown_api_can_be_read():
    frame = bytes.fromhex("03e7 0000 00000007 0001 78 aabb")
    header, body = decode_request_header(frame)
    assert header == RequestHeader(999, 0, 7, "x")
    assert bytes(body) == b"\xaa\xbb"


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("", "0 bytes has no header"),
        ("000c 0004 00000007", "8 bytes has no header"),
        ("000c 0000 00000007 0005 61", "client id is longer than its frame"),
        ("000c 0000 00000007 fffe", "client id has the length -2"),
        ("000c 0004 00000007 ffff", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff ffffffffff0f", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff ffffffff0f", "tag section of the header is not whole"),
        ("000c 0004 00000007 ffff 01 00 05 61", "tag section of the header is longer"),
    ],
)
def test_a_broken_request_header_is_refused(frame, text):
    with pytest.raises(InvalidFrameError, match=text):
        decode_request_header(bytes.fromhex(frame))


def test_a_client_id_that_is_no_utf_8_is_readable_all_the_same():
    header, _ = decode_request_header(bytes.fromhex("000c 0000 00000007 0004 636166e9"))
    assert header.client_id == "caf\ufffd"


def test_bytes_behind_a_response_are_ignored():
    frame = b"".join(encode_response(12, 4, 7, HeartbeatResponse(error_code=3)))[4:]
    assert decode_response(frame + b"more", 12, 4) == (7, HeartbeatResponse(error_code=3))


def test_the_budget_reaches_the_message():
    message: Any = API[ApiKey.LEAVE_GROUP].request
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
