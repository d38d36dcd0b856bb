"""The brokers of a simulation as a real client sees them: bytes in, bytes out.

What is about the group goes to the simulated cluster, where the real coordinator decides; topics,
records and who coordinates are answered here, out of the same simulated topics. A record's value
says where it stands in which log, so that a reader can tell whether it got the right one.

Rule: answers leave a connection in the order of its requests, as a broker's do, so one that has to
wait holds up all that were asked behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import ErrorCode
from shoal.records.batch import HEADER_SIZE, encode_batch
from shoal.testing.simulation.network import SimulatedConnection
from shoal.testing.simulation.virtual_loop import SimulatedProcess
from shoal.types import TopicPartition
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.fetch import FetchRequest, FetchResponse
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from shoal.wire.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from shoal.wire.apis.metadata import MetadataRequest, MetadataResponse
from shoal.wire.apis.offset_fetch import OffsetFetchResponse
from shoal.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.frames import RequestHeader, decode_request_header, encode_response

if TYPE_CHECKING:
    from shoal.testing.simulation.client_simulator import ClientSimulation
    from shoal.testing.simulation.simulated_cluster import SimulatedNode

HOST: Final = "simulated"
FIRST_PORT: Final = 9092
SENDING_PORT: Final = 9094
"""Of the broker to which producers send."""
_RECORDS_MAX: Final = 50
# Topics by name, which is how the simulation knows them; everything else as new as it gets.
_VERSIONS: Final = {
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.API_VERSIONS: 3,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
}


def record_value(tp: TopicPartition, offset: int) -> bytes:
    return f"{tp.topic}-{tp.partition}@{offset}".encode()


class MemoryTransport(asyncio.Transport):
    """A client's end of a simulated connection."""

    def __init__(
        self,
        process: SimulatedProcess,
        protocol: asyncio.BufferedProtocol,
        on_request: Callable[[int], None],
    ) -> None:
        super().__init__()
        self._process = process
        self._protocol = protocol
        self._on_request = on_request
        self._written = bytearray()
        self.connection: SimulatedConnection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """What is written is gone at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - the interface names it
        return default

    def write(self, data: Any) -> None:
        assert self.connection is not None
        self._written += data
        while len(self._written) >= 4:
            end = 4 + int.from_bytes(self._written[:4], "big")
            if len(self._written) < end:
                return
            frame = bytes(self._written[4:end])
            del self._written[:end]
            self.connection.ask(frame)
            self._on_request(int.from_bytes(frame[:2], "big"))

    def abort(self) -> None:
        assert self.connection is not None
        self.connection.close()

    close = abort

    # --- as a client of the network --------------------------------------------------------------

    def answered(self, connection: SimulatedConnection, message: Any) -> None:  # noqa: ARG002 - the interface names it
        self._process.enter((self._feed, (message,)))

    def _feed(self, data: bytes) -> None:
        while data and self.connection is not None and self.connection.is_open:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)

    def disconnected(self, connection: SimulatedConnection) -> None:  # noqa: ARG002 - the interface names it
        reason = ConnectionResetError("the simulated network broke it")
        self._process.enter((self._protocol.connection_lost, (reason,)))


class _Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("data", "header")

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        self.data: bytes | None = None


class Desk:
    """A broker's end of one connection."""

    def __init__(self, world: ClientSimulation, node: SimulatedNode) -> None:
        self._world = world
        self._node = node
        self._slots: deque[_Slot] = deque()
        self._connection: SimulatedConnection | None = None

    def asked(self, connection: SimulatedConnection, message: Any) -> None:
        self._connection = connection
        header, body = decode_request_header(message)
        spec = API[header.api_key]
        request = spec.request.decode(body, header.api_version)
        slot = _Slot(header)
        self._slots.append(slot)
        self._world.note(header.client_id or "", spec.name)
        answer = self._world.front.answer(self, slot, request)
        if answer is not None:
            self.answer((slot, answer))
        elif not isinstance(request, FetchRequest):
            passed_on = (slot, header.api_version, header.client_id, request)
            self._world.cluster.asked(self._node, self, passed_on)  # type: ignore[arg-type]  # passed through as it is

    def answer(self, message: tuple[_Slot, Any]) -> None:
        slot, response = message
        header = slot.header
        if isinstance(response, OffsetFetchResponse):
            self._world.offsets_told(header.client_id or "", response)
        parts = encode_response(header.api_key, header.api_version, header.correlation_id, response)
        slot.data = b"".join(bytes(part) for part in parts)
        assert self._connection is not None
        while self._slots and self._slots[0].data is not None:
            self._connection.answer(self._slots.popleft().data)


