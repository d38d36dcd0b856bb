"""Every recorded answer of Apache Kafka's own classes, list order included."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.assign.scenario import answer

with gzip.open(Path(__file__).parent.parent / "golden" / "assignors.jsonl.gz", "rt") as golden:
    LINES = [json.loads(line) for line in golden]


def is_valid(line: dict[str, Any]) -> bool:
    """Whether Kafka gave partitions only to members that asked for them."""
    if "error" in line["out"]:
        return False
    topics = {member["id"]: set(member["topics"]) for member in line["in"]["members"]}
    return all(
        topic in topics[member_id]
        for member_id, given in line["out"]["assignment"].items()
        for topic, _ in given
    )


def expected(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line["out"].items() if key != "transferring"}


def test_there_are_as_many_as_the_note_says() -> None:
    assert len(LINES) == 800
    assert sum("error" in line["out"] for line in LINES) == 2
    assert sum(not is_valid(line) for line in LINES) == 2 + 21


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_strict_upstream_gives_kafkas_answer_always(assignor: str) -> None:
    lines = [line for line in LINES if line["in"]["assignor"] == assignor]
    assert len(lines) > 100
    for line in lines:
        assert answer(line["in"], strict_upstream=True) == expected(line)


def test_the_default_gives_kafkas_answer_where_that_is_valid() -> None:
    for line in filter(is_valid, LINES):
        assert answer(line["in"]) == expected(line)


def test_the_default_is_valid_where_kafkas_answer_is_not() -> None:
    for line in LINES:
        if not is_valid(line):
            ours = {"in": line["in"], "out": answer(line["in"])}
            assert is_valid(ours)
