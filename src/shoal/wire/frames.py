"""Frames and headers: what stands around a message on a connection.

    frame            int32 size of what follows | header | message
    request header   int16 api key | int16 version | int32 correlation id | string client id
                     | tag section (v2)
    response header  int32 correlation id | tag section (v1)

The client id has a 16-bit length even in flexible versions, so that a broker can read it before it
knows the version. The response header of ApiVersions is always v0 (KIP-511).

Rule: a frame reader's memory grows with the bytes that came, never with the size announced.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout
from typing import Any, Final

from shoal.errors import ErrorCode, InvalidFrameError, InvalidMessageError
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.schema import Message, Part
from shoal.wire.varint import decode_uvarint

# Kafka's socket.request.max.bytes; a listener with authentication starts with far less.
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
MAX_FRAME_BYTES_UNAUTHENTICATED: Final = 512 * 1024
# A correlation id is the least a response has.
MIN_FRAME_BYTES: Final = 4

_SIZE: Final = Layout(">i")
_REQUEST: Final = Layout(">hhih")
_REQUEST_FRAME: Final = Layout(">ihhih")
_RESPONSE_FRAME: Final = Layout(">ii")
_INT16: Final = Layout(">h")


@dataclass(slots=True)
class RequestHeader:
    """Who asks what. ``api_key`` and ``api_version`` may be ones that we do not know."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_HTTP: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")


def recognise(start: bytes) -> str:
    """What the first bytes of a connection look like, as advice; empty if like nothing known."""
    if start[:2] == b"\x16\x03" or start[:2] == b"\x80\x2e":
        return "this is a TLS handshake: the peer uses TLS, this listener does not"
    if start[:2] == b"\x15\x03":
        return "this is a TLS alert: one side uses TLS and the other does not"
    if start[:4] in _HTTP or start[:4] == b"HTTP":
        return "this is HTTP, not Kafka's protocol"
    if start[:4] == b"SSH-":
        return "this is SSH, not Kafka's protocol"
    return ""


# ---------------------------------------------------------------------- requests


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Part]:
    """A whole frame in parts: size and header with the start of the message, then the rest."""
    parts = message.encode_parts(version)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if API[api_key].request_header_version(version) == 2 else b""
    size = 10 + len(name) + len(tags) + sum(map(len, parts))
    head = _REQUEST_FRAME.pack(size, api_key, version, correlation_id, length) + name + tags
    parts[0] = head + parts[0]
    return parts


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, memoryview]:
    """The header of a request and a view of its message.

    A version above ours is taken as flexible, so that the header of an ApiVersions request that we
    do not know can be read and answered; an unknown API as not flexible.
    """
    if len(frame) < _REQUEST.size:
        raise InvalidFrameError(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
    position = _REQUEST.size
    client_id = None
    if length >= 0:
        position += length
        client_id = _client_id(frame, position, length)
    elif length < -1:
        raise InvalidFrameError(f"the client id has the length {length}")
    spec = API.get(api_key)
    if spec is not None and spec.is_flexible(version):
        position = _skip_tags(frame, position)
    header = RequestHeader(api_key, version, correlation_id, client_id)
    return header, memoryview(frame)[position:]


def _client_id(frame: bytes | memoryview, end: int, length: int) -> str:
    if end > len(frame):
        raise InvalidFrameError("the client id is longer than its frame")
    return str(frame[end - length : end], "utf-8", "replace")


# ---------------------------------------------------------------------- responses


def encode_response(
    api_key: int, version: int, correlation_id: int, message: Message
) -> list[Part]:
    """A whole frame in parts, as ``encode_request``."""
    parts = message.encode_parts(version)
    tags = b"\0" if API[api_key].response_header_version(version) == 1 else b""
    size = 4 + len(tags) + sum(map(len, parts))
    parts[0] = _RESPONSE_FRAME.pack(size, correlation_id) + tags + parts[0]
    return parts


def decode_correlation_id(frame: bytes | memoryview) -> int:
    """Which request a response belongs to; needed before the rest can be read."""
    if len(frame) < _SIZE.size:
        raise InvalidFrameError(f"a response of {len(frame)} bytes has no header")
    correlation_id: int = _SIZE.unpack_from(frame)[0]
    return correlation_id


def decode_response(
    frame: bytes | memoryview, api_key: int, version: int, *, budget: int | None = None
) -> tuple[int, Any]:
    """Correlation id and message of the response to a request of ``version``.

    A broker that does not know our version of ApiVersions answers in version 0.
    """
    correlation_id = decode_correlation_id(frame)
    spec = API[api_key]
    position = _SIZE.size
    if spec.response_header_version(version) == 1:
        position = _skip_tags(frame, position)
    if spec.key is ApiKey.API_VERSIONS and len(frame) >= position + _INT16.size:
        (error_code,) = _INT16.unpack_from(frame, position)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    # Bytes behind the message are ignored, as Java's clients do.
    message, _ = spec.response.decode_prefix(memoryview(frame)[position:], version, budget=budget)
    return correlation_id, message


def _skip_tags(frame: bytes | memoryview, position: int) -> int:
    """The position after the tag section of a header. No tag of a header is known to us."""
    try:
        count, position = decode_uvarint(frame, position)
        for _ in range(min(count, len(frame))):
            _, position = decode_uvarint(frame, position)
            size, position = decode_uvarint(frame, position)
            position += size
    except (IndexError, InvalidMessageError) as fault:
        raise InvalidFrameError("the tag section of the header is not whole") from fault
    if position > len(frame):
        raise InvalidFrameError("the tag section of the header is longer than its frame")
    return position
