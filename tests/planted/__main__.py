"""``python -m tests.planted [PACKAGE ...] [--name TEXT] [--jobs N]``: who notices planted bugs?

Ends with 0 if every bug was noticed by the test it names. ``--places`` only looks whether the code
that each bug changes is still there: who changes the code brings the bug along.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.planted.bugs import PlantedBug, bugs_of, packages
from tests.planted.runner import JOBS, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(packages()))
    parser.add_argument("--name", default="", help="only bugs whose name contains this")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--places", action="store_true", help="plant nothing, see that one could")
    options = parser.parse_args()
    unknown = set(options.packages) - set(packages())
    if unknown:
        parser.error(
            f"no planted bugs of {', '.join(sorted(unknown))}; try {', '.join(packages())}"
        )
    chosen = [
        bug
        for package in options.packages or packages()
        for bug in bugs_of(package)
        if options.name in bug.name
    ]
    if not chosen:
        parser.error(f"no bug has {options.name!r} in its name")
    lost = [problem for bug in chosen if (problem := _lost(bug))]
    names = Counter(bug.name for bug in chosen)
    lost += [f"{name}: {count} bugs have this name" for name, count in names.items() if count > 1]
    print("".join(f"{problem}\n" for problem in lost), end="")
    if lost or options.places:
        return int(bool(lost))
    started, cpu_seconds = time.monotonic(), 0.0
    escaped: list[str] = []
    slowest: list[tuple[float, str]] = []
    for outcome in run(chosen, jobs=options.jobs):
        cpu_seconds += outcome.cpu_seconds
        word = "ESCAPED" if outcome.problem else "caught"
        spent = f"{outcome.seconds:6.1f} s ({outcome.cpu_seconds:4.1f} of CPU)"
        print(f"{word:8}{spent}  {outcome.bug.name}", flush=True)
        if outcome.problem:
            where = f"{outcome.bug.file} -> {outcome.bug.test}: {outcome.problem}"
            escaped.append(f"ESCAPED {outcome.bug.name}: {where}")
            print(f"        {where}")
            print(outcome.said)
        slowest = sorted([*slowest, (outcome.seconds, outcome.bug.name)], reverse=True)[:5]
    print("slowest: " + "; ".join(f"{name} {seconds:.1f} s" for seconds, name in slowest))
    # Once more at the end: whoever reads only the last lines of a long run learns which ones.
    print("".join(f"{line}\n" for line in escaped), end="")
    took = f"{time.monotonic() - started:.0f} s ({cpu_seconds:.0f} of CPU)"
    print(f"{len(chosen) - len(escaped)} of {len(chosen)} planted bugs were noticed in {took}")
    return int(bool(escaped))


def _lost(bug: PlantedBug) -> str:
    """Why a bug cannot be planted, or nothing."""
    try:
        bug.planted()
    except (LookupError, OSError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
