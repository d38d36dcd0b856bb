"""Scenarios in, answers out: as a function and as a program."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.assign.__main__ import answer_lines, main
from shoal.assign.scenario import answer, subscription_of
from tests.assign.oracle import arrays_from
from tests.assign.scenarios import random_scenario

GOLDEN = Path(__file__).parent.parent / "golden" / "assignors.jsonl.gz"
TWO = {
    "assignor": "range",
    "topics": {"t": 3},
    "members": [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": ["t"]}],
}


def test_an_answer_lists_partitions_per_member() -> None:
    assert answer(TWO) == {"assignment": {"a": [["t", 0], ["t", 1]], "b": [["t", 2]]}}


def test_kafkas_failure_is_an_answer_too() -> None:
    with gzip.open(GOLDEN, "rt") as lines:
        failing = next(json.loads(line) for line in lines if '"error"' in line)
    assert answer(failing["in"], strict_upstream=True) == failing["out"]
    assert "assignment" in answer(failing["in"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"assignor": None}, "'assignor' must be a string"),
        ({"assignor": "best"}, "no assignor is called 'best'"),
        ({"topics": []}, "'topics' must be an object"),
        ({"topics": {"t": "three"}}, r"topics\['t'\] must be a count or a list of rack lists"),
        ({"topics": {"t": True}}, r"topics\['t'\]"),
        ({"members": {}}, "'members' must be a list"),
        ({"members": ["a"]}, r"members\[0\] must be an object"),
        ({"members": [{"topics": []}]}, r"members\[0\]: 'id' is missing"),
        ({"members": [{"id": "a", "topics": [1]}]}, r"members\[0\]: 'topics'"),
        ({"members": [{"id": "a", "topics": [], "owned": [["t"]]}]}, "'owned' must be a list of"),
        ({"members": [{"id": "a", "topics": [], "owned": [["t", 1 << 40]]}]}, "'owned'"),
        ({"members": [{"id": "a", "topics": [], "sticky": {}}]}, "'generation' is missing"),
        ({"members": [{"id": "a", "topics": [], "userData": "zz"}]}, "hexadecimal"),
        ({"members": [{"id": "a", "topics": [], "generation": "x"}]}, "'generation' must be"),
        ({"members": [{"id": "a", "topics": [], "rack": 1}]}, "'rack' must be a string"),
    ],
)
def test_a_bad_scenario_is_refused_naming_the_field(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        answer({**TWO, **change})


def test_user_data_is_what_the_member_itself_would_send() -> None:
    owned = [["b", 1], ["a", 2], ["a", 0]]
    sticky = {"id": "m", "topics": [], "sticky": {"owned": owned, "generation": 7}}
    written = "00000002000161000000020000000200000000000162000000010000000100000007"
    assert subscription_of(sticky).user_data == bytes.fromhex(written)
    assert subscription_of({"id": "m", "topics": [], "coopGen": 7}).user_data == b"\0\0\0\7"
    assert subscription_of({"id": "m", "topics": [], "userData": "ff"}).user_data == b"\xff"
    assert subscription_of({"id": "m", "topics": []}).user_data is None


def test_lines_are_answered_one_by_one_errors_included() -> None:
    lines = [json.dumps(TWO), "", "{", "[]", json.dumps({"in": TWO, "out": {}})]
    out = io.StringIO()
    answer_lines(lines, out, strict_upstream=False)
    answered = [json.loads(line) for line in out.getvalue().splitlines()]
    assert answered[0] == answered[3] == answer(TWO)
    assert answered[1]["error"].startswith("bad scenario: ")
    assert answered[2] == {"error": "bad scenario: a scenario must be an object"}


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_may_be_plain_or_gzip(
    packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (json.dumps(TWO) + "\n").encode()
    path = tmp_path / "scenarios"
    path.write_bytes(gzip.compress(line) if packed else line)
    assert main([str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == answer(TWO)


def test_a_file_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("file", [[], ["-"]])
def test_standard_input_is_read_without_a_file(
    file: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(TWO)))
    assert main(["--strict-upstream", *file]) == 0
    assert json.loads(capsys.readouterr().out) == answer(TWO)


@pytest.mark.slow
def test_the_answer_depends_neither_on_the_hash_seed_nor_on_the_process() -> None:
    scenarios = [random_scenario(seed) for seed in range(40)]
    given = "".join(json.dumps(scenario) + "\n" for scenario in scenarios)
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "shoal.assign"],
            input=given,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1


@pytest.mark.slow
def test_a_million_partitions_are_answered() -> None:
    topics = [f"topic-{number:03d}" for number in range(500)]
    scenario = {
        "assignor": "cooperative-sticky",
        "topics": dict.fromkeys(topics, 2000),
        "members": [{"id": f"consumer-{n:04d}", "topics": topics} for n in range(2000)],
    }
    assignment = answer(scenario)["assignment"]
    assert {len(given) for given in assignment.values()} == {500}
    assert len({tuple(pair) for given in assignment.values() for pair in given}) == 1_000_000


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_lists_and_arrays_give_the_same_answer(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 25):
        scenario = random_scenario(seed)
        for strict in (True, False):
            with arrays_from(1 << 62):
                by_lists = answer(scenario, strict_upstream=strict)
            with arrays_from(1):
                by_arrays = answer(scenario, strict_upstream=strict)
            assert by_arrays == by_lists, f"seed {seed}"
