"""The check of words finds what it should, and nothing else."""

from __future__ import annotations

import pytest

from tests.style_check import Text, banned, literals, misspelt, strings


def _found(text: str, path: str = "docs/x.md") -> list[str]:
    return list(banned(Text(path, 1, text)))


@pytest.mark.parametrize(
    "text",
    [
        "the topic is made anew",
        "it waits for\n    ever",
        "a pipe is no answer",
        "bytes that are no batch",
        "for who reads it",
        "at most so many rows",
        "removed 2 rule(s)",
        "see the the page",
    ],
)
def test_a_banned_phrase_is_found_also_over_two_lines(text: str) -> None:
    assert len(_found(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "there is no topic 'x'",
        "it is no longer there",
        "it goes on forever",
        "for those who read it",
        "there are no members",
        "a new one",
    ],
)
def test_plain_english_passes(text: str) -> None:
    assert _found(text) == []


def test_the_place_is_the_line_in_the_file() -> None:
    source = 'def f():\n    """One.\n\n    It is done anew.\n    """\n    # anew in a comment\n'
    (found,) = [line for text in strings(source, "a.py") for line in banned(text)]
    assert found.startswith("a.py:4:")


@pytest.mark.parametrize("quote", ['"', "`"])
def test_strings_of_other_languages_are_looked_at_and_comments_are_not(quote: str) -> None:
    source = f"// done anew\n * done anew\nsay({quote}it is done anew{quote});\n"
    (found,) = [line for text in literals(source, "a.js") for line in banned(text)]
    assert found.startswith("a.js:3:")


def test_a_typing_mistake_is_found_at_its_line() -> None:
    (said,) = misspelt([Text("docs/x.md", 7, "fine\nrecieve a record\n")])
    assert said.startswith("docs/x.md:8: recieve")
