"""Bugs planted where the simulator must notice them, see ``tests/planted``.

A simulation is worth what it catches. Each bug's test is one seed that catches it quickly. When
the simulator changes, an old seed means another run and a bug may escape: ``make seeds`` looks for
seeds anew and writes ``planted_seeds.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.planted.bugs import PlantedBug
from tests.simulation.bug import Bug
from tests.simulation.planted_consumer_groups import CONSUMER_GROUP_BUGS
from tests.simulation.planted_groups import GROUP_BUGS
from tests.simulation.planted_producers import PRODUCER_BUGS
from tests.simulation.planted_sinks import SINK_BUGS
from tests.simulation.planted_transactions import TRANSACTION_BUGS

SEEDS_FILE: Final = Path(__file__).with_name("planted_seeds.json")
SEEDS: Final[dict[str, int]] = json.loads(SEEDS_FILE.read_text(encoding="utf-8"))
GROUP_TEST: Final = "tests/simulation/test_planted_seeds.py::test_a_group_keeps_its_promises"
CONSUMER_GROUP_TEST: Final = (
    "tests/simulation/test_planted_seeds.py::test_consumer_groups_keep_theirs"
)
PRODUCER_TEST: Final = "tests/simulation/test_planted_seeds.py::test_producers_keep_theirs"
TRANSACTION_TEST: Final = "tests/simulation/test_planted_seeds.py::test_transactions_keep_theirs"
SINK_TEST: Final = "tests/simulation/test_planted_seeds.py::test_sinks_keep_theirs"


def seeds_of(bugs: Iterable[Bug]) -> list[int]:
    """The seeds that notice these bugs."""
    return sorted({SEEDS[bug.name] for bug in bugs if bug.name in SEEDS})


def _planted(bugs: Iterable[Bug], test: str) -> Iterator[PlantedBug]:
    for bug in bugs:
        # Without a seed the test is one that does not exist, and the bug escapes by name.
        yield PlantedBug(*bug, f"{test}[{SEEDS.get(bug.name, 'run make seeds')}]")


PLANTED: Final = (
    *_planted(GROUP_BUGS, GROUP_TEST),
    *_planted(PRODUCER_BUGS, PRODUCER_TEST),
    *_planted(CONSUMER_GROUP_BUGS, CONSUMER_GROUP_TEST),
    *_planted(TRANSACTION_BUGS, TRANSACTION_TEST),
    *_planted(SINK_BUGS, SINK_TEST),
    PlantedBug(
        "a seed that breaks something is not counted",
        "testing/simulation/seed_runs.py",
        "            violations.append(traceback.format_exc())\n",
        "            pass\n",
        "tests/simulation/test_seed_runs.py -k others_go_on",
    ),
    PlantedBug(
        "a ledger begins anew",
        "testing/simulation/seed_runs.py",
        '        return max((int(line["next_seed"]) for line in self._before), default=0)\n',
        "        return 0\n",
        "tests/simulation/test_seed_runs.py -k goes_on_behind",
    ),
)
