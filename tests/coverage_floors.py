"""``python -m tests.coverage_floors [PACKAGE ...]``: how much of pure packages their tests reach.

Each package is measured by the fast tests of its own directory, branches included. Ends with 0 if
none is below its floor. A floor only ever rises: whoever tests more writes down more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FAST: Final = "not slow and not long and not peer and not kafka and not spark and not root"

# Per cent of lines and branches, rounded down.
FLOORS: Final = {
    "access": 98,
    "assign": 99,
    "group": 98,
    "machine": 74,
    "records": 97,
    "transaction": 93,
    "wire": 98,
}

_SETTINGS: Final = """\
[run]
branch = true
source_pkgs = shoal.{package}
[report]
exclude_also =
    if TYPE_CHECKING:
    \\.\\.\\.$
"""


def measure(package: str) -> float:
    """Per cent of lines and branches of a package that its own tests reach."""
    with tempfile.TemporaryDirectory() as directory:
        data, report = Path(directory, "data"), Path(directory, "report.json")
        settings = Path(directory, "settings")
        settings.write_text(_SETTINGS.format(package=package), encoding="utf-8")
        coverage = [sys.executable, "-m", "coverage"]
        ran = subprocess.run(
            [
                *coverage,
                "run",
                f"--rcfile={settings}",
                f"--data-file={data}",
                *("-m", "pytest", "-q", "-m", FAST, f"tests/{package}"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            sys.exit(f"the tests of {package} fail:\n{ran.stdout[-3000:]}{ran.stderr[-1000:]}")
        subprocess.run(
            [
                *coverage,
                "json",
                "-q",
                f"--rcfile={settings}",
                f"--data-file={data}",
                *("-o", str(report)),
            ],
            cwd=ROOT,
            check=True,
        )
        return float(json.loads(report.read_text())["totals"]["percent_covered"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage_floors", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(FLOORS))
    chosen = parser.parse_args().packages or list(FLOORS)
    if unknown := set(chosen) - set(FLOORS):
        parser.error(f"no floor for {', '.join(sorted(unknown))}; try {', '.join(FLOORS)}")
    below = 0
    for package in chosen:
        found = measure(package)
        is_below = found < FLOORS[package]
        below += is_below
        verdict = "BELOW ITS FLOOR" if is_below else "ok"
        print(f"{package:12} {found:6.2f} %  floor {FLOORS[package]} %  {verdict}", flush=True)
    return int(below > 0)


if __name__ == "__main__":
    sys.exit(main())
