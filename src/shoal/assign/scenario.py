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
    topics = _field(member, "topics", list)
    if not all(isinstance(topic, str) for topic in topics):
        raise ValueError("'topics' must be a list of strings")
    generation = _field(member, "generation", int, default=-1)
    return Subscription(
        topics=tuple(topics),
        user_data=_user_data(member),
        owned_partitions=_partitions(member, "owned"),
        group_instance_id=_field(member, "instance", str, default=None),
        generation_id=generation if generation >= 0 else None,
        rack_id=_field(member, "rack", str, default=None),
    )


def _user_data(member: Mapping[str, Any]) -> bytes | None:
    if "userData" in member:
        return bytes.fromhex(_field(member, "userData", str))
    if "sticky" in member:
        sticky = _field(member, "sticky", dict)
        return encode_sticky(_partitions(sticky, "owned"), _field(sticky, "generation", int))
    if "coopGen" in member:
        return encode_generation(_field(member, "coopGen", int))
    return None


def _partitions(holder: Mapping[str, Any], name: str) -> tuple[TopicPartition, ...]:
    partitions = []
    for pair in _field(holder, name, list, default=[]):
        match pair:
            case [str(topic), int(partition)] if -(1 << 31) <= partition < 1 << 31:
                partitions.append(TopicPartition(topic, partition))
            case _:
                raise ValueError(f"{name!r} must be a list of [topic, partition] pairs")
    return tuple(partitions)


_WORDS = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}
_NEEDED: Any = object()


def _field(holder: Mapping[str, Any], name: str, kind: type, default: Any = _NEEDED) -> Any:
    value = holder.get(name, default)
    if value is _NEEDED:
        raise ValueError(f"{name!r} is missing")
    if value is default or (value is None and default is None):
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name!r} must be {_WORDS[kind]}")
    return value
