"""Runs of other projects' suites: outcomes, the reasons we accept, and the page they are told on.

Rule: a failure that no accepted reason explains fails our test, and so does an accepted reason
that no failure needs any more.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

_HEAD: Final = """# Third-party test suites

The integration tests of two other projects, run against our broker from their published sources
(`make test-all`; nothing of theirs is kept here). Written by a run of
`SHOAL_CONFORMANCE_TABLE=docs/conformance.md python -m pytest tests/conformance/test_suites.py`.
A failure that is not explained here fails our build.
"""


@dataclass(frozen=True)
class Outcome:
    """How one test of theirs went, and in its words why not better."""

    name: str
    result: str
    why: str = ""


def from_go_events(lines: Iterable[str]) -> list[Outcome]:
    """Outcomes from the events of ``go tool test2json``. A test without an end has failed."""
    started: dict[str, None] = {}
    results: dict[str, str] = {}
    said: dict[str, list[str]] = {}
    endings = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name = event.get("Test")
        if name is None:
            continue
        started.setdefault(name)
        action = event["Action"]
        if action == "output" and (told := re.match(r"\s+\w+\.go:\d+: (.*)", event["Output"])):
            said.setdefault(name, []).append(told[1].strip())
        if action in endings:
            results[name] = endings[action]
    found = []
    for name in started:
        result = results.get(name, FAILED)
        why = "" if result == PASSED else _reason(said.get(name, []), name in results)
        found.append(Outcome(name, result, why))
    return found


def _reason(said: Sequence[str], ended: bool) -> str:
    # A log line about tidying up is no reason.
    lines = [line for line in said if "DELETING" not in line and "completed in" not in line]
    return lines[0][:200] if lines else ("" if ended else "did not end")


def from_junit(file: Path) -> list[Outcome]:
    """Outcomes from a JUnit file, as pytest writes it."""
    found = []
    for case in ET.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        for tag, result in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
            if (node := case.find(tag)) is not None:
                why = (node.get("message") or "").splitlines() or [""]
                found.append(Outcome(name, result, why[0][:200]))
                break
        else:
            found.append(Outcome(name, PASSED))
    return found


def explained(outcomes: Sequence[Outcome], accepted: Mapping[str, str]) -> dict[str, str]:
    """Failed test → accepted reason; asserts that both lists are complete."""
    failed = [each for each in outcomes if each.result == FAILED]
    reasons = {
        each.name: reason
        for each in failed
        for pattern, reason in accepted.items()
        if re.search(pattern, each.name)
    }
    unexplained = [f"{each.name}: {each.why}" for each in failed if each.name not in reasons]
    assert not unexplained, unexplained
    unneeded = [p for p in accepted if not any(re.search(p, name) for name in reasons)]
    assert not unneeded, f"no failure needs these reasons any more: {unneeded}"
    return reasons


def section(
    outcomes: Sequence[Outcome], reasons: Mapping[str, str], shown: Sequence[str] | None = None
) -> str:
    """Counts, then one row per test. ``shown`` are the tests worth a row; all others passed."""
    counts = Counter(each.result for each in outcomes)
    lines = [", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED)) + "."]
    rows = [
        each
        for each in outcomes
        if shown is None or each.result != PASSED or each.name.partition("/")[0] in shown
    ]
    if len(rows) < len(outcomes):
        lines.append(
            f"{len(outcomes) - len(rows)} that passed do not speak to a broker and have no row."
        )
    lines += ["", "| test | result | why |", "|---|---|---|"]
    for each in sorted(rows, key=lambda each: each.name):
        why = f"{reasons[each.name]}: {each.why}" if each.name in reasons else each.why
        lines.append(f"| `{each.name}` | {each.result} | {why.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def write_section(page: Path, title: str, text: str) -> None:
    """Put a section on the page; the other suites' sections stay."""
    old = page.read_text() if page.exists() else ""
    sections = dict(
        part.partition("\n\n")[::2]
        for part in old.split("\n## ")[1:]  # title, text
    )
    sections[title] = text
    parts = [f"\n## {name}\n\n{body.strip()}\n" for name, body in sorted(sections.items())]
    page.write_text(_HEAD + "".join(parts))
