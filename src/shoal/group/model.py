"""What every kind of group answers, whatever protocol its members speak.

Rule: shared code (``coordinator.py``, ``offsets.py``, ``offset_requests.py``, ``admin.py``) sees a
group through this protocol only. The rules of classic groups are in the ``classic*`` modules; a
KIP-848 group can stand beside them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from shoal.errors import ErrorCode
from shoal.group.decision import Draft
from shoal.group.journal import GroupTombstone
from shoal.group.states import GroupType
from shoal.wire.apis.describe_groups import DescribeGroupsResponse


class Group(Protocol):
    """One group of one coordinator."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """Kafka's spelling."""

    @property
    def protocol_type(self) -> str | None:
        """``None``: the group only stores offsets, it never had members."""

    @property
    def is_removable(self) -> bool:
        """No members, and none on their way: the group may go when its offsets are gone."""

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode:
        """Why this member may not commit now; ``NONE`` if it may."""

    def keep_alive(self, draft: Draft, member_id: str) -> None:
        """A commit shows that the member lives."""

    def delete_error(self) -> ErrorCode:
        """Why the group may not be deleted."""

    def offset_delete_error(self) -> ErrorCode:
        """Why no offset at all may be deleted."""

    def is_subscribed(self, topic: str) -> bool:
        """Offsets of subscribed topics are neither deleted nor expired."""

    def retention_start(self, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset began to run; ``None`` while it may not expire."""

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        """As DescribeGroups shows it."""

    def tombstones(self) -> tuple[GroupTombstone, ...]:
        """The records that remove the group itself."""

    def durable(self) -> Hashable:
        """What a coordinator rebuilt from the journal must know too."""
