"""A valid group on which Apache Kafka's sticky assignors never return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.assign import ClusterMetadata
from shoal.assign.scenario import answer
from shoal.types import TopicPartition
from tests.assign.groups import assert_balanced, assert_valid
from tests.assign.oracle import Oracle, arrays_from
from tests.peers.cache import need

GROUP: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "assignors-endless.json").read_text()
)

both = pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])


@both
@pytest.mark.parametrize("from_partitions", [1, 1 << 62], ids=["arrays", "lists"])
def test_we_come_to_an_end_with_a_balanced_assignment(assignor: str, from_partitions: int) -> None:
    with arrays_from(from_partitions):
        given = answer({**GROUP, "assignor": assignor})["assignment"]
    owned = {name: [TopicPartition(*pair) for pair in pairs] for name, pairs in given.items()}
    wanted = {member["id"]: member["topics"] for member in GROUP["members"]}
    assert_valid(ClusterMetadata(GROUP["topics"]), wanted, owned)
    assert_balanced(wanted, owned)


@both
@pytest.mark.parametrize("from_partitions", [1, 1 << 62], ids=["arrays", "lists"])
def test_strict_upstream_says_so_instead_of_running_for_ever(
    assignor: str, from_partitions: int
) -> None:
    with arrays_from(from_partitions):
        answered = answer({**GROUP, "assignor": assignor}, strict_upstream=True)
    assert answered == {"error": "no end: the same partitions move again and again"}


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_itself_does_not_return() -> None:
    with need(Oracle) as oracle:
        # A group of this size takes it milliseconds.
        assert oracle.ask({**GROUP, "assignor": "roundrobin"})["assignment"]
        assert not oracle.answers_within(GROUP, seconds=3)
