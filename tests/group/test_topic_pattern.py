"""Regular expressions over topic names: RE2's syntax, and never slow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.group.coordinator.topic_pattern import (
    DEPTH_MAX,
    STATES_MAX,
    TEXT_MAX,
    TopicPattern,
)


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("orders", "orders", "orders2"),
        ("^topic", "topic", "topic1"),  # The whole name, though librdkafka's users expect less.
        ("a.*z", "az", "azb"),
        ("(a)|(b)", "b", "c"),
        ("a{2,3}", "aaa", "aaaa"),
        ("a{2,}", "aaaaa", "a"),
        ("a{2}", "aa", "aaa"),
        ("x(yz)?", "xyz", "xyzyz"),
        ("(?i)Orders", "oRDERS", "order"),
        ("(?i:a)b", "Ab", "AB"),
        ("a(?i)b|c", "aB", "C1"),
        ("[^0-9]+", "a-b", "a1"),
        ("[a-c-]+", "a-c", "d"),
        ("[]a]", "a", "b"),
        (r"[\d_]+", "1_2", "a"),
        (r"\w+\.\W", "ab.-", "ab.c"),
        (r"\D\S", "ab", "1b"),
        (r"\Qa.b\E+", "a.bb", "axb"),
        (r"\x61\x{62}\141", "aba", "abb"),
        (r"\pL\p{Nd}\PL", "a12", "a1b"),
        (r"\p{Lu}\p{^Lu}\p{Latin}", "Aab", "aab"),
        (r"[[:alpha:]][[:^digit:]][[:punct:]]", "aB.", "a1."),
        (r"\ba\b-\bb\b", "a-b", "a_b"),
        (r"a\Bb", "ab", "a"),
        (r"\Aa\z", "a", "b"),
        ("(?P<name>a)(?<other>b)", "ab", "a"),
        ("(?s-i:a.)U?", "ab", "A."),
        ("a{,2}", "a", "aa"),  # Not a repetition, so it matches nothing that could be a name.
        ("a|", "a", "b"),
        ("(a|b|)c", "c", "d"),
        (r"a+?b*?c??", "aab", "c"),
        (r"\.\-\_", ".-_", "abc"),
    ],
)
def test_what_matches(text: str, good: str, bad: str) -> None:
    pattern = TopicPattern(text)
    assert not pattern.matches(bad)
    if text != "a{,2}":
        assert pattern.matches(good)


@pytest.mark.parametrize(
    "text",
    [
        "(", "a)", "[", "[a", "*", "+a", "?", "{2}", "a**", "a+*", "a{2}{3}", "a{3,2}", "a{1001}",
        r"\1", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?P=n)", "(?P<n", "(?P<>a)",
        "(?P<n>a)(?P<n>b)", "(?z)", "(?i", "(?-)", "[b-a]", "[[:nope:]]", r"\pX", r"\p{Klingon}",
        r"\p{L", r"\xg", r"\x{110000}", r"\x{", "\\", r"\y", "(?#comment)", "(" * (DEPTH_MAX + 2),
    ],
)  # fmt: skip
def test_what_re2_does_not_take(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        TopicPattern(text)
    assert str(caught.value)


def test_what_is_too_large() -> None:
    with pytest.raises(ValueError, match="too large"):
        TopicPattern("((a{100}){100}){100}")
    with pytest.raises(ValueError, match="longer"):
        TopicPattern("a" * (TEXT_MAX + 1))
    assert STATES_MAX < TEXT_MAX


@pytest.mark.parametrize(
    "text", ["(a*)*b", "(a|aa)+b", "(a|b)*a(a|b){200}", "(.*)*(.*)*x", "((a?){30}){30}"]
)
def test_nothing_makes_it_slow(text: str) -> None:
    """By the work it does: Python's own would need longer than there is time."""
    pattern = TopicPattern(text)
    pattern.matches("ab" * 124)
    assert pattern.work < 300 * STATES_MAX


letters = st.sampled_from("ab.")
expressions = st.recursive(
    letters | st.sampled_from([".", "[ab]", "[^a]", r"\w", "", r"\."]),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        )
    ),
    max_leaves=6,
)


@given(expressions, st.lists(st.text("ab.", max_size=6), max_size=5))
def test_it_agrees_with_python(text: str, names: list[str]) -> None:
    """On expressions that mean the same to both."""
    pattern = TopicPattern(text)
    for name in names:
        assert pattern.matches(name) == (re.fullmatch(text, name) is not None), (text, name)
