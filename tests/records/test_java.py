"""Batches written by Apache Kafka's own classes.

``java-batches.bin`` was written by ``WriteBatches.java`` with the classes of Kafka 4.3.0; where
Java and Kafka's jars are there, it is written anew and has to read the same.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from shoal.records.batch import checksum_holds, decode_batch, iter_headers
from shoal.records.chunks import Chunk
from shoal.records.compression import Codec
from shoal.records.markers import is_abort_marker
from shoal.records.objects import decode_records
from shoal.types import TimestampType
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.records.generate import each_kernel, using

HERE = Path(__file__).parent
KEPT = HERE / "java-batches.bin"
COUNT = 120
APPEND_TIME_MS = 1_800_000_000_000


def row(offset: int, time: int | None) -> tuple[Any, ...]:
    """What WriteBatches.java wrote at this offset."""
    i = offset % COUNT
    return (
        offset,
        1_700_000_000_000 + 7 * i - (i % 3) * 50 if time is None else time,
        None if i % 7 == 3 else b"key-%d" % i,
        None if i % 11 == 5 else b"value-%d " % i * (1 + i % 90),
        (("header", b"%d" % i), ("ümlaut", None), ("", b"")) if i % 5 == 2 else (),
    )


def check(data: bytes) -> None:
    found = list(iter_headers(data))
    assert found[-1][0] + found[-1][1].size_bytes == len(data)
    assert all(checksum_holds(data, position) for position, _ in found)
    (marker_position, marker), *_ = found[-1:]
    for number, (position, header) in enumerate(found[:-1]):
        by_broker = number % 2 == 1
        assert header.codec == list(Codec)[number // 2]
        assert header.base_offset == COUNT * number
        assert header.leader_epoch == 5
        assert header.is_transactional == by_broker
        assert header.producer_id == (42 if by_broker else -1)
        assert header.base_sequence == (7 if by_broker else -1)
        assert header.timestamp_type == TimestampType(by_broker)
        assert decode_batch(data, position) == [
            row(header.base_offset + i, APPEND_TIME_MS if by_broker else None) for i in range(COUNT)
        ]
    assert marker.is_control
    assert is_abort_marker(data, marker_position)
    committed = Chunk("t", 0, data, aborted=[(42, COUNT)])
    assert [fields[0] // COUNT for fields in decode_records(committed)] == [
        number for number in range(0, 10, 2) for _ in range(COUNT)
    ]


@each_kernel
def test_we_read_what_apache_kafka_wrote(kernel_name: str) -> None:
    with using(kernel_name):
        check(KEPT.read_bytes())


@pytest.mark.kafka
@pytest.mark.slow
def test_we_read_what_apache_kafka_writes(tmp_path: Path) -> None:
    jars = need(kafka_jars)
    written = tmp_path / "batches.bin"
    subprocess.run(
        [java(), "-cp", f"{jars}/*", str(HERE / "WriteBatches.java"), str(written)],
        check=True,
        timeout=120,
    )
    check(written.read_bytes())
