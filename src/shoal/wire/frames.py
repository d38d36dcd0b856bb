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

from collections.abc import Iterator
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


class FrameReader:
    """Takes bytes as they arrive and gives whole frames, without their size prefix.

    ``max_size_bytes`` may be raised at any time (after authentication). After an InvalidFrameError
    the connection is of no use: where the next frame starts is not known.
    """

    __slots__ = ("_buffer", "_wanted", "max_size_bytes")

    def __init__(self, max_size_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_size_bytes = max_size_bytes
        self._buffer = bytearray()
        self._wanted = _SIZE.size

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames which ``data`` completes, in order.

        Raises:
            InvalidFrameError: a size is impossible or above the limit; ``hint`` says what the
                peer seems to speak instead of Kafka.
        """
        buffer = self._buffer
        if not buffer and len(data) >= _SIZE.size:
            # The usual case, one whole frame at a time, does without a second copy.
            size = self._size(data)
            if len(data) == size + _SIZE.size:
                return [bytes(data[_SIZE.size :])]
        buffer += data
        if len(buffer) < self._wanted:
            return []
        return list(self._take())

    def _take(self) -> Iterator[bytes]:
        buffer = self._buffer
        position = 0
        try:
            while len(buffer) - position >= _SIZE.size:
                end = position + _SIZE.size + self._size(buffer, position)
                self._wanted = end - position
                if end > len(buffer):
                    return
                yield bytes(memoryview(buffer)[position + _SIZE.size : end])
                position = end
                self._wanted = _SIZE.size
        finally:
            del buffer[:position]

    def _size(self, data: bytes | bytearray | memoryview, position: int = 0) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if MIN_FRAME_BYTES <= size <= self.max_size_bytes:
            return size
        hint = recognise(bytes(data[position : position + 16]))
        if size > self.max_size_bytes:
            reason = f"a frame of {size} bytes is above the limit of {self.max_size_bytes}"
        else:
            reason = f"a frame cannot have {size} bytes"
        raise InvalidFrameError(reason, hint=hint)


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
    try:
        return str(frame[end - length : end], "utf-8")
    except UnicodeDecodeError as fault:
        raise InvalidFrameError("the client id is not valid UTF-8") from fault


def decode_request(
    frame: bytes | memoryview, *, budget: int | None = None
) -> tuple[RequestHeader, Message]:
    """Header and message of a request whose API and version we know."""
    header, body = decode_request_header(frame)
    spec = API.get(header.api_key)
    if spec is None or not spec.has_version(header.api_version):
        raise InvalidMessageError(
            f"unknown request: api key {header.api_key}, version {header.api_version}"
        )
    return header, spec.request.decode(body, header.api_version, budget=budget)


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
    body = memoryview(frame)[position:]
    return correlation_id, spec.response.decode(body, version, budget=budget)


def _skip_tags(frame: bytes | memoryview, position: int) -> int:
    """The position after the tag section of a header. We know no tag of a header."""
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
