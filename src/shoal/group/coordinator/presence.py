"""Which connection a member was last heard on, and who is silent because theirs broke.

A process that dies takes its connections along, and the operating system says so at once; its
session may have most of a minute to go. With a grace (off unless it is set: what passes here must
not fail on Kafka) a member whose connection broke and that is not heard again in time is taken for
gone. Whatever it sends on another connection shows that it lives.

Rule: only who was heard, and where. What follows is decided by the group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final, TypeAlias

from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest

MemberKey: TypeAlias = tuple[str, str]
"""Group id and member id."""

_SIGNS_OF_LIFE: Final = (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)


def member_heard(request: Any) -> MemberKey | None:
    """Who a request shows to be alive."""
    if isinstance(request, _SIGNS_OF_LIFE):
        return (request.group_id, request.member_id)
    return None


class Presence:
    """Members by the connection of their last sign of life."""

    __slots__ = ("_by_connection", "_last")

    def __init__(self) -> None:
        self._last: dict[MemberKey, Hashable] = {}
        self._by_connection: dict[Hashable, set[MemberKey]] = {}

    def heard(self, member: MemberKey, connection: Hashable) -> None:
        before = self._last.get(member)
        if before == connection:
            return
        if before is not None:
            self._by_connection.get(before, set()).discard(member)
        self._last[member] = connection
        self._by_connection.setdefault(connection, set()).add(member)

    def closed(self, connection: Hashable) -> Iterator[MemberKey]:
        """Who was last heard on a connection that is gone now."""
        for member in self._by_connection.pop(connection, ()):
            del self._last[member]
            yield member
