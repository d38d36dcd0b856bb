"""What a run saw: the questions asked, and where the answers were not the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.differential.compare import Difference
from tests.differential.steps import Case


@dataclass(frozen=True)
class Finding:
    """A difference and the question that showed it."""

    case: Case
    question: str
    difference: Difference

    @property
    def api(self) -> str:
        """The API whose answers differ."""
        return self.question.split(" ")[0]

    def __str__(self) -> str:
        return f"{self.case.name}\n    {self.question}\n    {self.difference}"


@dataclass
class Report:
    """A whole run."""

    cases: int = 0
    questions: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
