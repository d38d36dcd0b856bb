"""The help of every command: whole at any width, with examples that work, without type names."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from shoal.cli.commands import COMMANDS, app
from shoal.cli.examples import EXAMPLES
from shoal.cli.helping import prepare, words_of

WIDTHS = (60, 80, 120)


def _tree() -> dict[tuple[str, ...], Any]:
    """Every command by its words, groups too."""
    found: dict[tuple[str, ...], Any] = {(): None}
    for name, entry in COMMANDS.items():
        module = import_module(entry.module)
        prepare(module.app)
        module.app._add_completion = False
        command = typer.main.get_command(module.app)
        found[(name,)] = command
        for sub, one in getattr(command, "commands", {}).items():
            found[(name, sub)] = one
    return found


TREE = _tree()
PAGES = sorted(TREE)


def _help(words: tuple[str, ...], width: int) -> str:
    shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=width)
    assert shown.exit_code == 0, shown.output
    return shown.stdout


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_fits_every_width_and_breaks_no_word(words: tuple[str, ...]) -> None:
    pages = {width: _help(words, width) for width in WIDTHS}
    for width, page in pages.items():
        for line in page.splitlines():
            assert len(line) <= width, f"{width}: {line}"
            assert line.startswith("Usage:") or not line.rstrip().endswith("..."), f"cut: {line}"
    told = {width: _words(page) for width, page in pages.items()}
    assert told[60] == told[80] == told[120]


def _words(page: str) -> list[str]:
    """The words of a page in their order of the alphabet: lines may break, words may not."""
    return sorted(word for word in page.split() if word != "\\")


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_names_values_in_words_of_the_user(words: tuple[str, ...]) -> None:
    page = _help(words, 100)
    assert not re.search(r"<(?:str|int|float|list|path|bool)", page)
    assert "{" not in page.splitlines()[0], "the usage names its arguments without braces"
    if "--bootstrap" in page:
        panel = page.partition("\nConnection:\n")[2].partition("\n\n")[0]
        for flag in ("--bootstrap", "--profile", "--timeout", "--sasl-username"):
            assert flag in panel


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_every_option_says_what_it_does(words: tuple[str, ...]) -> None:
    command = TREE[words]
    for param in command.params if command is not None else ():
        if not getattr(param, "hidden", False):
            assert (param.help or "").strip(), f"{' '.join(words)}: {param.name}"


def _leaves() -> list[tuple[str, ...]]:
    return [
        words for words, one in TREE.items() if one is not None and not hasattr(one, "commands")
    ]


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    without = [" ".join(words) for words in _leaves() if " ".join(words) not in EXAMPLES]
    # Commands of parts that others bring along come with examples of their own.
    assert without == []
    known = {" ".join(words) for words in TREE}
    assert set(EXAMPLES) <= known


@pytest.mark.parametrize(
    ("name", "example"), [(name, line) for name, lines in EXAMPLES.items() for line, _ in lines]
)
def test_an_example_is_a_line_the_program_takes(name: str, example: str) -> None:
    assert len(example) <= 76
    words = words_of(example)
    if name:
        assert " ".join(words[: len(name.split())]) == name
    length = 2 if (words[0], words[1] if len(words) > 1 else "") in TREE else 1
    command = TREE[tuple(words[:length])]
    context = command.make_context(
        " ".join(words[:length]), words[length:], resilient_parsing=False
    )
    assert not context.args
