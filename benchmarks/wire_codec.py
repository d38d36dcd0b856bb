"""Encoding and decoding messages: ours against kafka-python's generated codec and kio's.

Goals: encode at least 3x faster than kafka-python, decode not slower. kio decodes in Rust and
encodes in Python; it is shown because it is the other complete codec, not as a goal.

    python -m benchmarks wire_codec
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measuring import Report, Row, json_argument, medians
from shoal.wire.apis.fetch import FetchRequest, FetchResponse
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.schema import Message

# One round of a contestant should take about this long, whatever the message.
ROUND_SECONDS = 0.02
ROUNDS = 15

MEMBER_ID = "consumer-orders-1-38fc8f7e-9b0f-4a5c-a1a6-8d2d4f3e9d51"


def join_group_response() -> JoinGroupResponse:
    metadata = bytes(200)
    return JoinGroupResponse(
        generation_id=7,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=MEMBER_ID,
        member_id=MEMBER_ID,
        members=[
            JoinGroupResponse.Member(member_id=f"{MEMBER_ID}{n}", metadata=metadata)
            for n in range(100)
        ],
    )


def join_group_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="orders",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=MEMBER_ID,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.Protocol(name=name, metadata=bytes(200))
            for name in ("cooperative-sticky", "range")
        ],
    )


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=n, host=f"broker-{n}.example", port=9092)
            for n in range(3)
        ],
        cluster_id="lkc-abcdef",
        controller_id=1,
        topics=[
            MetadataResponse.Topic(
                name=f"topic-{topic}",
                topic_id=topic.to_bytes(16, "big"),
                partitions=[
                    MetadataResponse.Partition(
                        partition_index=index,
                        leader_id=index % 3,
                        leader_epoch=5,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def fetch_response(partitions: int, size_bytes: int) -> FetchResponse:
    records = bytes(size_bytes)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic="orders",
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=index,
                        high_watermark=1_000_000,
                        last_stable_offset=1_000_000,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=records,
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetch_request(partitions: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchRequest.Topic(
                topic="orders",
                partitions=[
                    FetchRequest.Partition(
                        partition=index, fetch_offset=12_345, partition_max_bytes=1_048_576
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def produce_request() -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=3, records=bytes(16_384))
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def offset_commit_request() -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="orders",
        generation_id_or_member_epoch=7,
        member_id=MEMBER_ID,
        topics=[
            OffsetCommitRequest.Topic(
                name=f"topic-{topic}",
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=index, committed_offset=123, committed_metadata=""
                    )
                    for index in range(10)
                ],
            )
            for topic in range(10)
        ],
    )


CASES: list[tuple[str, Message, int]] = [
    ("JoinGroupResponse, 100 members", join_group_response(), 9),
    ("FetchResponse, 10 x 100 KB", fetch_response(10, 100_000), 12),
    ("FetchResponse, 100 x 1 KB", fetch_response(100, 1_000), 12),
    ("MetadataResponse, 100 topics x 10 partitions", metadata_response(100, 10), 12),
    ("MetadataResponse, 1 topic x 1,000 partitions", metadata_response(1, 1_000), 12),
    ("FetchRequest, 100 partitions", fetch_request(100), 12),
    ("OffsetCommitRequest, 10 x 10 partitions", offset_commit_request(), 8),
    ("ProduceRequest, 16 KB", produce_request(), 9),
    ("JoinGroupRequest, 2 protocols", join_group_request(), 9),
    (
        "HeartbeatRequest",
        HeartbeatRequest(group_id="orders", generation_id=7, member_id=MEMBER_ID),
        4,
    ),
    ("HeartbeatResponse", HeartbeatResponse(), 4),
]


def peer_codecs(message: Message, version: int, data: bytes) -> dict[str, tuple[Any, Any]]:
    """Name → (encode, decode) of the same message in the other libraries."""
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer
    from tests.wire.oracles import is_request, kafka_python_class, kafka_python_message

    kind = type(message)
    theirs = kafka_python_class(kind, version)
    assert theirs is not None
    assert kind.API_KEY is not None
    built = kafka_python_message(message, theirs, version)
    load = load_request_schema if is_request(kind) else load_response_schema
    kio_type = load(kind.API_KEY, version)
    read, write = entity_reader(kio_type), entity_writer(kio_type)
    entity = read(data, 0)[0]

    def kio_encode() -> bytes:
        with io.BytesIO() as out:
            write(out, entity)
            return out.getvalue()

    assert built.encode(version=version) == kio_encode() == data
    return {
        "kafka-python": (
            lambda: built.encode(version=version),
            lambda: theirs.decode(data, version=version),
        ),
        "kio": (kio_encode, lambda: read(data, 0)),
    }


def repeated(run: Callable[[], object], count: int) -> Callable[[], None]:
    def rounds() -> None:
        for _ in range(count):
            run()

    return rounds


def microseconds(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median time of one call of each, in turns."""
    once = medians(contestants, rounds=3)
    counts = {name: max(1, int(ROUND_SECONDS / max(t, 1e-7))) for name, t in once.items()}
    looped = {name: repeated(run, counts[name]) for name, run in contestants.items()}
    taken = medians(looped, rounds=ROUNDS)
    return {name: seconds / counts[name] * 1e6 for name, seconds in taken.items()}


def measure(report: Report, what: str, message: Message, version: int) -> None:
    kind = type(message)
    data = message.encode(version)
    peers = peer_codecs(message, version, data)
    encode = {"ours": lambda: message.encode(version)} | {n: p[0] for n, p in peers.items()}
    if len(message.encode_parts(version)) > 1:
        encode["ours, parts"] = lambda: message.encode_parts(version)
    decode = {"ours": lambda: kind.decode(data, version)} | {n: p[1] for n, p in peers.items()}
    for verb, contestants, goal in (("encode", encode, ">= 3x"), ("decode", decode, ">= 1x")):
        taken = microseconds(contestants)
        parts = taken.pop("ours, parts", None)
        for peer in peers:
            against = goal if peer == "kafka-python" else ""
            row = Row(f"{verb} {what}", "us", taken["ours"], taken[peer], peer, against, False)
            report.add(row)
        if parts is not None:
            name = f"{verb} in parts {what}"
            report.add(Row(name, "us", parts, taken["kafka-python"], "kafka-python", goal, False))


def main(arguments: Sequence[str] = ()) -> None:
    logging.disable(logging.CRITICAL)
    report = Report("wire_codec", packages=("kafka-python", "kio"))
    for what, message, version in CASES:
        measure(report, f"{what} (v{version})", message, version)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
