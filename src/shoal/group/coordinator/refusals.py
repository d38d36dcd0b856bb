"""Answers that say no: to a request that was not looked at, and in place of a reply whose record
was not written.

Where the error stands differs by API: on top, per group, per partition. That is all there is to
know here; *when* to refuse is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.errors import ErrorCode
from shoal.machine.decision import Response
from shoal.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from shoal.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from shoal.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def response_error(append_error: ErrorCode) -> ErrorCode:
    """What a client is told when the journal could not be written."""
    return _APPEND_ERRORS.get(append_error, append_error)


# --- Without a look at the request -------------------------------------------------------------


def refusal(request: Any, error: ErrorCode, version: int) -> Response:
    """The answer to a request that this coordinator cannot serve now."""
    return _TO_REQUEST[type(request)](request, error, version)


def _join(request: JoinGroupRequest, error: ErrorCode, _: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=request.member_id)


def _heartbeat(_request: HeartbeatRequest, error: ErrorCode, _: int) -> HeartbeatResponse:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The member may well be one of those being loaded. It must not lose heart.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error)


def _commit(request: OffsetCommitRequest, error: ErrorCode, _: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Partition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_commit(
    request: TxnOffsetCommitRequest, error: ErrorCode, _: int
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.Topic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.Partition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(request: OffsetFetchRequest, error: ErrorCode, version: int) -> OffsetFetchResponse:
    if version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponse.Group(group_id=each.group_id, error_code=error)
                for each in request.groups
            ]
        )
    if version >= 2:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Partition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=error
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _describe(request: DescribeGroupsRequest, error: ErrorCode, _: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(group_id=each, error_code=error)
            for each in request.groups
        ]
    )


def _describe_consumer(
    request: ConsumerGroupDescribeRequest, error: ErrorCode, _: int
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(group_id=each, error_code=error)
            for each in request.group_ids
        ]
    )


def _delete(request: DeleteGroupsRequest, error: ErrorCode, _: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=each, error_code=error)
            for each in request.groups_names
        ]
    )


_TO_REQUEST: Final[dict[type, Callable[[Any, ErrorCode, int], Response]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda _request, error, _: SyncGroupResponse(error_code=error),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: lambda _request, error, _: LeaveGroupResponse(error_code=error),
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _txn_commit,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: lambda _request, error, _: OffsetDeleteResponse(error_code=error),
    ListGroupsRequest: lambda _request, error, _: ListGroupsResponse(error_code=error),
    DescribeGroupsRequest: _describe,
    ConsumerGroupDescribeRequest: _describe_consumer,
    ConsumerGroupHeartbeatRequest: lambda _request, error, _: ConsumerGroupHeartbeatResponse(
        error_code=error
    ),
    DeleteGroupsRequest: _delete,
}


# --- In place of a reply -----------------------------------------------------------------------


def refuse(response: Response, error: ErrorCode) -> Response:
    """The reply in place of one that must not leave, because its record is not durable.

    A reply that says no already stays as it is: it promises nothing.
    """
    if isinstance(response, ErrorCode):
        return error  # to whoever had the end of a transaction written
    if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
        _refuse_partitions(response, error)
    elif isinstance(response, OffsetFetchResponse):
        return _refused_fetch(response, error)
    elif isinstance(response, DescribeGroupsResponse):
        return DescribeGroupsResponse(
            groups=[
                DescribeGroupsResponse.DescribedGroup(group_id=each.group_id, error_code=error)
                for each in response.groups
            ]
        )
    elif isinstance(response, ConsumerGroupDescribeResponse):
        return ConsumerGroupDescribeResponse(
            groups=[
                ConsumerGroupDescribeResponse.DescribedGroup(
                    group_id=each.group_id, error_code=error
                )
                for each in response.groups
            ]
        )
    elif isinstance(response, DeleteGroupsResponse):
        for result in response.results:
            result.error_code = result.error_code or error
    elif response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return type(response)(error_code=error)
    return response


def _refuse_partitions(
    response: OffsetCommitResponse | TxnOffsetCommitResponse, error: ErrorCode
) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            each.error_code = each.error_code or error


def _refused_fetch(response: OffsetFetchResponse, error: ErrorCode) -> OffsetFetchResponse:
    for topic in response.topics:
        for each in topic.partitions:
            # Version 1 has no other place for an error.
            each.committed_offset, each.metadata, each.error_code = -1, "", error
    return OffsetFetchResponse(
        error_code=error,
        topics=response.topics,
        groups=[
            OffsetFetchResponse.Group(group_id=each.group_id, error_code=error)
            for each in response.groups
        ],
    )
