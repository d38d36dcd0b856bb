"""Decoding record batches: Arrow columns and records against aiokafka's and kafka-python's.

One mebibyte of batches at a time, as a fetch returns them, eight different ones in turn: 16-byte
keys (1 % null), values of 100 bytes or 1 KiB (0.5 % null), 10 % of the records with headers, 64 KiB
batches, checksums verified. Figures are records per second of CPU time on one core.
"aiokafka" are the objects of its batch reader (Cython), "aiokafka records" the ConsumerRecords
which its consumer makes of them.

Goals: 100-byte values to Arrow at 20 M records/s and 10x aiokafka's objects; records not slower
than aiokafka's; without the C kernel not slower than kafka-python.

    python -m benchmarks records_decode
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Any

from aiokafka.record.memory_records import MemoryRecords as AioMemory
from aiokafka.structs import ConsumerRecord
from kafka.record.memory_records import MemoryRecords as KafkaPythonMemory

from benchmarks.measuring import Report, Row, json_argument, medians
from shoal.records.batch import NewRecord, encode_batch
from shoal.records.columns import decode_columns
from shoal.records.compression import Codec
from shoal.records.objects import decode_records, iter_records

BATCH_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024
CHUNKS = 8
ROUNDS = 7
TURN_SECONDS = 0.05
COLUMNS = ("key", "value", "offset", "timestamp", "headers")


def some_records(count: int, value_bytes: int, seed: int = 7) -> list[NewRecord]:
    """Records which compress about as well as JSON events do."""
    chance = random.Random(seed)
    words = [chance.randbytes(8).hex().encode() for _ in range(200)]

    def value() -> bytes:
        text = b" ".join(chance.choices(words, k=value_bytes // 17 + 1)) + chance.randbytes(8)
        return text[-value_bytes:]

    def headers() -> tuple[tuple[str, bytes | None], ...]:
        if chance.random() >= 0.1:
            return ()
        return (("source", b"web"), ("trace-id", chance.randbytes(8)))[: chance.randint(1, 2)]

    return [
        (
            None if chance.random() < 0.01 else chance.randbytes(8).hex().encode(),
            None if chance.random() < 0.005 else value(),
            headers(),
            1_700_000_000_000 + 3 * i - chance.randint(0, 50),
        )
        for i in range(count)
    ]


def chunks_of(value_bytes: int, codec: int) -> tuple[list[bytes], int]:
    """Chunks of about a mebibyte before compression, and how many records are in each."""
    per_batch = BATCH_BYTES // (value_bytes + 30)
    count = per_batch * (CHUNK_BYTES // BATCH_BYTES)
    chunks = []
    for seed in range(CHUNKS):
        records = some_records(count, value_bytes, seed)
        batches = [
            encode_batch(records[start : start + per_batch], base_offset=start, codec=codec)
            for start in range(0, count, per_batch)
        ]
        chunks.append(b"".join(batches))
    return chunks, count


def speeds(
    work: Mapping[str, Callable[[Any], object]], inputs: Sequence[Any], count: int
) -> dict[str, float]:
    """Records per second, ``count`` in each input.

    A turn has as many inputs as take some milliseconds: with a single one the figure would be
    that of caches which the contestant before has emptied.
    """
    gc.collect()
    gc.freeze()  # what is here already is not part of anybody's work
    turns: dict[str, Callable[[], object]] = {}
    repeats = {}
    for name, function in work.items():
        function(inputs[0])
        before = time.thread_time()
        function(inputs[0])
        repeats[name] = max(1, round(TURN_SECONDS / (time.thread_time() - before)))
        turns[name] = partial(_turn, function, inputs, repeats[name])
    taken = medians(turns, rounds=ROUNDS)
    return {name: count * repeats[name] / seconds for name, seconds in taken.items()}


def _turn(function: Callable[[Any], object], inputs: Sequence[Any], repeats: int) -> None:
    for _, one in zip(range(repeats), cycle(inputs), strict=False):
        function(one)


def aiokafka_objects(data: bytes) -> list[Any]:
    memory, found = AioMemory(data), []
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        found += batch
    return found


def aiokafka_records(data: bytes) -> list[Any]:
    """As its fetcher makes them."""
    return [
        ConsumerRecord(
            "topic",
            0,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.checksum,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            tuple(record.headers),
        )
        for record in aiokafka_objects(data)
    ]


def kafka_python_objects(data: bytes) -> list[Any]:
    memory, found = KafkaPythonMemory(data), []
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        found += batch
    return found


@contextmanager
def python_kernel() -> Iterator[None]:
    before = os.environ.get("SHOAL_KERNEL")
    os.environ["SHOAL_KERNEL"] = "python"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SHOAL_KERNEL"]
        else:
            os.environ["SHOAL_KERNEL"] = before


def columns(data: bytes, names: Sequence[str] | None = COLUMNS) -> object:
    return decode_columns([("topic", 0, data, 0, None)], columns=names)


def columns_by_python(data: bytes) -> object:
    with python_kernel():
        return columns(data)


def records(data: bytes) -> list[Any]:
    return [record for part in iter_records(("topic", 0, data, 0, None)) for record in part]


CONTESTANTS: dict[str, Callable[[bytes], object]] = {
    "columns": columns,
    "all columns": lambda data: columns(data, None),
    "values": lambda data: columns(data, ["value"]),
    "tuples": lambda data: decode_records(("topic", 0, data, 0, None)),
    "records": records,
    "fallback": columns_by_python,
    "aiokafka": aiokafka_objects,
    "aiokafka records": aiokafka_records,
    "kafka-python": kafka_python_objects,
}


def measure(report: Report, label: str, chunks: Sequence[bytes], count: int) -> None:
    speed = speeds(CONTESTANTS, chunks, count)
    small = label == "100 B"

    def row(what: str, ours: str, peer: str, goal: str = "") -> None:
        report.add(Row(f"{label}: {what}", "records/s", speed[ours], speed[peer], peer, goal=goal))

    row("five columns to Arrow", "columns", "aiokafka", ">= 20,000,000 and >= 10x" if small else "")
    row("all eight columns to Arrow", "all columns", "aiokafka")
    row("the value column alone", "values", "aiokafka")
    row("tuples", "tuples", "aiokafka")
    row("records", "records", "aiokafka records", ">= 1x")
    row("five columns, Python kernel", "fallback", "kafka-python", ">= 1x")


def measure_codec(report: Report, label: str, chunks: Sequence[bytes], count: int) -> None:
    work = {name: CONTESTANTS[name] for name in ("columns", "aiokafka")}
    speed = speeds(work, chunks, count)
    what = f"{label}: five columns to Arrow"
    report.add(Row(what, "records/s", speed["columns"], speed["aiokafka"], "aiokafka"))


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("records_decode", ("pyarrow", "aiokafka", "kafka-python", "cramjam", "lz4"))
    for name, value_bytes in (("100 B", 100), ("1 KiB", 1024)):
        measure(report, name, *chunks_of(value_bytes, Codec.NONE))
        for codec in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP):
            label = f"{name} {codec.name.lower()}"
            measure_codec(report, label, *chunks_of(value_bytes, codec))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
