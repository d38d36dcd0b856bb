"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.errors import ErrorCode
from shoal.group.decision import Draft, EventKind, GroupEvent
from shoal.group.model import Group
from shoal.group.offset_requests import tombstones
from shoal.group.offsets import OffsetStore
from shoal.group.states import GroupState
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from shoal.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse

NOT_FOUND_SINCE = 6
"""Of DescribeGroups. Before, a group nobody knows is Dead, and that is no error (KIP-1043)."""


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
        groups=[
            group.described() if (group := groups.get(group_id)) else _unknown(group_id, version)
            for group_id in request.groups
        ]
    )


def _unknown(group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
    response = DescribeGroupsResponse.DescribedGroup(
        group_id=group_id, group_state=GroupState.DEAD.value
    )
    if version >= NOT_FOUND_SINCE:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        response.error_message = f"Group {group_id} not found."
    return response


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
