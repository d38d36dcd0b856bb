"""ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.errors import ErrorCode
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.offset_requests import tombstones
from shoal.group.coordinator.offset_store import OffsetStore
from shoal.group.coordinator.states import GroupState
from shoal.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from shoal.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse

NOT_FOUND_SINCE = 6
"""Of DescribeGroups. Before, a group nobody knows is Dead, and that is not an error (KIP-1043)."""


def list_groups(groups: Iterable[Group], request: ListGroupsRequest) -> ListGroupsResponse:
    """Filters are compared without case, as in Kafka; an empty one lets everything through."""
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in groups
            if (not states or group.state_name.lower() in states)
            and (not types or group.type.value in types)
        ]
    )


def describe_groups(
    groups: Mapping[str, Group], request: DescribeGroupsRequest, version: int
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[_described(groups.get(group_id), group_id, version) for group_id in request.groups]
    )


def _described(
    group: Group | None, group_id: str, version: int
) -> DescribeGroupsResponse.DescribedGroup:
    shown = group.described() if group is not None else None
    if shown is not None:
        return shown
    response = DescribeGroupsResponse.DescribedGroup(
        group_id=group_id, group_state=GroupState.DEAD.value
    )
    if version >= NOT_FOUND_SINCE:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        why = "not found" if group is None else "is not a classic group"
        response.error_message = f"Group {group_id} {why}."
    return response


def describe_consumer_groups(
    draft: Draft, groups: Mapping[str, Group], request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    assignors = [each.name for each in draft.config.consumer.assignors]

    def described(group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        group = groups.get(group_id)
        shown = group.described_with_epochs(draft.image, assignors) if group is not None else None
        if shown is not None:
            return shown
        why = "not found" if group is None else "is not a consumer group"
        return ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {why}.",
        )

    return ConsumerGroupDescribeResponse(groups=[described(each) for each in request.group_ids])


def delete_groups(
    draft: Draft, store: OffsetStore, groups: Mapping[str, Group], request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """A group goes with all its offsets, also those an open transaction has staged."""
    results = []
    # A name given twice is deleted once.
    for group_id in dict.fromkeys(request.groups_names):
        group = groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()
        if group is not None and error is ErrorCode.NONE:
            draft.write_all(tombstones(store, group_id))
            draft.write_all(group.tombstones())
            draft.tell(GroupEvent(EventKind.GROUP_REMOVED, group_id, -1, "an administrator"))
        results.append(
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
        )
    return DeleteGroupsResponse(results=results)
