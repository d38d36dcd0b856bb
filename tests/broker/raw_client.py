"""The smallest Kafka client: one socket, one request, one reply. For tests of the broker."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from shoal.records.batch import decode_batch, encode_batch, iter_headers
from shoal.wire.apis.registry import API
from shoal.wire.frames import decode_response, encode_request
from tests.patience import PATIENCE_S


class RawClient:
    """Speaks frames; the test chooses API, version and every field."""

    def __init__(self, port: int, *, timeout: float = PATIENCE_S) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sock.close()

    def send(self, request: Any, version: int, *, client_id: str = "raw") -> int:
        self._correlation_id += 1
        key = request.API_KEY
        parts = encode_request(key, version, self._correlation_id, client_id, request)
        self.sock.sendall(b"".join(parts))
        return self._correlation_id

    def receive(self, key: int, version: int) -> Any:
        frame = self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        return decode_response(frame, key, version)[1]

    def receive_frame(self) -> bytes | None:
        head = self._read(4)
        if head is None:
            return None
        return self._read(struct.unpack(">i", head)[0])

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The response to a request, by default in the newest version."""
        chosen = API[request.API_KEY].max_version if version is None else version
        self.send(request, chosen)
        return self.receive(request.API_KEY, chosen)

    def is_cut(self) -> bool:
        """Whether the broker closes this connection (waits for it)."""
        try:
            return self.receive_frame() is None
        except ConnectionError:
            return True


def batch(*values: bytes, **fields: Any) -> bytes:
    """A record batch; keys are null unless a value is a (key, value) pair."""
    timestamp_ms = fields.pop("timestamp_ms", 1_700_000_000_000)
    return bytes(encode_batch([(None, value, (), timestamp_ms) for value in values], **fields))


def values_of(records: bytes) -> list[bytes | None]:
    data = bytes(records)
    return [raw.value for at, _ in iter_headers(data) for raw in decode_batch(data, at)]
