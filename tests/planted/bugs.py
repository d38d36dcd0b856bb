"""What a planted bug is, and where the packages keep theirs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "shoal"


class PlantedBug(NamedTuple):
    """A change of one place of the code.

    ``old`` stands exactly once in ``file``, a path below ``src/shoal``. ``test`` is the pytest
    argument that must fail: one test, or few, and quick ones.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    def planted(self) -> str:
        """The text of the file with the bug in it.

        Raises:
            LookupError: The place is not there, or not once.
        """
        text = (SOURCE / self.file).read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != 1:
            raise LookupError(f"{self.name}: its place in {self.file} was found {found} times")
        return text.replace(self.old, self.new)


def packages() -> list[str]:
    """The packages of tests that have a list of planted bugs."""
    return sorted(path.parent.name for path in (ROOT / "tests").glob("*/planted.py"))


def bugs_of(package: str) -> tuple[PlantedBug, ...]:
    found: tuple[PlantedBug, ...] = import_module(f"tests.{package}.planted").PLANTED
    return found
