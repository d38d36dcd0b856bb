"""Spelling and plain words, in everything people read: ``python -m tests.style_check``.

Two checks over README, docs, changelog fragments, examples, and every string of the sources (help,
errors, docstrings; of the C modules and the dashboard's scripts too): codespell for typing
mistakes, and a list of our own of phrases that are not idiomatic English or not what a busy reader
expects. Comments are for who edits the code, and are left alone. Part of ``make check``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "DESIGN.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "changelog.d",
    "examples",
)
SUFFIXES = (".md", ".py", ".yml", ".ipynb")


class Phrase(NamedTuple):
    """What is not to be written, what to write, and where it may stand."""

    pattern: str
    instead: str
    except_in: str = "(?!)"


BANNED = (
    Phrase(r"(?<!`)\banew\b", "again, or: a new one"),
    Phrase(r"\bfor ever\b", "forever, for good, or: never …"),
    Phrase(r"(?<!there\s)(?<!here\s)\bis no (?!longer\b|more\b|less\b|need\b)", "is not a …"),
    Phrase(r"\bare no (?!longer\b|more\b|less\b|\w+s\b)", "are not …"),
    Phrase(r"\bhow-?manieth\b", "which (the first, the second, …)"),
    Phrase(r"\b(?:for|to|by|of|from|with) who\b", "for those who, for whoever"),
    Phrase(r"\b(?:at most|after|than|only|every|in) so many\b", "this many, or: N"),
    Phrase(r"\bbe it\b", "whether it is"),
    Phrase(r"\bas against\b", "compared with, or: and not"),
    Phrase(r"\bof (?:its|their) own accord\b", "by itself"),
    Phrase(r"\bin vain\b", "without success"),
    Phrase(
        r"\b(?:hence|thereof|hitherto|whence|lest|amongst|whilst|upon|till|thusly)\b",
        "so, until, on …",
    ),
    Phrase(
        r"\b[a-z]{3,}\(s\)",
        "the right plural: shoal.errors.counted",
        # Kafka's own words on the wire, and names of measurements that results are kept under.
        r"src/shoal/broker/|docs/benchmarks",
    ),
    Phrase(r"\b(?:knows|know|understands) no\b", "does not know any"),
    Phrase(r"\b(?:is|are|was|were) to be (?:had|seen|found)\b", "can be had, seen, found"),
    Phrase(r"\b(?:is|are) (?:not )?well\b[.?]", "healthy"),
    Phrase(r"\bwithout a (?:goodbye|good-bye)\b", "abruptly"),
    Phrase(r"\bso as it\b", "as it"),
    Phrase(r"\bmuch the more\b|\bthe more so\b", "all the more, or leave it out"),
    Phrase(r"\b[Tt]he same holds of\b", "the same is true of"),
    Phrase(r"\bcorner cases?\b", "edge cases"),
    Phrase(r"\bcome from another client\b", "migrate from another client"),
    Phrase(r"\binformations\b|\bsoftwares\b|\badvices\b", "no plural"),
    Phrase(r"\bthe the\b|\ba a\b|\bof of\b|\bto to\b|\bis is\b", "the word once"),
)
# The first is in the name of a setting of librdkafka.
IGNORED_WORDS = (
    *("unsecure", "nd", "ect", "ist", "chunkin", "recordin", "fo", "hel", "te", "ser", "ue"),
)
# Text that quotes: what somebody else's program prints, or the list above itself.
QUOTES = ("tests/style_check.py",)


class Text(NamedTuple):
    """A piece of text, and where it begins."""

    path: str
    line: int
    text: str


def texts() -> Iterator[Text]:
    """Everything that is checked: pages line by line, of programs their strings."""
    for name in PAGES:
        place = ROOT / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield from _texts_of(path)
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from _texts_of(path)
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".c", ".h", ".js") and "vendor" not in path.parts:
            yield from literals(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    yield from _helps((ROOT / "Makefile").read_text(encoding="utf-8"), "Makefile")


def _texts_of(path: Path) -> Iterator[Text]:
    name = str(path.relative_to(ROOT))
    if name in QUOTES:
        return
    if path.suffix == ".py":
        yield from strings(path.read_text(encoding="utf-8"), name)
    else:
        yield from _paragraphs(path.read_text(encoding="utf-8"), name)


def strings(source: str, name: str) -> Iterator[Text]:
    """The strings of a program; a phrase may go over the lines of one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(name, node.lineno, node.value)


def literals(source: str, name: str) -> Iterator[Text]:
    """The strings of a program in C or JavaScript, each on one line; comments are left out."""
    for number, line in enumerate(source.splitlines(), 1):
        code = re.sub(r"^\s*(?://|/?\*).*", "", line)
        for found in re.findall(r'"((?:[^"\\]|\\.)*)"|`([^`]*)`', code):
            text = found[0] or found[1]
            if " " in text:
                yield Text(name, number, text)


def _helps(makefile: str, name: str) -> Iterator[Text]:
    for number, line in enumerate(makefile.splitlines(), 1):
        if "## " in line:
            yield Text(name, number, line.partition("## ")[2])


def _paragraphs(page: str, name: str) -> Iterator[Text]:
    number = 1
    for paragraph in re.split(r"(\n\s*\n)", page):
        if paragraph.strip():
            yield Text(name, number, paragraph)
        number += paragraph.count("\n")


def banned(found: Text) -> Iterator[str]:
    """A line for each phrase in a text that should be another one."""
    for pattern, instead, except_in in BANNED:
        if re.match(except_in, found.path):
            continue
        for match in re.finditer(pattern.replace(" ", r"\s+"), found.text, re.IGNORECASE):
            line = found.line + found.text.count("\n", 0, match.start())
            before = found.text[max(0, match.start() - 30) : match.end() + 30]
            yield f"{found.path}:{line}: “{' '.join(before.split())}” (write: {instead})"


def misspelt(found: list[Text]) -> list[str]:
    """What codespell says, with our places instead of those in the file it was given."""
    places: list[Text] = []
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        for one in found:
            for offset, line in enumerate(one.text.splitlines()):
                file.write(line + "\n")
                places.append(Text(one.path, one.line + offset, line))
        file.flush()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "codespell_lib",
                "--ignore-words-list",
                ",".join(IGNORED_WORDS),
                file.name,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    said = []
    for line in done.stdout.splitlines():
        _, number, text = line.split(":", 2)
        place = places[int(number) - 1]
        said.append(f"{place.path}:{place.line}:{text}")
    return said


def main() -> None:
    """Print every finding; 1 if there is one."""
    found = list(texts())
    said = [line for one in found for line in banned(one)] + misspelt(found)
    for line in said:
        print(line)
    if said:
        sys.exit(f"style: {len(said)} to mend")


if __name__ == "__main__":
    main()
