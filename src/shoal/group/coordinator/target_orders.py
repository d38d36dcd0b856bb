"""Targets that somebody else computes: ordered for one epoch, and taken if that still holds.

A user's assignor may take long, fail or never end, so it runs elsewhere and the coordinator goes
on meanwhile. It says what is to be assigned (``TargetOrder``) and later hears of a target or of a
fault (``Coordinator.target_answered``); members keep to the last target until then.

Rule: one order per group at a time, and whatever is answered to another one means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shoal.assign.server import ServerMember, Target, TopicId
from shoal.group.coordinator.cluster_image import ImageTopic
from shoal.machine.decision import Ticket


class OrderedMember(NamedTuple):
    """What an assignor may want to know of a member."""

    member: ServerMember
    client_id: str
    rack_id: str | None
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetOrder:
    """Compute the target of a group for one of its epochs."""

    group_id: str
    epoch: int
    assignor: str
    members: Mapping[str, OrderedMember]
    topics: Mapping[TopicId, ImageTopic]


class TargetFault(NamedTuple):
    """Why there is no target."""

    reason: str


TargetAnswer = dict[str, Target] | TargetFault


class Failures(NamedTuple):
    """How often orders for the same epoch failed in a row."""

    epoch: int = -1
    times: int = 0


class TargetOrders:
    """The orders that are under way. Volatile: a coordinator that starts again orders again."""

    __slots__ = ("_pending", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        """Who carries orders out."""
        self._pending: dict[str, TargetOrder] = {}

    def is_pending(self, group_id: str) -> bool:
        return group_id in self._pending

    def note(self, order: TargetOrder) -> None:
        self._pending[order.group_id] = order

    def end(self, order: TargetOrder) -> bool:
        """It is answered, or will never be; whether somebody still waited for it."""
        is_ours = self._pending.get(order.group_id) is order
        if is_ours:
            del self._pending[order.group_id]
        return is_ours
