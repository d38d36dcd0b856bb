"""Answer assignment scenarios: ``python -m shoal.assign [--strict-upstream] [FILE]``.

Reads one scenario per line, as JSON, from a file (plain or gzip) or from standard input, and writes
one answer per line, so that any other implementation can be compared with ours. The form is in
``shoal.assign.scenario``; a line of a golden file, ``{"in": …, "out": …}``, will do as well. A
scenario that cannot be answered gets ``{"error": …}`` and the next line is read.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from shoal.assign.scenario import answer

_GZIP = b"\x1f\x8b"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m shoal.assign", description="Answer assignment scenarios, one JSON per line."
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="plain or gzip; standard input if absent or -"
    )
    parser.add_argument(
        "--strict-upstream",
        action="store_true",
        help="give Apache Kafka's answer even where it is unsound or an exception",
    )
    options = parser.parse_args(arguments)
    if options.file is None or str(options.file) == "-":
        answer_lines(sys.stdin, sys.stdout, strict_upstream=options.strict_upstream)
        return 0
    try:
        with opened(options.file) as lines:
            answer_lines(lines, sys.stdout, strict_upstream=options.strict_upstream)
    except OSError as error:
        print(f"cannot read {options.file}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """A text file, unpacked if need be. It is opened once, so it may be a pipe."""
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == _GZIP
        with io.TextIOWrapper(gzip.GzipFile(fileobj=file) if packed else file, "utf-8") as text:
            yield text


def answer_lines(lines: Iterable[str], out: TextIO, *, strict_upstream: bool) -> None:
    """One answer for every line that is not blank."""
    for line in lines:
        if line.strip():
            answered = _answer_line(line, strict_upstream=strict_upstream)
            out.write(json.dumps(answered, separators=(",", ":")) + "\n")
            out.flush()


def _answer_line(line: str, *, strict_upstream: bool) -> dict[str, Any]:
    try:
        scenario = json.loads(line)
        if isinstance(scenario, dict) and "in" in scenario:
            scenario = scenario["in"]
        if not isinstance(scenario, dict):
            raise ValueError("a scenario must be an object")
        return answer(scenario, strict_upstream=strict_upstream)
    except ValueError as error:
        return {"error": f"bad scenario: {error}"}


if __name__ == "__main__":
    sys.exit(main())
