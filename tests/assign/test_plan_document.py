"""Described groups: what a document may hold, and complaints that name the place."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.assign.plan import (
    Join,
    Leave,
    PlannedMember,
    PlannedTopic,
    Resize,
    Restart,
    Resubscribe,
    Switch,
)
from shoal.assign.plan_document import EXAMPLES, DocumentError, read
from shoal.types import TopicPartition

SMALL: dict[str, Any] = {"topics": {"t": 2}, "members": [{"id": "a", "topics": ["t"]}]}


def test_everything_a_document_may_say_is_read() -> None:
    group, changes = read(
        {
            "assignor": "range",
            "topics": {
                "orders": 6,
                "payments": {
                    "partitions": 2,
                    "lag": [10, 5],
                    "bytes_per_s": 2000,
                    "racks": [["a", None], ["b"]],
                },
            },
            "members": [
                {
                    "id": "c1",
                    "topics": ["orders", "payments"],
                    "instance": "i1",
                    "rack": "a",
                    "owned": {"orders": [0, 1]},
                }
            ],
            "change": [
                {"partitions": {"orders": 12, "new": 3}, "join": [{"id": 2, "topics": ["new"]}]},
                {"leave": ["c1"], "subscribe": {"c2": ["orders"]}},
                {"strategy": "sticky"},
                {"strategy": "any", "restart": "static"},
                {"restart": "dynamic"},
            ],
        }
    )
    assert group.assignor == "range"
    assert group.topics["orders"] == PlannedTopic(6)
    assert group.topics["payments"] == PlannedTopic(2, [10, 5], [2000, 2000], [["a", None], ["b"]])
    assert group.members == {"c1": PlannedMember(("orders", "payments"), "i1", "a")}
    assert group.owned == {"c1": [TopicPartition("orders", 0), TopicPartition("orders", 1)]}
    assert changes == [
        Resize({"orders": 12, "new": 3}),
        Join({"2": PlannedMember(("new",))}),
        Leave(("c1",)),
        Resubscribe({"c2": ("orders",)}),
        Switch("sticky"),
        Switch(None),
        Restart(static=True),
        Restart(static=False),
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"topic": {}},
            r"^topic: is not known; there are about, assignor, change, members, topics",
        ),
        ({"topics": 3}, r"^topics: must be a mapping"),
        ({"topics": {"t": -1}}, r"^topics\.t: must be a number of partitions"),
        ({"topics": {"t": 10**9}}, r"^topics\.t: must be a number of partitions, 0 to 10000000"),
        ({"topics": {"t": True}}, r"^topics\.t: must be a mapping"),
        ({"topics": {"t": {"partitions": "2"}}}, r"^topics\.t\.partitions: must be a number"),
        ({"topics": {"t": {"partitions": 2, "lag": [1]}}}, r"^topics\.t\.lag: has 1 numbers for 2"),
        ({"topics": {"t": {"partitions": 2, "lag": "x"}}}, r"^topics\.t\.lag: must be a number"),
        ({"topics": {"t": {"partitions": 2, "racks": "a"}}}, r"^topics\.t\.racks: must be a list"),
        ({"topics": {"t": {"size": 2}}}, r"^topics\.t\.size: is not known"),
        ({"members": {}}, r"^members: must be a list"),
        ({"members": []}, r"^members: at least one"),
        ({"members": [3]}, r"^members\[0\]: must be a mapping"),
        ({"members": [{"topics": []}]}, r"^members\[0\]\.id: must be a name"),
        ({"members": [{"id": "a", "topics": "t"}]}, r"^members\[0\]\.topics: must be a list"),
        ({"members": [{"id": "a", "topics": ["u"]}]}, r"^members\[0\]\.topics\[0\]: .*'u'"),
        ({"members": [*SMALL["members"], *SMALL["members"]]}, r"^members\[1\]\.id: 'a' is there"),
        ({"members": [{"id": "a", "topics": [], "rack": True}]}, r"^members\[0\]\.rack: must be"),
        (
            {"members": [{"id": "a", "topics": ["t"], "owned": {"t": [2]}}]},
            r"^members\[0\]\.owned\.t: there is no partition 2",
        ),
        (
            {"members": [{"id": "a", "topics": ["t"], "owned": {"t": 1}}]},
            r"^members\[0\]\.owned\.t: must be a list",
        ),
        (
            {
                "members": [
                    {"id": "a", "topics": ["t"], "owned": {"t": [0]}},
                    {"id": "b", "topics": ["t"], "owned": {"t": [0]}},
                ]
            },
            r"^members\[1\]\.owned: t-0 is owned by 'a' as well",
        ),
        ({"assignor": 3}, r"^assignor: must be the name"),
        ({"change": "leave"}, r"^change: must be a mapping"),
        ({"change": {"go": 1}}, r"^change\.go: is not known"),
        ({"change": [{}, {"leave": "a"}]}, r"^change\[1\]\.leave: must be a list"),
        ({"change": {"leave": [None]}}, r"^change\.leave\[0\]: must be a name"),
        ({"change": {"join": [{"id": "b", "topics": ["u"]}]}}, r"^change\.join\[0\]\.topics\[0\]"),
        ({"change": {"partitions": {"t": "x"}}}, r"^change\.partitions\.t: must be a number"),
        ({"change": {"subscribe": {"a": ["u"]}}}, r"^change\.subscribe\.a\[0\]: there is no topic"),
        ({"change": {"restart": "often"}}, r"^change\.restart: must be static or dynamic"),
    ],
)
def test_a_complaint_names_the_place(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        read({**SMALL, **change})


@pytest.mark.parametrize("document", [None, [], "text"])
def test_something_else_is_no_document(document: object) -> None:
    with pytest.raises(DocumentError, match="the document is not a mapping"):
        read(document)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_can_be_read(name: str) -> None:
    group, _ = read(EXAMPLES[name])
    assert group.members
