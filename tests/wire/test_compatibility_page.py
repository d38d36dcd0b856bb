"""The compatibility page says what the declarations say, and leaves no API of Kafka out."""

from __future__ import annotations

from docs.generate_compatibility import NOT_DECLARED, PAGE, page

from shoal.wire.apis.registry import API

# The last key of Apache Kafka 4.3: DeleteShareGroupOffsets.
LAST_KEY = 92


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run: python -m docs.generate_compatibility"


def test_every_key_of_the_protocol_is_declared_or_named_as_missing():
    missing = [key for keys, _ in NOT_DECLARED.values() for key in keys]
    assert sorted([*API, *missing]) == list(range(LAST_KEY + 1))


def test_a_row_names_versions_and_notes():
    rows = [line for line in page().splitlines() if line.startswith("| 12 |")]
    assert rows == [
        "| 12 | Heartbeat | 0-4 | 4 | 0-4 | a member of a classic group says that it lives and"
        " learns of a rebalance.<br>v3 static members (KIP-345) · v4 flexible. |"
    ]
