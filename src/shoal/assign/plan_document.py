"""Groups and changes described in a document: what a YAML or JSON file holds, as plain values.

    assignor: range                    # what the group uses now; optional
    topics:
      orders: 6                        # partitions; or
      payments: {partitions: 3, lag: [10, 0, 5], bytes_per_s: 2000, racks: [[a, b], [b], [a]]}
    members:
      - {id: c1, topics: [orders, payments], instance: i1, rack: a, owned: {orders: [0, 1]}}
    change:                            # one, or a list of them in order
      join: [{id: c2, topics: [orders]}]
      leave: [c1]
      partitions: {orders: 12}
      subscribe: {c1: [payments]}
      strategy: sticky                 # or any, to compare all
      restart: static                  # or dynamic

Rule: every complaint names the place, ``members[2].topics``, and says what should stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shoal.assign.plan import (
    Change,
    Join,
    Leave,
    Owned,
    PlannedGroup,
    PlannedMember,
    PlannedTopic,
    Resize,
    Restart,
    Resubscribe,
    Switch,
)
from shoal.errors import ShoalError
from shoal.types import TopicPartition

# More than any cluster has; keeps a slip of the finger from filling the memory.
PARTITIONS_MAX: Final = 10_000_000

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "two-topics": {
        "about": "Two consumers, two topics of three partitions: range gives 4 and 2.",
        "topics": {"t0": 3, "t1": 3},
        "members": [{"id": "c0", "topics": ["t0", "t1"]}, {"id": "c1", "topics": ["t0", "t1"]}],
    },
    "unequal": {
        "about": "Topics of 1, 2 and 3 partitions, each consumer wants one topic more; c0 leaves.",
        "topics": {"t0": 1, "t1": 2, "t2": 3},
        "members": [
            {"id": "c0", "topics": ["t0"]},
            {"id": "c1", "topics": ["t0", "t1"]},
            {"id": "c2", "topics": ["t0", "t1", "t2"]},
        ],
        "change": {"leave": ["c0"]},
    },
    "one-leaves": {
        "about": "Three consumers, four topics of two partitions, c1 leaves: who keeps what?",
        "topics": {"t0": 2, "t1": 2, "t2": 2, "t3": 2},
        "members": [{"id": f"c{n}", "topics": ["t0", "t1", "t2", "t3"]} for n in range(3)],
        "change": {"leave": ["c1"]},
    },
    "scale-up": {
        "about": "A fourth consumer joins three which share twelve partitions.",
        "topics": {"orders": 12},
        "members": [{"id": f"c{n}", "topics": ["orders"]} for n in range(3)],
        "change": {"join": [{"id": "c3", "topics": ["orders"]}]},
    },
    "hot-partitions": {
        "about": "Equal counts, unequal work: a few partitions carry most of the bytes.",
        "topics": {
            "clicks": {"partitions": 6, "bytes_per_s": [9000, 100, 100, 9000, 100, 100]},
            "orders": {"partitions": 4, "lag": [5000, 0, 0, 0], "bytes_per_s": 500},
        },
        "members": [{"id": f"c{n}", "topics": ["clicks", "orders"]} for n in range(2)],
        "change": {"join": [{"id": "c2", "topics": ["clicks", "orders"]}]},
    },
    "deploy": {
        "about": "A rolling restart of four dynamic consumers; try it with restart: static.",
        "topics": {"orders": 8, "payments": 8},
        "members": [{"id": f"c{n}", "topics": ["orders", "payments"]} for n in range(4)],
        "change": {"restart": "dynamic"},
    },
}


class DocumentError(ShoalError, ValueError):
    """A document does not describe a group; the text names the place."""

    def __init__(self, place: str, expected: str) -> None:
        self.place = place
        super().__init__(f"{place}: {expected}" if place else expected)


def read(document: object) -> tuple[PlannedGroup, list[Change]]:
    """The group and the changes a document describes.

    Raises:
        DocumentError: it does not.
    """
    top = _mapping(document, "", "{topics: {orders: 6}, members: [{id: c1, topics: [orders]}]}")
    _only(top, "", {"about", "assignor", "topics", "members", "change"})
    topics = {
        _name(name, "topics"): _topic(given, f"topics.{name}")
        for name, given in _mapping(top.get("topics"), "topics", "{orders: 6}").items()
    }
    members, owned = _members(top.get("members"), "members", topics)
    if not members:
        raise DocumentError("members", "at least one member is needed")
    assignor = top.get("assignor")
    if assignor is not None and not isinstance(assignor, str):
        raise DocumentError("assignor", "must be the name of an assignor")
    group = PlannedGroup(topics, members, assignor, owned)
    listed = top.get("change")
    changes: list[Change] = []
    for number, given in enumerate(listed if isinstance(listed, list) else [listed or {}]):
        place = f"change[{number}]" if isinstance(listed, list) else "change"
        changes += _changes(given, place, topics)
    return group, changes


def _topic(given: object, place: str) -> PlannedTopic:
    if isinstance(given, int) and not isinstance(given, bool):
        return PlannedTopic(_count(given, place))
    fields = _mapping(given, place, "{partitions: 6, lag: 100}, or a number")
    _only(fields, place, {"partitions", "lag", "bytes_per_s", "racks"})
    count = _count(fields.get("partitions"), f"{place}.partitions")
    racks = fields.get("racks", [])
    if not isinstance(racks, list) or not all(isinstance(one, list) for one in racks):
        raise DocumentError(f"{place}.racks", "must be a list of rack names for every partition")
    return PlannedTopic(
        count,
        lag=_numbers(fields.get("lag"), f"{place}.lag", count),
        bytes_per_s=_numbers(fields.get("bytes_per_s"), f"{place}.bytes_per_s", count),
        racks=[[None if rack is None else str(rack) for rack in one] for one in racks],
    )


def _numbers(given: object, place: str, count: int) -> Sequence[float]:
    """One number for every partition, or one for each."""
    if given is None:
        return ()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return [given] * count
    if not isinstance(given, list) or not all(isinstance(one, int | float) for one in given):
        raise DocumentError(place, "must be a number, or a list with one for every partition")
    if len(given) != count:
        raise DocumentError(place, f"has {len(given)} numbers for {count} partitions")
    return given


def _members(
    given: object, place: str, topics: Mapping[str, PlannedTopic]
) -> tuple[dict[str, PlannedMember], Owned]:
    if not isinstance(given, list):
        raise DocumentError(place, "must be a list of members")
    members: dict[str, PlannedMember] = {}
    owned: dict[str, Sequence[TopicPartition]] = {}
    owners: dict[TopicPartition, str] = {}
    for number, one in enumerate(given):
        here = f"{place}[{number}]"
        fields = _mapping(one, here, "{id: c1, topics: [orders]}")
        _only(fields, here, {"id", "topics", "instance", "rack", "owned"})
        member_id = _name(fields.get("id"), f"{here}.id")
        if member_id in members:
            raise DocumentError(f"{here}.id", f"{member_id!r} is there twice")
        members[member_id] = PlannedMember(
            _names(fields.get("topics"), f"{here}.topics", topics),
            _text(fields, "instance", here),
            _text(fields, "rack", here),
        )
        if "owned" in fields:
            owned[member_id] = _owned(fields["owned"], f"{here}.owned", topics)
        for tp in owned.get(member_id, ()):
            if owners.setdefault(tp, member_id) != member_id:
                raise DocumentError(f"{here}.owned", f"{tp} is owned by {owners[tp]!r} as well")
    return members, owned


def _owned(given: object, place: str, topics: Mapping[str, PlannedTopic]) -> list[TopicPartition]:
    partitions = []
    for topic, numbers in _mapping(given, place, "{orders: [0, 1]}").items():
        count = topics[topic].partitions if topic in topics else 0
        if not isinstance(numbers, list):
            raise DocumentError(f"{place}.{topic}", "must be a list of partition numbers")
        for number in numbers:
            if not isinstance(number, int) or not 0 <= number < count:
                raise DocumentError(f"{place}.{topic}", f"there is no partition {number}")
            partitions.append(TopicPartition(topic, number))
    return partitions


def _changes(given: object, place: str, topics: Mapping[str, PlannedTopic]) -> list[Change]:
    fields = _mapping(given, place, "{leave: [c2]}")
    _only(fields, place, {"join", "leave", "partitions", "subscribe", "strategy", "restart"})
    changes: list[Change] = []
    known = dict(topics)
    for kind, value in fields.items():
        here = f"{place}.{kind}"
        if kind == "partitions":
            sizes = {
                _name(topic, here): _count(count, f"{here}.{topic}")
                for topic, count in _mapping(value, here, "{orders: 12}").items()
            }
            known |= {topic: PlannedTopic(count) for topic, count in sizes.items()}
            changes.append(Resize(sizes))
        elif kind == "join":
            changes.append(Join(_members(value, here, known)[0]))
        elif kind == "leave":
            changes.append(Leave(_names(value, here)))
        elif kind == "subscribe":
            wanted = _mapping(value, here, "{c1: [orders]}")
            changes.append(
                Resubscribe({m: _names(t, f"{here}.{m}", known) for m, t in wanted.items()})
            )
        elif kind == "strategy":
            name = _name(value, here)
            changes.append(Switch(None if name == "any" else name))
        elif value in ("static", "dynamic"):
            changes.append(Restart(static=value == "static"))
        else:
            raise DocumentError(here, "must be static or dynamic")
    return changes


def _mapping(given: object, place: str, example: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        what = "must be a mapping" if place else "the document is not a mapping"
        raise DocumentError(place, f"{what}, such as {example}")
    return given


def _only(given: Mapping[str, Any], place: str, known: set[str]) -> None:
    for name in given:
        if name not in known:
            where = f"{place}.{name}" if place else str(name)
            raise DocumentError(where, f"is not known; there are {', '.join(sorted(known))}")


def _name(given: object, place: str) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise DocumentError(place, "must be a name")
    return str(given)


def _text(fields: Mapping[str, Any], name: str, place: str) -> str | None:
    return None if fields.get(name) is None else _name(fields[name], f"{place}.{name}")


def _names(
    given: object, place: str, topics: Mapping[str, PlannedTopic] | None = None
) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise DocumentError(place, "must be a list of names")
    names = tuple(_name(one, f"{place}[{number}]") for number, one in enumerate(given))
    for number, name in enumerate(names):
        if topics is not None and name not in topics:
            raise DocumentError(f"{place}[{number}]", f"there is no topic {name!r}")
    return names


def _count(given: object, place: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= PARTITIONS_MAX:
        raise DocumentError(place, f"must be a number of partitions, 0 to {PARTITIONS_MAX}")
    return given