class Front:
    """Answers what is not about the group's state."""

    def __init__(self, world: ClientSimulation) -> None:
        self._world = world
        self._topics = world.topics
        self._waiting: dict[_Slot, tuple[Desk, FetchRequest]] = {}
        self._dice = Random(world.scenario.seed)

    def answer(self, desk: Desk, slot: _Slot, request: Any) -> Any:
        """``None`` if the answer comes later, or from the coordinator."""
        match slot.header.api_key:
            case ApiKey.API_VERSIONS:
                return _versions()
            case ApiKey.METADATA:
                return self._metadata(request)
            case ApiKey.FIND_COORDINATOR:
                return self._find(request)
            case ApiKey.LIST_OFFSETS:
                return self._list_offsets(request)
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                return self._epoch_ends(request)
            case ApiKey.FETCH:
                return self._fetch(desk, slot, request)
        return None

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        counts = self._topics.counts
        names = (
            list(counts) if request.topics is None else [each.name or "" for each in request.topics]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=number, host=HOST, port=FIRST_PORT + number)
                for number in range(len(self._world.cluster.nodes))
            ],
            controller_id=0,
            topics=[
                MetadataResponse.Topic(
                    name=name,
                    error_code=0 if name in counts else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        MetadataResponse.Partition(
                            partition_index=number,
                            leader_id=number % 2,
                            leader_epoch=0,
                            replica_nodes=[number % 2],
                            isr_nodes=[number % 2],
                        )
                        for number in range(counts.get(name, 0))
                    ],
                )
                for name in names
            ],
        )

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        cluster = self._world.cluster
        node = cluster.find()
        number = -1 if node is None else cluster.nodes.index(node)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if node is None else ErrorCode.NONE
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=number, host=HOST, port=FIRST_PORT + number, error_code=code
                )
                for key in request.coordinator_keys
            ]
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def one(
            name: str, asked: ListOffsetsRequest.Partition
        ) -> ListOffsetsResponse.PartitionResponse:
            end = self._topics.ends.get(TopicPartition(name, asked.partition_index))
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if end is None else ErrorCode.NONE
            offset = end if asked.timestamp == -1 else 0
            return ListOffsetsResponse.PartitionResponse(
                partition_index=asked.partition_index,
                error_code=code,
                offset=-1 if end is None or offset is None else offset,
                leader_epoch=0,
            )

        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.TopicResponse(
                    name=topic.name, partitions=[one(topic.name, each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        OffsetForLeaderEpochResponse.EpochEndOffset(
                            partition=each.partition,
                            leader_epoch=0,
                            end_offset=self._topics.ends.get(
                                TopicPartition(topic.topic, each.partition), -1
                            ),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    # --- fetches, which may wait -----------------------------------------------------------------

    def _fetch(self, desk: Desk, slot: _Slot, request: FetchRequest) -> FetchResponse | None:
        response, has_news = self._read(request)
        if has_news or request.max_wait_ms <= 0:
            return response
        self._waiting[slot] = (desk, request)
        self._world.clock.after(request.max_wait_ms, self._give_up, slot)
        return None

    def _give_up(self, slot: _Slot) -> None:
        waiting = self._waiting.pop(slot, None)
        if waiting is not None:
            desk, request = waiting
            desk.answer((slot, self._read(request)[0]))

    def produced(self) -> None:
        """There are new records: who waits for them gets them."""
        for slot, (desk, request) in list(self._waiting.items()):
            response, has_news = self._read(request)
            if has_news:
                del self._waiting[slot]
                desk.answer((slot, response))

    def _read(self, request: FetchRequest) -> tuple[FetchResponse, bool]:
        """The answer, and whether there is anything in it."""
        topics = []
        has_news = False
        for topic in request.topics:
            read = [self._read_one(topic.topic, each) for each in topic.partitions]
            has_news |= any(each.records or each.error_code for each in read)
            topics.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=read))
        return FetchResponse(responses=topics), has_news

    def _read_one(self, topic: str, asked: FetchRequest.Partition) -> FetchResponse.PartitionData:
        tp = TopicPartition(topic, asked.partition)
        end = self._topics.ends.get(tp)
        start = asked.fetch_offset
        code, records = ErrorCode.NONE, b""
        if end is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not 0 <= start <= end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif start < end:
            offsets = range(start, min(end, start + _RECORDS_MAX))
            values = [(None, record_value(tp, offset), (), offset) for offset in offsets]
            records = encode_batch(values, base_offset=start, leader_epoch=0)
            if self._dice.random() < self._world.corruption:
                records = _damaged(records, self._dice)
        return FetchResponse.PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=end or 0,
            last_stable_offset=end or 0,
            log_start_offset=0,
            records=records,
        )


def _damaged(batch: bytes, dice: Random) -> bytes:
    """One bit of its records is wrong: on the way, not in the log, so the next read is right."""
    damaged = bytearray(batch)
    damaged[dice.randrange(HEADER_SIZE, len(batch))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def _versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=API[key].min_version, max_version=most
            )
            for key, most in _VERSIONS.items()
        ]
    )
