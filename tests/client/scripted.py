"""A broker that says what it is told to: for error codes and bad manners no real one has.

One node, one topic ``t`` with one partition of ten records, one group. Every answer can carry an
error code at the place where a real broker puts it, or be spoiled as bytes.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from shoal.records.batch import encode_batch
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.fetch import FetchResponse
from shoal.wire.apis.find_coordinator import FindCoordinatorResponse
from shoal.wire.apis.init_producer_id import InitProducerIdResponse
from shoal.wire.apis.list_offsets import ListOffsetsResponse
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.offset_commit import OffsetCommitResponse
from shoal.wire.apis.offset_fetch import OffsetFetchResponse
from shoal.wire.apis.produce import ProduceResponse
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.frames import decode_request_header, encode_response

RECORDS = 10
# Old enough that topics go by name and one group per request: scripts stay short.
VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
}

Spoil = Callable[[bytes], bytes | None]


class ScriptedBroker:
    """Listens on loopback; ``fail`` and ``spoil`` are taken by the next requests of an API."""

    def __init__(self) -> None:
        self.versions = VERSIONS
        self.features: dict[str, int] = {}
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.connections = 0
        self._codes: defaultdict[str, deque[int]] = defaultdict(deque)
        self._spoils: defaultdict[str, deque[Spoil]] = defaultdict(deque)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._batch = encode_batch([(None, str(n).encode(), (), n) for n in range(RECORDS)])

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fail(self, api: str, code: int, times: int = 1) -> None:
        self._codes[api].extend([int(code)] * times)

    def spoil(self, api: str, how: Spoil) -> None:
        """Change the next answer's frame (without its length); ``None`` cuts the connection."""
        self._spoils[api].append(how)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Without this somebody who waits in accept() goes on listening, whatever is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(one)
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one, suppress(OSError, EOFError, struct.error):
            while True:
                (size,) = struct.unpack(">i", _exactly(one, 4))
                frame = _exactly(one, size)
                answer = self._answer(frame)
                if answer is None:
                    one.shutdown(socket.SHUT_RDWR)
                    return
                one.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, frame: bytes) -> bytes | None:
        header, body = decode_request_header(frame)
        spec = API[header.api_key]
        request = spec.request.decode(body, header.api_version)
        self.asked[spec.name] += 1
        codes = self._codes[spec.name]
        message = self._message(spec.key, request, codes.popleft() if codes else 0)
        whole = b"".join(
            bytes(part)
            for part in encode_response(
                header.api_key, header.api_version, header.correlation_id, message
            )
        )
        spoils = self._spoils[spec.name]
        return spoils.popleft()(whole[4:]) if spoils else whole[4:]

    def _message(self, key: ApiKey, request: Any, code: int) -> Any:
        match key:
            case ApiKey.API_VERSIONS:
                keys = [
                    ApiVersionsResponse.ApiVersion(
                        api_key=api, min_version=API[api].min_version, max_version=most
                    )
                    for api, most in self.versions.items()
                ]
                features = [
                    ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level)
                    for name, level in self.features.items()
                ]
                return ApiVersionsResponse(
                    api_keys=keys, error_code=code, finalized_features=features
                )
            case ApiKey.METADATA:
                return self._metadata(code)
            case ApiKey.FETCH:
                return self._fetch(request, code)
            case ApiKey.LIST_OFFSETS:
                at = 0 if request.topics[0].partitions[0].timestamp == -2 else RECORDS
                part = ListOffsetsResponse.PartitionResponse(
                    partition_index=0, error_code=code, offset=-1 if code else at
                )
                return ListOffsetsResponse(
                    topics=[ListOffsetsResponse.TopicResponse(name="t", partitions=[part])]
                )
            case ApiKey.FIND_COORDINATOR:
                return FindCoordinatorResponse(
                    error_code=code, node_id=1, host="127.0.0.1", port=self.port
                )
            case ApiKey.OFFSET_FETCH:
                return OffsetFetchResponse(error_code=code)
            case ApiKey.OFFSET_COMMIT:
                committed = OffsetCommitResponse.Partition(partition_index=0, error_code=code)
                return OffsetCommitResponse(
                    topics=[OffsetCommitResponse.Topic(name="t", partitions=[committed])]
                )
            case ApiKey.INIT_PRODUCER_ID:
                return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)
            case ApiKey.PRODUCE:
                stored = ProduceResponse.PartitionProduceResponse(index=0, error_code=code)
                topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[stored])
                return ProduceResponse(responses=[topic])
        raise AssertionError(key)

    def _metadata(self, code: int) -> MetadataResponse:
        part = MetadataResponse.Partition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponse.Topic(name="t", error_code=code, partitions=[] if code else [part])
        broker = MetadataResponse.Broker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])

    def _fetch(self, request: Any, code: int) -> FetchResponse:
        wanted = request.topics[0].partitions[0].fetch_offset if request.topics else RECORDS
        data = self._batch if not code and wanted < RECORDS else b""
        part = FetchResponse.PartitionData(
            partition_index=0, error_code=code, high_watermark=RECORDS, records=data
        )
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])]
        )


def _exactly(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = one.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
