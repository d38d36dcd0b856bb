"""How the time of an assignment grows: 10 to 1,000,000 partitions, 10 to 10,000 members.

Fresh assignments of equal subscriptions, and for ``sticky`` also the general path (one member wants
one topic). Peers are asked as long as they answer within a few seconds; what they did not finish is
left out. ``python -m docs.generate_growth`` makes the table and the plot of the docs from it.

    python -m benchmarks assign_growth
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import inf

from tests.assign.oracle import Oracle

from benchmarks.assign_cases import (
    Case,
    aiokafka,
    fresh,
    java,
    kafka_python,
    one_wants_less,
    shoal,
    started_oracle,
    timed_once,
)
from benchmarks.measuring import Report, Row, json_argument

# (topics, partitions of each, members)
BY_PARTITIONS = [
    (1, 10, 100),
    (10, 10, 100),
    (10, 100, 100),
    (100, 100, 100),
    (100, 1000, 100),
    (500, 2000, 100),
]
BY_MEMBERS = [(100, 1000, 10), (100, 1000, 100), (100, 1000, 1000), (100, 1000, 10_000)]
# A peer that took longer than this is not asked about anything larger: ten times as much takes
# some of them a hundred times as long.
PATIENCE_S = 1.0


Ends = dict[tuple[str, str], float]
"""What was assigned by which peer, and the number of partitions beyond which it is not asked."""


def main(arguments: Sequence[str] = ()) -> None:
    """Print a row for every size, assignor and peer."""
    report = Report("assign_growth", ("numpy", "kafka-python", "aiokafka"))
    oracle = started_oracle("6g")
    ends: Ends = {}
    for sizes in (BY_PARTITIONS, BY_MEMBERS):
        for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
            grow(report, name, name, [(size, fresh(*size)) for size in sizes], oracle, ends)
        # With fewer members than topics, the one that wants a single topic cannot have its share,
        # and Java looks for a way for hours.
        for is_fair, java_too in ((True, oracle), (False, None)):
            general = [
                (size, one_wants_less(*size, 1))
                for size in sizes
                if (size[2] >= size[0]) == is_fair
            ]
            grow(report, "sticky", "sticky, one member wants one topic", general, java_too, ends)
    if oracle is not None:
        oracle.close()
    report.finish(json_argument(arguments))


def grow(
    report: Report,
    name: str,
    what: str,
    cases: Sequence[tuple[tuple[int, int, int], Case]],
    oracle: Oracle | None,
    ends: Ends,
) -> None:
    """One line of the plot and its peers' lines."""
    peers: dict[str, Callable[[Case], float]] = {
        "kafka-python": lambda case: timed_once(kafka_python(name, case))
    }
    if name != "cooperative-sticky":
        peers["aiokafka"] = lambda case: timed_once(aiokafka(name, case))
    if oracle is not None:
        peers["Java"] = lambda case: java(oracle, name, case, runs=2, warm_up=1).seconds
    for (topics, partitions, members), case in cases:
        size = f"{topics * partitions:,} x {members:,}"
        ours = shoal(name, case, runs=3).seconds * 1000
        report.add(Row(f"{what}: {size}", "ms", ours, higher_is_better=False))
        for peer_name, timed in list(peers.items()):
            if topics * partitions > ends.get((what, peer_name), inf):
                continue
            seconds = timed(case)
            report.add(
                Row(
                    f"{what}: {size}",
                    "ms",
                    ours,
                    seconds * 1000,
                    peer_name,
                    higher_is_better=False,
                )
            )
            if seconds > PATIENCE_S:
                ends[what, peer_name] = topics * partitions


if __name__ == "__main__":
    main(sys.argv[1:])
