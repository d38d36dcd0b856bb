"""Tables at any width: nothing cut, no word broken, never wider than the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.output import print_table, wrapped
from shoal.cli.tables import Column, lay_out
from shoal.testing.broker import Broker
from tests.cli.conftest import Run
from tests.cli.test_terminal import on_terminal, without_colours

WORD = st.text("abcdefgh-_", min_size=1, max_size=11)
CELL = st.lists(WORD, max_size=6).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    height = draw(st.integers(1, 5))
    count = draw(st.integers(1, 6))
    return [
        Column(
            draw(st.lists(CELL, min_size=height, max_size=height)),
            is_numeric=False,
        )
        for _ in range(count)
    ]


def _text(columns: list[Column], width: int) -> list[str]:
    return ["".join(piece.text for piece in line) for line in lay_out(columns, width)]


@given(tables(), st.integers(24, 130))
def test_a_table_fits_and_keeps_every_word_whole(columns: list[Column], width: int) -> None:
    lines = _text(columns, width)
    assert max(map(len, lines), default=0) <= width
    shown = {word for line in lines for word in line.split() if set(word) != {"─"}}
    assert shown == {word for column in columns for cell in column.cells for word in cell.split()}


def test_columns_that_do_not_fit_follow_below_with_the_first_again() -> None:
    columns = [
        Column(["what", "requests"], is_numeric=False),
        *(Column([f"scheme-{n}", f"{n}.00"], is_numeric=True) for n in range(4)),
    ]
    assert _text(columns, 40) == [
        "what      scheme-0  scheme-1  scheme-2",
        "──────────────────────────────────────",
        "requests      0.00      1.00      2.00",
        "",
        "what      scheme-3",
        "──────────────────",
        "requests      3.00",
    ]


def test_only_a_word_wider_than_the_terminal_is_broken_and_loses_nothing() -> None:
    columns = [Column(["topic", "x" * 65], is_numeric=False), Column(["n", "1"], is_numeric=True)]
    lines = _text(columns, 40)
    assert max(map(len, lines)) <= 40
    assert sum(line.count("x") for line in lines) == 65


def test_a_long_line_is_broken_between_words_and_what_follows_is_indented() -> None:
    lines = wrapped("    → do this with shoal group reset --from-file saved.csv", 30)
    assert lines == ["    → do this with shoal group", "      reset --from-file", "      saved.csv"]


def test_a_table_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("orders", 12_345, None, "a b"), ("x" * 120, 1, True, "")]
    print_table(("topic", "lag", "rack", "note"), rows, title="for people")
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert shown.err == "", "nobody is there to read a title"
    assert len(lines) == 3
    assert lines[0].split() == ["topic", "lag", "rack", "note"]
    assert lines[1].split() == ["orders", "12345", "-", "a", "b"]
    assert lines[0].index("lag") == lines[1].index("12345")


COMMANDS = (
    ("topic", "list"),
    ("topic", "describe", "a-topic-with-quite-a-long-name"),
    ("group", "list"),
    ("group", "describe", "the-group-of-all-the-readers"),
    ("group", "lag", "the-group-of-all-the-readers"),
    ("group", "reset", "the-group-of-all-the-readers", "--shift", "1", "--dry-run"),
    ("cluster", "--apis"),
    ("fleet", "report"),
    ("why", "the-group-of-all-the-readers", "--seconds", "0.5"),
    ("why", "nobody", "--seconds", "0.5"),
    ("lab", "compare", "member-crashes"),
    ("lab", "explain", "member-crashes", "-s", "eager"),
    ("lab", "--list"),
    ("plan", "--example", "one-leaves"),
)


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_a_command_shows_fits_the_terminal(
    shoal: Run, broker: Broker, words: tuple[str, ...]
) -> None:
    if words == COMMANDS[0]:
        shoal("topic", "create", "a-topic-with-quite-a-long-name", "-p", "3")
        shoal("produce", "a-topic-with-quite-a-long-name", stdin="a\nb\nc\n")
        shoal(
            "consume",
            "a-topic-with-quite-a-long-name",
            "-g",
            "the-group-of-all-the-readers",
            "-n",
            "1",
        )
    for width in (60, 80, 120):
        with on_terminal(broker, *words, width=width) as terminal:
            shown = without_colours(terminal.read_all()).replace("\r", "")
        assert "Traceback" not in shown
        for line in shown.splitlines():
            assert len(line) <= width, f"{width}: {line}"
        if "topic" in words[:1] or words[0] == "group":
            assert "the-group-of-all-the-readers" in shown or "a-topic-with-quite" in shown


def test_facts_in_a_pipe_are_a_table_before_and_empty_lines_are_between(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = {"group": "billing", "state": "Stable", "epoch": None}
    print_table(("member", "lag"), [("m1", 1200)], title="group billing: Stable", facts=facts)
    print_table(("setting", "value"), [("a", "b")], is_first=False)
    assert capsys.readouterr().out.splitlines() == [
        "group    state   epoch",
        "billing  Stable  -",
        "",
        "member  lag",
        "m1      1200",
        "",
        "setting  value",
        "a        b",
    ]
