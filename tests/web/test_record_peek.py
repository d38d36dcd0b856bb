"""Filters are data, previews are honest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shoal.errors import ConfigError
from shoal.types import TopicPartition
from shoal.web.record_peek import PREVIEW_BYTES, RecordFilter, _preview, _settled, _steps


def matches(field: str, operator: str, wanted: str, **row: object) -> bool:
    one = RecordFilter.of({"field": field, "operator": operator, "value": wanted})
    return one.matches({"key": None, "value": None, "headers": None, **row})


def test_what_is_not_there_meets_no_condition() -> None:
    for operator in ("contains", "is", "is not", "begins with"):
        assert not matches("key", operator, "x")
        assert not matches("header:a", operator, "x", headers=[{"key": "b", "value": b"x"}])
        assert not matches("json:a.b", operator, "x", value=b'{"a": 1}')
        assert not matches("json:a", operator, "x", value=b"no json")


def test_a_field_inside_json_is_compared_as_it_is_written() -> None:
    value = b'{"a": {"b": "x", "n": 12, "yes": true}}'
    assert matches("json:a.b", "is", "x", value=value)
    assert matches("json:a.n", "is", "12", value=value)
    assert matches("json:a.yes", "is", "true", value=value)
    assert matches("json:a", "contains", '"n": 12', value=value)


def test_nesting_without_end_is_no_match_and_no_crash() -> None:
    assert not matches("json:a", "is", "x", value=b"[" * 100_000)
    assert _preview(b"[" * 3_000)["kind"] == "text"


@pytest.mark.parametrize(
    "given",
    [
        None,
        "value",
        {},
        {"field": "value", "operator": "is"},
        {"field": "value", "operator": "is", "value": 1},
        {"field": "value", "operator": "is", "value": "x" * 1_001},
        {"field": "value", "operator": "regex", "value": "x"},
        {"field": "__class__", "operator": "is", "value": "x"},
        {"field": "exec:x", "operator": "is", "value": "x"},
        {"field": "header:", "operator": "is", "value": "x"},
        {"field": "value", "operator": "is", "value": "x", "more": "y"},
    ],
)
def test_what_is_no_condition_is_refused(given: object) -> None:
    with pytest.raises(ConfigError):
        RecordFilter.of(given)


def test_a_preview_says_what_it_left_out() -> None:
    assert _preview(None) == {"kind": "null", "text": "", "bytes": 0, "cut": False}
    long = _preview(b"x" * (PREVIEW_BYTES + 1))
    assert (long["cut"], long["bytes"], len(long["text"])) == (True, 4097, 4096)
    assert _preview(b"\xff\x00")["text"] == "ff 00"
    assert _preview(b'{"n": 9007199254740993}')["pretty"] == '{\n  "n": 9007199254740993\n}'
    assert _preview(b"<b>")["kind"] == "text"


def test_every_offset_is_looked_at_once_from_either_end() -> None:
    ranges = {TopicPartition("t", 0): (3, 1000), TopicPartition("t", 1): (0, 10)}
    for is_newest in (True, False):
        seen: dict[TopicPartition, list[int]] = {tp: [] for tp in ranges}
        for step, _ in _steps(ranges, is_newest=is_newest):
            for tp, (start, end) in step.items():
                seen[tp] += range(start, end)
        assert {tp: sorted(found) for tp, found in seen.items()} == {
            tp: list(range(*one)) for tp, one in ranges.items()
        }


def test_a_busy_partition_that_was_not_looked_through_keeps_older_records_back() -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    found = [{"timestamp": at(second)} for second in (1, 5, 9)]
    assert _settled(found, [], is_newest=True) == 3
    assert _settled(found, [at(5)], is_newest=True) == 2
    assert _settled(found, [at(5), at(8)], is_newest=True) == 1
    assert _settled(found, [at(5), at(8)], is_newest=False) == 2
