"""``consume --json`` into ``produce --json``: the same bytes, whatever they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Consumer, Producer
from shoal.cli.consume import _as_json
from shoal.cli.output import bytes_of, json_of, json_text
from shoal.cli.produce import record_of
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import Record, TimestampType, TopicPartition
from tests.cli.conftest import QuickRun
from tests.cli.test_commands import one_line  # noqa: F401  # the same reading of errors

BYTES = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)


@given(BYTES)
def test_any_bytes_come_back_from_json(data: bytes | None) -> None:
    assert bytes_of(json.loads(json_text(json_of(data)))) == data


def test_text_that_looks_like_the_marker_stays_text() -> None:
    for text in ('{"base64": "aGk="}', "null", '"x"', "\\xff"):
        assert json_of(text.encode()) == text
        assert bytes_of(text) == text.encode()


@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
    timestamp_ms=st.integers(0, 2**48),
    partition=st.integers(0, 99),
)
def test_a_record_goes_through_a_line_unchanged(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
    partition: int,
) -> None:
    record = Record(
        "t", partition, 7, timestamp_ms, TimestampType.CREATE_TIME, key, value, tuple(headers)
    )
    line = json_text(_as_json(record))
    assert "\n" not in line
    found = record_of(line.encode(), number=1)
    assert (found.key, found.value, list(found.headers)) == (key, value, headers)
    assert (found.timestamp_ms, found.partition) == (timestamp_ms, partition)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("herring", "line 3 is not JSON: herring (plain lines are read without --json)"),
        ("[1]", "line 3 is not an object"),
        ('{"vlaue": "x"}', "unknown field 'vlaue'; did you mean 'value'?"),
        ('{"value": 7}', 'line 3, value: give a string, null, or {"base64": "…"}'),
        ('{"key": {"base64": "?"}}', "line 3, key: its base64 is damaged"),
        ('{"key": {"base64": "aGk=", "more": 1}}', "line 3, key: give a string"),
        ('{"headers": [["a"]]}', "line 3, headers:"),
        ('{"headers": [[1, "a"]]}', "line 3, headers: a header is [name, value]"),
        ('{"headers": 5}', "line 3, headers:"),
        ('{"timestamp_ms": "now"}', "line 3, timestamp_ms: 'now' is not a whole number"),
        ('{"partition": true}', "line 3, partition: True is not a whole number"),
        ("[" * 100_000, "line 3 is not JSON"),
    ],
)
def test_a_line_that_is_no_record_says_which_and_why(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        record_of(line.encode(), number=3)
    assert said in str(caught.value)


ODD: list[tuple[bytes | None, bytes | None, Any]] = [
    (b"k", b"plain", ()),
    (None, b"\xff\x00\xfe", (("trace", b"\x80"), ("empty", b""))),
    (b"\xc3", None, (("none", None),)),
    (b"", b"", ()),
    ("зубатка".encode(), b'{"base64": "aGk="}', ()),
    (b"line\nbreak", b"\r\n", ()),
]


def _read(servers: str, topic: str) -> list[Any]:
    with Consumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
        tps = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        found: list[Any] = []
        while len(found) < len(ODD):
            found += consumer.poll(1.0)
    return sorted(
        ((r.partition, r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in found),
        key=lambda row: row[:2],
    )


def test_a_topic_is_copied_exactly(quick: QuickRun, broker: Broker) -> None:
    servers = broker.bootstrap_servers
    for name in ("odd", "copy"):
        assert quick("topic", "create", name, "-p", "2").exit_code == 0
    with Producer(bootstrap_servers=servers) as producer:
        for number, (key, value, headers) in enumerate(ODD):
            producer.send(
                "odd", value, key, partition=number % 2, timestamp_ms=1000 + number, headers=headers
            )
        producer.flush()
    lines = quick("consume", "odd", "--json").stdout
    done = quick("produce", "copy", "--json", "--keep-partitions", stdin=lines)
    assert json.loads(done.stdout) == {"topic": "copy", "records": len(ODD)}
    assert _read(servers, "copy") == _read(servers, "odd")


def test_flags_that_contradict_json_are_refused(quick: QuickRun) -> None:
    for flags in (["-k", ":"], ["--null-marker", "-"], ["--whole"]):
        shown = quick("produce", "odd", "--json", *flags)
        assert "--json lines name their key and value" in str(shown.exception)
    assert "goes with --json" in str(quick("produce", "odd", "--keep-partitions").exception)
