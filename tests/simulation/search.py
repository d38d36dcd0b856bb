"""``python -m tests.simulation.search [--name TEXT] [--seeds N]``: which seed notices which bug?

Plants each bug of the simulator, runs seeds from 0 on until one has noticed it quickly, and writes
the seeds into ``planted_seeds.json``. Ends with 1 if a bug was noticed by none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable

import pytest

from tests.planted.runner import run
from tests.simulation.planted import (
    CONSUMER_GROUP_TEST,
    GROUP_TEST,
    PLANTED,
    PRODUCER_TEST,
    SEEDS,
    SEEDS_FILE,
    SINK_TEST,
    TRANSACTION_TEST,
)

HERE = "tests/simulation/search.py"
SEEDS_TRIED = 2_600
ENOUGH = {1: 0.3, 3: 1.0, 8: 2.0, 20: 10.0}
"""So many seeds are enough if the quickest of them takes no more than so many seconds."""
HOUR = 3_600.0
_FOUND = re.compile(r"seed (\d+) noticed it in ([\d.]+) s; so did (\d+) of (\d+) seeds: (.*)")
_ASKED = "SHOAL_SEEDS_TRIED"


# ---------------------------------------------------------------- inside the planted process


def test_a_group() -> None:
    from shoal.testing.simulation.simulator import simulate

    _search(simulate)


def test_producers(caplog: pytest.LogCaptureFixture) -> None:
    from shoal.testing.simulation.producer_simulator import simulate_producers

    caplog.set_level(100)
    _search(simulate_producers)


def test_consumer_groups() -> None:
    from shoal.testing.simulation.consumer_group_simulator import simulate_consumer_groups

    _search(simulate_consumer_groups)


def test_transactions(caplog: pytest.LogCaptureFixture) -> None:
    from shoal.testing.simulation.transaction_simulator import simulate_transactions

    caplog.set_level(100)
    _search(simulate_transactions)


def test_sinks(caplog: pytest.LogCaptureFixture) -> None:
    from shoal.testing.simulation.sink_simulator import simulate_sinks

    caplog.set_level(100)
    _search(simulate_sinks)


_SEARCHES = {
    GROUP_TEST: test_a_group,
    PRODUCER_TEST: test_producers,
    CONSUMER_GROUP_TEST: test_consumer_groups,
    TRANSACTION_TEST: test_transactions,
    SINK_TEST: test_sinks,
}


def _search(simulate: Callable[[int], object]) -> None:
    """Fail with the quickest of the first seeds that fail."""
    found: list[tuple[float, int, str]] = []
    tried = 0
    while tried < int(os.environ[_ASKED]) and not _is_enough(found):
        began = time.process_time()
        try:
            simulate(tried)
        except Exception as failure:
            spent = time.process_time() - began
            found.append((spent, tried, f"{type(failure).__name__}: {failure}"[:100]))
        tried += 1
    if found:
        spent, seed, why = min(found)
        told = (
            f"seed {seed} noticed it in {spent:.2f} s; so did {len(found)} of {tried} seeds: {why}"
        )
        pytest.fail(told, pytrace=False)


def _is_enough(found: list[tuple[float, int, str]]) -> bool:
    return any(len(found) >= count and min(found)[0] <= limit for count, limit in ENOUGH.items())


# ---------------------------------------------------------------- outside


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.search", description=__doc__)
    parser.add_argument("--name", default="", help="only bugs whose name contains this")
    parser.add_argument("--test", default="", help="only bugs that a test with this name notices")
    parser.add_argument("--seeds", type=int, default=SEEDS_TRIED)
    options = parser.parse_args()
    os.environ[_ASKED] = str(options.seeds)
    chosen = [
        bug._replace(test=f"{HERE}::{_SEARCHES[bug.test.partition('[')[0]].__name__}")
        for bug in PLANTED
        if options.name in bug.name and options.test in bug.test
    ]
    found = dict(SEEDS)
    escaped = 0
    for outcome in run(chosen, hang_seconds=HOUR):
        match = _FOUND.search(outcome.said)
        if match is None:
            escaped += 1
            print(f"ESCAPED {outcome.bug.name}: {outcome.problem}\n{outcome.said}", flush=True)
            continue
        found[outcome.bug.name] = int(match[1])
        print(f"{outcome.bug.name}: {match[0]}", flush=True)
    ordered = {bug.name: found[bug.name] for bug in PLANTED if bug.name in found}
    SEEDS_FILE.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    print(f"{len(chosen) - escaped} of {len(chosen)} planted bugs were noticed")
    return int(escaped > 0)


if __name__ == "__main__":
    sys.exit(main())
