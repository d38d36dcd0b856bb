"""DescribeLogDirs: the one data directory, its partitions' sizes, and the room left."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.broker.memory import TOO_MUCH
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Topic = DescribeLogDirsResponse.Topic
_Partition = DescribeLogDirsResponse.Partition


def handle(
    broker: Broker, call: Call, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    if request.topics is None:
        wanted: dict[str, dict[int, None]] = {
            topic.name: dict.fromkeys(range(topic.partition_count)) for topic in broker.catalogue
        }
    else:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    topics = []
    for name, indexes in wanted.items():
        topic = broker.catalogue.get(name)
        if topic is None:
            continue
        partitions = []
        for index in indexes:
            found = broker.partitions.find(topic, index)
            if not call.spend(1):
                return refuse(request, TOO_MUCH, call.api_version)
            if not isinstance(found, ErrorCode):
                size = found.log.size_bytes if found is not None else 0
                partitions.append(_Partition(partition_index=index, partition_size=size))
            yield
        if partitions:
            topics.append(_Topic(name=name, partitions=partitions))
    total, usable = broker.partitions.disk_space()
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponse.Result(
                log_dir=broker.partitions.root,
                topics=topics,
                total_bytes=total,
                usable_bytes=usable,
            )
        ]
    )


def refuse(
    request: DescribeLogDirsRequest, code: ErrorCode, version: int
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code)
