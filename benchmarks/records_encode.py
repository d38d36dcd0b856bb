"""Encoding record batches: from Arrow columns and from lists, against other clients' builders.

The records of ``records_decode``, into batches of 16 KiB, 64 KiB and 1 MiB. Figures are records
per second of CPU time on one core. aiokafka's lz4 level is 9, ours the codec's default.

Goal: 100-byte values from Arrow at 15 M records/s.

    python -m benchmarks records_encode
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.records_decode import CHUNK_BYTES, python_kernel, some_records, speeds
from shoal.records.batch import NewRecord
from shoal.records.columns import arrow_schema, encode_columns
from shoal.records.compression import Codec


class Columns:
    """The same records as Arrow arrays and as lists."""

    def __init__(self, records: Sequence[NewRecord]) -> None:
        keys, values, headers, timestamps = (list(c) for c in zip(*records, strict=True))
        self.lists = {"keys": keys, "values": values, "headers": headers, "timestamps": timestamps}
        pairs = [[{"key": key, "value": value} for key, value in row] or None for row in headers]
        self.arrow = {
            "keys": pa.array(keys, pa.binary()),
            "values": pa.array(values, pa.binary()),
            "timestamps": pa.array(timestamps, pa.timestamp("ms", "UTC")),
            "headers": pa.array(pairs, arrow_schema(["headers"])[0].type),
        }


def with_builder(records: Sequence[NewRecord], new_builder: Any) -> list[bytes]:
    """How those clients fill batches: append until one is full."""
    done, builder, index = [], new_builder(), 0
    for key, value, headers, timestamp in records:
        if builder.append(index, timestamp, key, value, headers) is None:
            done.append(bytes(builder.build()))
            builder, index = new_builder(), 0
            builder.append(index, timestamp, key, value, headers)
        index += 1
    return [*done, bytes(builder.build())]


def kafka_python(records: Sequence[NewRecord], codec: int, size: int) -> list[bytes]:
    return with_builder(records, lambda: KafkaPythonBuilder(2, codec, False, -1, -1, -1, size))


def aiokafka(records: Sequence[NewRecord], codec: int, size: int) -> list[bytes]:
    def new_builder() -> Any:
        return AioBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=size,
        )

    return with_builder(records, new_builder)


class Input(NamedTuple):
    """The same records as each contestant wants them."""

    columns: Columns
    records: Sequence[Any]


def inputs_of(value_bytes: int) -> tuple[list[Input], int]:
    count = CHUNK_BYTES // (value_bytes + 30)
    inputs = []
    for seed in range(4):
        records = some_records(count, value_bytes, seed)
        as_lists = [(key, value, list(pairs), time) for key, value, pairs, time in records]
        inputs.append(Input(Columns(records), as_lists))
    return inputs, count


def ours(columns: dict[str, Any], size: int, codec: int = 0) -> object:
    return encode_columns(**columns, batch_bytes=size, codec=codec)


def by_python(columns: dict[str, Any], size: int) -> object:
    with python_kernel():
        return ours(columns, size)


def measure(report: Report, name: str, value_bytes: int, size: int) -> None:
    work: dict[str, Callable[[Input], object]] = {
        "arrow": lambda one: ours(one.columns.arrow, size),
        "lists": lambda one: ours(one.columns.lists, size),
        "fallback": lambda one: by_python(one.columns.lists, size),
        "aiokafka": lambda one: aiokafka(one.records, 0, size),
        "kafka-python": lambda one: kafka_python(one.records, 0, size),
    }
    speed = speeds(work, *inputs_of(value_bytes))
    label = f"{name}, {size // 1024} KiB batches"
    goal = ">= 15,000,000" if value_bytes == 100 else ""
    for what, contestant, peer, wanted in (
        ("from Arrow", "arrow", "aiokafka", goal),
        ("from lists", "lists", "aiokafka", ""),
        ("from lists, Python kernel", "fallback", "kafka-python", ""),
    ):
        text = f"{label}: {what}"
        report.add(Row(text, "records/s", speed[contestant], speed[peer], peer, goal=wanted))


def measure_codec(report: Report, value_bytes: int, codec: Codec) -> None:
    work: dict[str, Callable[[Input], object]] = {
        "arrow": lambda one: ours(one.columns.arrow, 65_536, codec),
        "aiokafka": lambda one: aiokafka(one.records, codec, 65_536),
    }
    speed = speeds(work, *inputs_of(value_bytes))
    text = f"{value_bytes} B, 64 KiB batches, {codec.name.lower()}: from Arrow"
    report.add(Row(text, "records/s", speed["arrow"], speed["aiokafka"], "aiokafka"))


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("records_encode", ("pyarrow", "aiokafka", "kafka-python", "cramjam", "lz4"))
    for size in (16 * 1024, 64 * 1024, 1024 * 1024):
        measure(report, "100 B", 100, size)
    measure(report, "1 KiB", 1024, 64 * 1024)
    for codec in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP):
        measure_codec(report, 100, codec)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
