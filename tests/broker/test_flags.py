"""The quick way to read flags: it agrees with the parser that explains, or leaves it to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.__main__ import _explained
from shoal.broker.flags import FLAGS, defaults, quick


def test_no_flag_means_the_defaults():
    assert quick([]) == defaults() == _explained([])


def test_values_come_behind_a_flag_or_an_equals_sign():
    wanted = {
        **defaults(),
        "listen": ["127.0.0.1:0", "[::1]:1"],
        "durability": "os",
        "partitions": 3,
    }
    spoken = ["--listen", "127.0.0.1:0", "--listen=[::1]:1", "--durability=os", "--partitions", "3"]
    assert quick(spoken) == wanted == _explained(spoken)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--lissten", "x"],
        ["--list", "x"],
        ["serve"],
        ["--listen"],
        ["--listen", "--json"],
        ["--json=yes"],
        ["--partitions", "0"],
        ["--partitions", "-1"],
        ["--partitions", "²"],
        ["--log-level", "loud"],
        ["--log-format", "xml"],
    ],
)
def test_what_is_unusual_is_left_to_a_parser_that_can_explain(arguments):
    assert quick(arguments) is None


_WORDS = st.sampled_from([*FLAGS, "3", "os", "info", "json", "a=b", "--json=", "--key=k", "-", ""])


@given(st.lists(_WORDS, max_size=6))
def test_whatever_is_read_quickly_is_what_the_parser_says(arguments):
    found = quick(arguments)
    if found is not None:
        assert found == _explained(arguments)
