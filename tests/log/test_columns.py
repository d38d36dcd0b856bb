"""A range of a log straight into Arrow equals the records read one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from shoal.errors import CorruptDataError
from shoal.log.columns import iter_columns
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.partition import PartitionLog
from shoal.testing.disk import SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_records

TP = TopicPartition("orders", 0)


def make(root: str | SimDisk, durability: Durability = Durability.OS) -> PartitionLog:
    directory = LogDirectory.open(root, now_ms=NOW_MS, durability=durability, reserve_bytes=0)
    log = directory.create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=600))
    for index in range(20):
        codec = index % 5
        log.append(batch(b"%d" % index, None, b"z", key=b"k", codec=codec), now_ms=NOW_MS)
    return log


def offsets(log: PartitionLog, start: int, end: int | None, **options: object) -> list[int]:
    found: list[int] = []
    for part in iter_columns(log, start, end, **options):  # type: ignore[arg-type]  # each test passes what it needs
        found += part.column("offset").to_pylist()
    return found


def test_columns_equal_the_records(tmp_path: Path) -> None:
    log = make(str(tmp_path))
    rows = [row for part in iter_columns(log, 0) for row in part.to_pylist()]
    records = read_records(log)
    assert [row["offset"] for row in rows] == [record.offset for record in records]
    assert [row["value"] for row in rows] == [record.value for record in records]
    assert {row["topic"] for row in rows} == {"orders"}
    assert len(log.segments) > 3


@given(start=st.integers(0, 60), end=st.none() | st.integers(0, 70))
def test_any_range_is_exact(start: int, end: int | None) -> None:
    log = make(SimDisk())
    limit = 60 if end is None else min(end, 60)
    assert offsets(log, start, end) == list(range(start, limit))
    assert offsets(log, start, end, columns=["offset"], max_bytes=200) == list(range(start, limit))


def test_nothing_past_the_high_watermark_is_shown() -> None:
    log = make(SimDisk(), Durability.GROUP)
    assert offsets(log, 0, None) == []
    log.sync()
    log.append(batch(b"unsynced"), now_ms=NOW_MS)
    assert offsets(log, 0, 99) == list(range(60))


def test_a_mapped_segment_stays_readable_after_its_deletion(tmp_path: Path) -> None:
    log = make(str(tmp_path))
    parts = iter_columns(log, 0, columns=["offset"], max_bytes=100)
    first = next(parts)
    for path in log.drop_segments(1):
        (tmp_path / path).unlink(missing_ok=True)
    assert first.column("offset").to_pylist()[0] == 0


def test_corruption_is_raised_where_it_lies() -> None:
    log = make(SimDisk())
    log.segments[1].file.write_at(100, b"\xff\xff")
    with pytest.raises(CorruptDataError):
        offsets(log, 0, None)
    log.delete_records(3)
    with pytest.raises(CorruptDataError, match="outside"):
        offsets(log, 0, None)
