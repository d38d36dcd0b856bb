"""Data directories of our earlier releases open, cleanly and after a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.log import inspection
from shoal.log.directory import LogDirectory
from shoal.log.inspection import Status
from shoal.records.batch import encode_batch
from shoal.types import TopicPartition
from tests.golden.make_directory import START_MS, fill
from tests.log.batches import read_records

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("directory-*"))
ROLLED, COMPACTED = TopicPartition("rolled", 0), TopicPartition("compacted", 0)


def check(directory: LogDirectory) -> None:
    rolled, compacted = directory.partitions[ROLLED], directory.partitions[COMPACTED]
    assert all(report.is_good_news for report in directory.reports)
    records = read_records(rolled)
    assert [record.value for record in records] == [b"value-%d" % n for n in range(3, 40)]
    assert list(records[0].headers) == [("n", b"3")]
    found = rolled.offset_for_time(START_MS + 17)
    assert found is not None
    assert found.offset == 17
    again = encode_batch(
        [(b"key-39", b"value-39", [("n", b"39")], START_MS + 39)],
        codec=39 % 5,
        producer_id=7,
        producer_epoch=1,
        base_sequence=39,
    )
    result = rolled.append(again, now_ms=START_MS)
    assert (result.error, result.duplicate, result.base_offset) == (ErrorCode.NONE, True, 39)
    last = {record.key: record.value for record in read_records(compacted)}
    assert last == {b"0": b"36", b"1": b"37", b"2": b"38", b"3": b"39"}
    assert len(read_records(compacted)) < 40


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_directory_of_an_earlier_release_opens(golden: Path, clean: bool, tmp_path: Path) -> None:
    shutil.copytree(golden, tmp_path / "data")
    if not clean:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    directory = LogDirectory.open(str(tmp_path / "data"), now_ms=START_MS)
    assert directory.clean_start == clean
    assert directory.meta["cluster.id"] == "golden"
    check(directory)
    directory.close()


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_a_directory_of_an_earlier_release_is_ok(golden: Path) -> None:
    verdicts = list(inspection.verify(inspection.look_at(str(golden))))
    assert {verdict.status for verdict in verdicts} == {Status.OK}


def test_this_release_makes_such_a_directory(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    directory = LogDirectory.open(str(tmp_path / "data"), now_ms=START_MS)
    check(directory)
    directory.close()


def test_there_is_one_to_open() -> None:
    assert GOLDEN
