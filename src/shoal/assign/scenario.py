"""Assignment scenarios as JSON: the same lines that were made with Apache Kafka's own classes.

    in    {"assignor": name,
           "topics": {name: count, or a list of replica racks per partition},
           "members": [{"id", "topics", "instance"?, "rack"?, "owned"?, "generation"?,
                        "sticky"?: {"owned", "generation"}, "coopGen"?, "userData"?: hex}]}
    out   {"assignment": {member: [[topic, partition], ...]}}   or   {"error": text}

Members stand in the order of the JoinGroup response. ``sticky``, ``coopGen`` or ``userData`` become
the user data, ``owned`` and ``generation`` (-1: absent) stand in the subscription itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.assign.loading import load
from shoal.assign.model import Assignor, ClusterMetadata, Subscription
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_generation, encode_sticky
from shoal.errors import UpstreamFailureError
from shoal.types import TopicPartition


def answer(scenario: Mapping[str, Any], *, strict_upstream: bool = False) -> dict[str, Any]:
    """The ``out`` for one ``in``.

    Raises:
        ValueError: the scenario is not of the form above; the text names the field.
    """
    assignor = assignor_called(_field(scenario, "assignor", str), strict_upstream=strict_upstream)
    metadata = metadata_of(_field(scenario, "topics", dict))
    members = _field(scenario, "members", list)
    subscriptions = {}
    for number, member in enumerate(members):
        if not isinstance(member, dict):
            raise ValueError(f"members[{number}] must be an object")
        try:
            subscriptions[_field(member, "id", str)] = subscription_of(member)
        except ValueError as error:
            raise ValueError(f"members[{number}]: {error}") from error
    try:
        result = assignor.assign(metadata, subscriptions)
    except UpstreamFailureError as failure:
        return {"error": failure.java}
    return {
        "assignment": {
            member_id: [list(tp) for tp in assignment.partitions]
            for member_id, assignment in result.items()
        }
    }


def assignor_called(name: str, *, strict_upstream: bool) -> Assignor:
    """A new assignor; only the sticky ones know ``strict_upstream``, the others have no defects."""
    if name == StickyAssignor.name:
        return StickyAssignor(strict_upstream=strict_upstream)
    if name == CooperativeStickyAssignor.name:
        return CooperativeStickyAssignor(strict_upstream=strict_upstream)
    return load([name])[0]


def metadata_of(topics: Mapping[str, Any]) -> ClusterMetadata:
    """Counts, and racks where they are given."""
    counts: dict[str, int] = {}
    racks: dict[str, Sequence[Sequence[str | None]]] = {}
    for topic, given in topics.items():
        if isinstance(given, int) and not isinstance(given, bool):
            counts[topic] = given
        elif isinstance(given, list) and all(isinstance(one, list) for one in given):
            counts[topic] = len(given)
            racks[topic] = given
        else:
            raise ValueError(f"topics[{topic!r}] must be a count or a list of rack lists")
    return ClusterMetadata(counts, racks)


def subscription_of(member: Mapping[str, Any]) -> Subscription:
    """A member's subscription, user data encoded as the member itself would have."""
    user_data = None
    sticky = member.get("sticky")
    if member.get("userData") is not None:
        user_data = bytes.fromhex(_field(member, "userData", str))
    elif sticky is not None:
        user_data = encode_sticky(_partitions(sticky, "owned"), _field(sticky, "generation", int))
    elif member.get("coopGen") is not None:
        user_data = encode_generation(_field(member, "coopGen", int))
    generation = member.get("generation", -1)
    return Subscription(
        topics=tuple(_field(member, "topics", list)),
        user_data=user_data,
        owned_partitions=_partitions(member, "owned"),
        group_instance_id=member.get("instance"),
        generation_id=generation if generation is not None and generation >= 0 else None,
        rack_id=member.get("rack"),
    )


def _partitions(holder: Mapping[str, Any], name: str) -> tuple[TopicPartition, ...]:
    try:
        return tuple([TopicPartition(str(t), int(p)) for t, p in holder.get(name) or ()])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of [topic, partition] pairs") from error


def _field(holder: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(holder.get(name), kind):
        raise ValueError(f"{name!r} is missing or no {kind.__name__}")
    return holder[name]
