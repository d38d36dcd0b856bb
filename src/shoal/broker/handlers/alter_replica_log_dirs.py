"""AlterReplicaLogDirs: there is one directory; a move to it is a move to where things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.catalogue import NAME_MAX
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult
_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


def handle(
    broker: Broker, call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, dict[int, _Result]] = {}
    for directory in request.dirs:
        for wanted in directory.topics:
            topic = broker.catalogue.get(wanted.name)
            for index in wanted.partitions:
                if len(wanted.name) > NAME_MAX:
                    code = ErrorCode.INVALID_TOPIC_EXCEPTION
                elif directory.path != broker.partitions.root:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif topic is None or not 0 <= index < topic.partition_count:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    code = ErrorCode.NONE
                found = results.setdefault(wanted.name, {})
                found[index] = _Result(partition_index=index, error_code=code)
    return AlterReplicaLogDirsResponse(
        results=[
            _Topic(topic_name=name, partitions=list(found.values()))
            for name, found in results.items()
        ]
    )


def refuse(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, version: int
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            _Topic(
                topic_name=wanted.name,
                partitions=[
                    _Result(partition_index=index, error_code=code) for index in wanted.partitions
                ],
            )
            for directory in request.dirs
            for wanted in directory.topics
        ]
    )
