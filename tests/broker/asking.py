"""Requests that many tests of the broker send, with everything in them that need not be said."""

from __future__ import annotations

from shoal.errors import ErrorCode
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.schema import ZERO_UUID
from tests.broker.raw_client import RawClient


def topic_id(client: RawClient, name: str) -> bytes:
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)])).topics
    return bytes(found.topic_id)


def produce(
    client: RawClient, name: str, records: bytes | None, *, acks: int = -1, version: int = 9
):
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="" if version >= 13 else name,
                topic_id=topic_id(client, name) if version >= 13 else ZERO_UUID,
                partition_data=[data],
            )
        ],
    )
    if acks == 0:
        client.send(request, version)
        return None
    return client.ask(request, version).responses[0].partition_responses[0]


def fetch_request(name: str, offset: int, **fields) -> FetchRequest:
    partition = FetchRequest.Partition(
        partition=fields.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
    )
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        topics=[FetchRequest.Topic(topic=name, partitions=[partition])],
        **fields,
    )


def fetch(client: RawClient, name: str, offset: int, version: int = 12, **fields):
    response = client.ask(fetch_request(name, offset, **fields), version)
    return response.responses[0].partitions[0]


def list_offset(
    client: RawClient, name: str, timestamp: int, version: int = 7, *, leader_epoch: int = -1
):
    wanted = ListOffsetsRequest.Partition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=leader_epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=name, partitions=[wanted])]
    )
    return client.ask(request, version).topics[0].partitions[0]


def create(raw: RawClient, name: str, partitions: int = 1, factor: int = 1, **fields):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=fields.pop("assignments", []),
        configs=[],
    )
    answer = raw.ask(CreateTopicsRequest(topics=[topic], **fields)).topics[0]
    return ErrorCode.of(answer.error_code), answer


def commit(raw: RawClient, group: str, name: str, partition: int, offset: int, version: int = 8):
    wanted = OffsetCommitRequest.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata="note\0"
    )
    topic = OffsetCommitRequest.Topic(name=name, partitions=[wanted])
    if version >= 10:
        topic = OffsetCommitRequest.Topic(topic_id=topic_id(raw, name), partitions=[wanted])
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    return raw.ask(request, version).topics[0].partitions[0].error_code
