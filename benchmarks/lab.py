"""The lab: 500 members, 1,000 partitions, 10 virtual minutes, under every scheme.

The goal is 60 seconds for all of them together, in CPU time: the machine may be shared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.measuring import Report, Row, json_argument
from shoal.lab import SCHEMES, built_in, run_scenario


def main(arguments: Sequence[str]) -> None:
    report = Report("lab")
    scenario = built_in("large")
    total_s = 0.0
    for scheme in SCHEMES:
        before = time.process_time()
        run = run_scenario(scenario, scheme)
        taken_s = time.process_time() - before
        total_s += taken_s
        assert run.metrics.uncovered_partitions == 0
        what = f"{scheme}: 500 members x 1,000 partitions x 10 min"
        report.add(Row(what, "s of CPU", taken_s, higher_is_better=False))
    report.add(Row("all five schemes", "s of CPU", total_s, goal="< 60", higher_is_better=False))
    report.finish(json_argument(arguments))
