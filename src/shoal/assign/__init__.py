"""Which member of a group reads which partition. Pure: subscriptions in, assignment out."""

from __future__ import annotations

from shoal.assign.loading import common_protocol, load, validate
from shoal.assign.model import (
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
    Subscription,
)

__all__ = [
    "Assignment",
    "Assignor",
    "ClusterMetadata",
    "GroupAssignment",
    "GroupSubscription",
    "RebalanceProtocol",
    "Subscription",
    "common_protocol",
    "load",
    "validate",
]
