"""The page says what the tables say."""

from __future__ import annotations

import re

from tests.differential.__main__ import PAGE
from tests.differential.accepted import ACCEPTED
from tests.differential.page import rows


def test_the_page_lists_the_accepted_differences() -> None:
    assert PAGE.read_text().endswith(rows()), "run `make differential`"


def test_every_accepted_difference_is_narrow_and_has_words_for_the_reader() -> None:
    for row in ACCEPTED:
        assert row.api != ".*"
        assert row.where != ".*" or row.case, "all fields of an API only in some cases"
        assert row.kafka
        assert row.shoal
        re.compile(row.where)
