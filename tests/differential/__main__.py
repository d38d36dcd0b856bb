"""The same requests to Apache Kafka and to our broker; every difference is known, or fails.

python -m tests.differential                       all of it; writes docs/differences.md
python -m tests.differential --share 10 --seed 3   a tenth, chosen by the seed
python -m tests.differential --only 'CreateTopics v5'
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.differential.accepted import ACCEPTED, Accepted, accepted_by
from tests.differential.findings import Report
from tests.differential.page import page
from tests.differential.runner import compared
from tests.peers.cache import PeerMissingError

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="run one case of so many")
    parser.add_argument("--seed", type=int, default=1, help="which ones, and in which order")
    parser.add_argument("--only", default="", help="cases whose name has this pattern")
    options = parser.parse_args()
    only = re.compile(options.only)
    try:
        report = compared(
            seed=options.seed, share=options.share, wanted=lambda case: only.search(case.name)
        )
    except PeerMissingError as missing:
        print(f"differential: {missing}", file=sys.stderr)
        return 2
    return _judge(report, whole=options.share == 1 and not options.only)


def _judge(report: Report, *, whole: bool) -> int:
    met: dict[Accepted, None] = {}
    unknown = []
    for finding in report.findings:
        row = accepted_by(finding)
        if row is None:
            unknown.append(finding)
        else:
            met[row] = None
    for finding in unknown:
        print(finding)
    stale = [row for row in ACCEPTED if row.always and row not in met] if whole else []
    for row in stale:
        print(f"no longer seen, take it out of accepted.py: {row.api} {row.where}: {row.kafka}")
    print(
        f"differential: {report.cases} cases, {report.questions.total()} requests, "
        f"{len(report.findings) - len(unknown)} accepted differences, {len(unknown)} others"
    )
    if whole and not unknown and not stale:
        PAGE.write_text(page(report))
    return int(bool(unknown or stale))


if __name__ == "__main__":
    sys.exit(main())
