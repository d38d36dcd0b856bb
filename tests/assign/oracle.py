"""Our assignors against Apache Kafka's own, on thousands of random groups.

    python -m tests.assign.oracle --cases 20000 [--seed N]

A small Java program (AssignmentOracle.java) is compiled against the published jars once and started
once; scenarios go in and answers come out as JSON lines. Every scenario is answered by us three
times: by the clear algorithms and by the array ones as ``strict_upstream``, which must equal
Kafka's answer with the order in every list; and in the default mode, which must equal it wherever
Kafka's answer is sound, and be sound where it is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

from shoal.assign import problem
from shoal.assign.scenario import answer
from tests.assign.scenarios import Scenario, random_scenario
from tests.peers.cache import PeerMissingError, fetched, program
from tests.peers.jars import java, kafka_jars

SOURCE = Path(__file__).with_name("AssignmentOracle.java")


def compiled() -> Path:
    """The directory with the compiled program, kept in the peers' cache."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]

    def build(directory: Path) -> None:
        command = [program("javac", "install a JDK, 17 or newer"), "-nowarn", "-d", str(directory)]
        subprocess.run(
            [*command, "-cp", f"{kafka_jars()}/*", str(SOURCE)], check=True, capture_output=True
        )

    return fetched(f"assignment-oracle-{digest}", build)


class Oracle:
    """The running Java program. Use as a context manager."""

    def __init__(self, *, heap: str = "512m") -> None:
        classpath = f"{compiled()}:{kafka_jars()}/*"
        self._process = subprocess.Popen(
            [java(), f"-Xmx{heap}", "-cp", classpath, "AssignmentOracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.communicate()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the Java program ended"
        answered: dict[str, Any] = json.loads(line)
        return answered

    def answers_within(self, request: dict[str, Any], seconds: float) -> bool:
        """Whether an answer comes in time; the program is of no use afterwards and is ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        ready, _, _ = select([self._process.stdout], [], [], seconds)
        self._process.kill()
        return bool(ready)


@contextmanager
def arrays_from(partitions: int) -> Iterator[None]:
    """Let arrays be used from so many partitions on."""
    usual = problem.LARGE
    problem.LARGE = partitions
    try:
        yield
    finally:
        problem.LARGE = usual


def is_sound(scenario: Scenario, answered: dict[str, Any]) -> bool:
    """Existing partitions of subscribed topics, each at most once."""
    if "error" in answered:
        return False
    wanted = {member["id"]: set(member["topics"]) for member in scenario["members"]}
    counts = {
        topic: count if isinstance(count, int) else len(count)
        for topic, count in scenario["topics"].items()
    }
    pairs = [
        (topic, partition)
        for member_id, given in answered["assignment"].items()
        for topic, partition in given
        if topic in wanted[member_id] and 0 <= partition < counts[topic]
    ]
    given = sum(len(given) for given in answered["assignment"].values())
    return len(set(pairs)) == given


def kafka_is_sound(scenario: Scenario, answered: dict[str, Any]) -> bool:
    """As far as can be seen from outside: what changes hands is in no cooperative answer."""
    cooperative = scenario["assignor"] == "cooperative-sticky"
    return is_sound(scenario, answered) and (cooperative or is_complete(scenario, answered))


def is_complete(scenario: Scenario, answered: dict[str, Any]) -> bool:
    """Everything somebody subscribes to is given to somebody."""
    wanted = {topic for member in scenario["members"] for topic in member["topics"]}
    counts = (
        count if isinstance(count, int) else len(count)
        for topic, count in scenario["topics"].items()
        if topic in wanted
    )
    return sum(counts) == sum(len(given) for given in answered["assignment"].values())


def differences(scenario: Scenario, java_answer: dict[str, Any]) -> list[str]:
    """What is wrong with our answers, in words."""
    found = []
    for mode, partitions in (("lists", 1 << 62), ("arrays", 1)):
        with arrays_from(partitions):
            strict = answer(scenario, strict_upstream=True)
            default = answer(scenario)
        if "error" in java_answer:
            kind = java_answer["error"].split(":")[0]
            if not strict.get("error", "").startswith(kind):
                found.append(f"strict on {mode}: Kafka fails with {kind}, we do not")
        elif strict != java_answer:
            found.append(f"strict on {mode}: another answer than Kafka's")
        if not is_sound(scenario, default):
            found.append(f"default on {mode}: unsound")
        elif kafka_is_sound(scenario, java_answer) and default != java_answer:
            found.append(f"default on {mode}: Kafka's answer is sound, ours differs")
    return found


def compare(oracle: Oracle, seed: int, counts: Counter[str]) -> list[str]:
    """One scenario; counts what kind it was."""
    scenario = random_scenario(seed)
    counts[scenario["assignor"]] += 1
    if answer(scenario, strict_upstream=True).get("error", "").startswith("no end"):
        # Kafka would never answer. That this is so for one such group, a test of its own shows.
        counts["Kafka finds no end"] += 1
        return []
    theirs = oracle.ask(scenario)
    if "error" in theirs:
        counts["Kafka fails"] += 1
    elif not is_sound(scenario, theirs):
        counts["Kafka's answer is unsound"] += 1
    return differences(scenario, theirs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.assign.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong = 0
    try:
        oracle = Oracle()
    except PeerMissingError as missing:
        print(f"not run: {missing}")
        return 2
    with oracle:
        for seed in range(arguments.seed, arguments.seed + arguments.cases):
            for text in compare(oracle, seed, counts):
                wrong += 1
                print(f"seed {seed}: {text}")
    print(f"{arguments.cases} cases, {wrong} differences; {dict(counts)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
