"""Batches to Arrow columns: types, nulls, headers, slices, limits; equal with both kernels."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptDataError
from shoal.records import columns as columns_module
from shoal.records.batch import encode_batch
from shoal.records.chunks import Chunk
from shoal.records.columns import (
    COLUMNS,
    arrow_schema,
    decode_columns,
    iter_columns,
    rows_by_partition,
)
from shoal.records.kernel import Layout
from shoal.types import TimestampType
from tests.records.generate import Sample, each_kernel, needs_kernel, plain, samples, using

pa = pytest.importorskip("pyarrow")

_MS_MAX = (2**63 - 1) // 1000


def table(chunks: Any, name: str, **options: Any) -> Any:
    with using(name):
        arrow_batch = decode_columns(chunks, **options)
    arrow_batch.validate(full=True)
    return arrow_batch


def test_the_types_are_spark_s_own() -> None:
    assert str(arrow_schema()).splitlines()[:8] == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestamp_type: int32",
        "headers: list<element: struct<key: string, value: binary>>",
    ]
    assert all(field.nullable for field in arrow_schema())
    assert arrow_schema(["timestampType", "key"]).names == ["timestampType", "key"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "ab"]),
            st.sampled_from([0, 1, 2**31 - 1]),
            st.integers(1, 3),
        )
    ),
    st.integers(0, 3),
)
def test_rows_are_counted_by_topic_and_partition(
    runs: list[tuple[str, int, int]], skipped: int
) -> None:
    rows = [(topic, partition) for topic, partition, times in runs for _ in range(times)]
    arrow_batch = pa.RecordBatch.from_pylist(
        [{"topic": topic, "partition": partition} for topic, partition in rows],
        schema=arrow_schema(["topic", "partition"]),
    )
    assert rows_by_partition(arrow_batch.slice(skipped)) == Counter(rows[skipped:])


@pytest.mark.spark
@pytest.mark.slow
def test_spark_would_declare_exactly_this_schema() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from pyspark.sql.pandas.types import to_arrow_schema

    header = types.StructType().add("key", "string").add("value", "binary")
    declared = (
        types.StructType()
        .add("key", "binary")
        .add("value", "binary")
        .add("topic", "string")
        .add("partition", "integer")
        .add("offset", "long")
        .add("timestamp", "timestamp")
        .add("timestampType", "integer")
        .add("headers", types.ArrayType(header))
    )
    ours = arrow_schema([*COLUMNS[:6], "timestampType", "headers"])
    assert ours.equals(to_arrow_schema(declared, timezone="UTC"), check_metadata=True)


def test_a_column_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="column 'timestamps' does not exist; there are key, val"):
        arrow_schema(["timestamps"])


@each_kernel
def test_rows_say_where_they_come_from(kernel_name: str) -> None:
    by_broker = encode_batch(
        [(b"k", b"v", (), 5)],
        base_offset=40,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp_ms=-1,
    )
    arrow_batch = table(
        [("a", 3, plain(2, base_offset=7), 0, None), Chunk("bé", 4, by_broker)], kernel_name
    )
    assert arrow_batch.schema.equals(arrow_schema())
    rows = arrow_batch.to_pylist()
    assert [row["topic"] for row in rows] == ["a", "a", "bé"]
    assert [row["partition"] for row in rows] == [3, 3, 4]
    assert [row["offset"] for row in rows] == [7, 8, 40]
    assert [row["timestamp_type"] for row in rows] == [0, 0, 1]
    assert [row["timestamp"].timestamp() for row in rows] == [1.7e9, 1.7e9 + 0.01, -0.001]
    assert [row["key"] for row in rows] == [b"k7", b"k8", b"k"]


@needs_kernel
@pytest.mark.parametrize("topic", ["orders", "bé"])
def test_batches_of_one_topic_share_the_memory_that_says_so(topic: str) -> None:
    columns = [
        table([(topic, 0, plain(rows), 0, None)], "c")["topic"] for rows in (3, 4, 1, 1000, 3)
    ]
    assert [set(column.to_pylist()) for column in columns] == [{topic}] * 5
    assert [len(column) for column in columns] == [3, 4, 1, 1000, 3]
    places = [column.buffers()[2].address for column in columns]
    assert places[0] == places[1], "both fit into room for four rows"
    # No more of it belongs to a column than its rows, whatever it shares.
    assert [column.buffers()[2].size for column in columns] == [
        len(topic.encode()) * len(column) for column in columns
    ]


@needs_kernel
def test_a_topic_column_too_large_to_keep_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_KEPT_BYTES_MAX", 0)
    chunks = [("orders", 0, plain(5), 0, None)]
    one, other = (table(chunks, "c")["topic"] for _ in range(2))
    assert one.to_pylist() == ["orders"] * 5
    assert one.buffers()[2].address != other.buffers()[2].address


@each_kernel
def test_a_record_without_headers_has_null_and_not_an_empty_list(kernel_name: str) -> None:
    records = [
        (None, b"", (), 0),
        (None, b"", (("a", b"1"), ("a", None), ("", b"")), 0),
        (None, None, (), 0),
    ]
    arrow_batch = table([("t", 0, encode_batch(records), 0, None)], kernel_name)
    assert arrow_batch["headers"].to_pylist() == [
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}],
        None,
    ]
    assert arrow_batch["key"].null_count == 3
    assert arrow_batch["value"].to_pylist() == [b"", b"", None]


@each_kernel
def test_no_headers_at_all_are_all_null(kernel_name: str) -> None:
    data = encode_batch([(b"k", b"v", (), 0)] * 3)
    assert table([("t", 0, data, 0, None)], kernel_name)["headers"].null_count == 3


@each_kernel
def test_header_keys_are_always_text(kernel_name: str) -> None:
    good = encode_batch([(None, None, (("xx", b"1"), ("é", b"2")), 0)])
    bad = good.replace(b"xx", b"\xff\xc3")
    arrow_batch = table([("t", 0, bad, 0, None)], kernel_name, check_crc=False)
    assert [header["key"] for header in arrow_batch["headers"][0].as_py()] == ["\ufffd\ufffd", "é"]


@each_kernel
def test_only_the_columns_asked_for_are_made(kernel_name: str) -> None:
    chunk = ("t", 0, plain(50), 0, None)
    whole = table([chunk], kernel_name)
    for name in COLUMNS:
        assert table([chunk], kernel_name, columns=[name]).equals(whole.select([name]))
    assert table([chunk], kernel_name, columns=["offset", "key"]).equals(
        whole.select(["offset", "key"])
    )
    spark = table([chunk], kernel_name, columns=["timestampType"])
    assert spark["timestampType"].equals(whole["timestamp_type"])


@each_kernel
def test_nothing_gives_no_rows_but_a_schema(kernel_name: str) -> None:
    for chunks in ([], [("t", 0, b"", 0, None)], [("t", 0, plain(3), 99, None)]):
        empty = table(chunks, kernel_name)
        assert (empty.num_rows, empty.schema) == (0, arrow_schema())
        with using(kernel_name):
            assert list(iter_columns(chunks)) == []


@each_kernel
def test_a_batch_whose_wanted_records_compaction_took_gives_no_rows(kernel_name: str) -> None:
    one = encode_batch([(b"k", b"v", (), 0)], base_offset=10, last_offset=20)
    chunk = ("t", 0, one * 3, 15, None)
    assert table([chunk], kernel_name).num_rows == 0
    with using(kernel_name):
        assert list(iter_columns([chunk], max_bytes=1)) == []


@each_kernel
def test_rows_can_be_limited(kernel_name: str) -> None:
    chunk = ("t", 0, plain(50), 0, None)
    assert table([chunk], kernel_name, max_rows=7)["offset"].to_pylist() == list(range(7))
    assert table([chunk], kernel_name, max_rows=70).num_rows == 50


@each_kernel
@pytest.mark.parametrize("codec", [0, 4])
def test_parts_are_cut_by_bytes_and_by_rows(kernel_name: str, codec: int) -> None:
    data = b"".join(plain(50, base_offset=50 * i, codec=codec) for i in range(6))
    with using(kernel_name):
        by_bytes = list(iter_columns([("t", 0, data, 0, None)], max_bytes=5000))
        by_rows = list(iter_columns([("t", 0, data, 0, None)], max_rows=40))
        whole = decode_columns([("t", 0, data, 0, None)])
    assert [part.num_rows for part in by_bytes] == [100, 100, 100]
    assert [part.num_rows for part in by_rows] == [40] * 7 + [20]
    for parts in (by_bytes, by_rows):
        assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(whole)


@each_kernel
def test_what_is_good_comes_before_the_error(kernel_name: str) -> None:
    data = bytearray(plain(3) + plain(3, base_offset=3))
    data[-1] ^= 1
    with using(kernel_name):
        parts = iter_columns([("t", 0, data, 0, None)])
        assert next(parts)["offset"].to_pylist() == [0, 1, 2]
        with pytest.raises(CorruptDataError, match="offset 3: its checksum fails"):
            next(parts)
        with pytest.raises(CorruptDataError, match="offset 3: its checksum fails"):
            decode_columns([("t", 0, data, 0, None)])


@each_kernel
@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), (2**63 - 1) // 1000 + 1])
def test_a_timestamp_beyond_microseconds_is_an_error_where_it_is_asked_for(
    kernel_name: str, time: int
) -> None:
    chunk = ("t", 0, encode_batch([(None, b"v", (), time)]), 0, None)
    assert table([chunk], kernel_name, columns=["value"]).num_rows == 1
    with pytest.raises(CorruptDataError, match=f"timestamp {time} ms does not fit"):
        table([chunk], kernel_name)


@each_kernel
def test_more_than_a_column_can_hold_has_to_be_taken_in_parts(
    kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "COLUMN_BYTES_MAX", 5000)
    data = b"".join(plain(50, base_offset=50 * i) for i in range(6))
    chunk = ("t", 0, data, 0, None)
    with using(kernel_name):
        with pytest.raises(ValueError, match="more than 2 GiB of records in one call"):
            decode_columns([chunk])
        assert [part.num_rows for part in iter_columns([chunk])] == [100, 100, 100]
        # A long topic fills its column sooner than the records fill theirs.
        long = ("t" * 20, 0, data, 0, None)
        assert [part.num_rows for part in iter_columns([long])] == [50] * 6
        without = iter_columns([long], columns=["value"])
        assert [part.num_rows for part in without] == [100, 100, 100]


@needs_kernel
def test_batches_which_change_under_our_hands_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(plain(40))

    def meddle() -> Any:
        data[data.index(b"\x02n")] = 0x7F  # a header's length is not what it was when measured
        return Layout()

    monkeypatch.setattr(columns_module, "Layout", meddle)
    with using("c"), pytest.raises(CorruptDataError, match="changed while"):
        decode_columns([("t", 0, data, 0, None)])


@pytest.mark.slow
@needs_kernel
@given(st.lists(samples(), max_size=3), st.sets(st.sampled_from(COLUMNS), min_size=1))
def test_both_kernels_give_the_same_columns(found: list[Sample], names: set[str]) -> None:
    chunks = [(f"topic-{i % 2}", i, sample.data, 0, None) for i, sample in enumerate(found)]
    columns = sorted(names)
    if "timestamp" in names and not all(
        -_MS_MAX <= row[1] <= _MS_MAX for s in found for row in s.rows
    ):
        for name in ("python", "c"):
            with pytest.raises(CorruptDataError, match="does not fit into microseconds"):
                table(chunks, name, columns=columns)
        return
    expected = table(chunks, "python", columns=columns)
    actual = table(chunks, "c", columns=columns)
    assert actual.equals(expected)
    if "headers" in names and expected.num_rows:
        rows = [row for sample in found for row in sample.rows]
        assert actual["headers"].to_pylist() == [
            [{"key": key, "value": value} for key, value in row[4]] or None for row in rows
        ]


def test_arrow_is_loaded_only_when_it_is_used() -> None:
    """This module is about Arrow; what reads and writes records without columns never loads it."""
    users = "shoal.client.consumer, shoal.client.producer, shoal.client.ranges, shoal.log.partition"
    code = f"import {users}, sys; sys.exit(bool({{'pyarrow', 'numpy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
