"""Two answers as trees of plain values, and the list of what is different between them.

Elements of an array are matched by what names them (a name, an index), so that one missing
topic is one difference and not a shift of all that follow; the order is compared on its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal.wire.fields import fields_of
from shoal.wire.schema import Struct

ABSENT = "(not there)"

# Fields that name an element of an array, wherever they stand.
_NAMES = (
    "api_key",
    "broker_id",
    "entity_name",
    "entity_type",
    "feature",
    "group_id",
    "group_instance_id",
    "index",
    "key",
    "log_dir",
    "mechanism",
    "member_id",
    "name",
    "node_id",
    "operation",
    "partition",
    "partition_id",
    "partition_index",
    "permission_type",
    "principal",
    "producer_id",
    "replica_id",
    "resource_name",
    "resource_type",
    "topic",
    "topic_id",
    "topic_name",
    "user",
)

Plain = Callable[[str, Any], Any]
"""From a field's name and value to what is compared; see ``Place.plain``."""


class Difference(NamedTuple):
    """One thing that Apache Kafka says and we do not, or the other way round."""

    path: str
    theirs: Any
    ours: Any

    @property
    def shape(self) -> str:
        """The path without the names of elements: ``topics[].partitions[].error_code``."""
        return re.sub(r"\[[^\]]*\]", "[]", self.path)

    def __str__(self) -> str:
        return f"{self.path}: Kafka {_short(self.theirs)}, Shoal {_short(self.ours)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


def tree(value: Any, version: int, plain: Plain, name: str = "") -> Any:
    """A message as nested dicts and lists, the fields of one version only."""
    if isinstance(value, Struct):
        return {
            field.name: tree(getattr(value, field.name), version, plain, field.name)
            for field in fields_of(type(value))
            if field.exists_in(version)
        }
    if isinstance(value, list | tuple):
        return [tree(item, version, plain, name) for item in value]
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    return plain(name, value)


def differences(theirs: Any, ours: Any, path: str = "") -> list[Difference]:
    """What is different, field by field."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if theirs.get("outcome") != ours.get("outcome"):
            # One that does not answer has no fields to compare.
            return [Difference(f"{path}outcome", theirs.get("outcome"), ours.get("outcome"))]
        found = []
        for name in {**theirs, **ours}:
            inner = f"{path}.{name}" if path else name
            found += differences(theirs.get(name, ABSENT), ours.get(name, ABSENT), inner)
        return found
    if isinstance(theirs, list) and isinstance(ours, list):
        return _list_differences(theirs, ours, path)
    if type(theirs) is not type(ours) or theirs != ours:
        # NaN is not equal to itself; here it is the same answer.
        return [] if repr(theirs) == repr(ours) else [Difference(path, theirs, ours)]
    return []


def _list_differences(theirs: list[Any], ours: list[Any], path: str) -> list[Difference]:
    their_names = [_name(item) for item in theirs]
    our_names = [_name(item) for item in ours]
    if None in (*their_names, *our_names) or (
        len(set(their_names)) < len(theirs) or len(set(our_names)) < len(ours)
    ):
        return _by_position(theirs, ours, path)
    by_name = dict(zip(our_names, ours, strict=True))
    found = []
    for name, item in zip(their_names, theirs, strict=True):
        found += differences(item, by_name.pop(name, ABSENT), f"{path}[{name}]")
    found += [Difference(f"{path}[{name}]", ABSENT, item) for name, item in by_name.items()]
    both = set(their_names) & set(our_names)
    their_order = [name for name in their_names if name in both]
    our_order = [name for name in our_names if name in both]
    if their_order != our_order:
        found.append(Difference(f"{path}(order)", their_order, our_order))
    return found


def _by_position(theirs: list[Any], ours: list[Any], path: str) -> list[Difference]:
    found = []
    for number in range(max(len(theirs), len(ours))):
        left = theirs[number] if number < len(theirs) else ABSENT
        right = ours[number] if number < len(ours) else ABSENT
        found += differences(left, right, f"{path}[#{number}]")
    return found


def _name(item: Any) -> str | None:
    """What the element is called; None when it has no name of its own."""
    if not isinstance(item, dict):
        return str(item)
    if isinstance(item.get("entity"), list):
        # A quota is named by whom it is for.
        return "+".join(map(str, map(_name, item["entity"])))
    named = [str(item[name]) for name in _NAMES if name in item and item[name] is not None]
    return "/".join(named) if named else None
