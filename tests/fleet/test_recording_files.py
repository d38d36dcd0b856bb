"""Merging loses and doubles nothing: killed at any step, and while others read."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fleet import durable_files, recording_files
from shoal.fleet.sources import RecordedSource
from shoal.fleet.tables import schema
from shoal.testing.broker import Broker
from tests.fleet.test_recorder import commit, in_directory, in_topic, recorder, rows_of

DAY = "2026-11-15"
DAY_US = 1_794_700_800_000_000
FILES = 5


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_files, "FILES_MAX", 3)


@pytest.fixture
def recording_of_five(tmp_path: Path) -> Path:
    """Five batches of two records and five samples, each in a file of its own."""
    directory = tmp_path / "history"
    for number in range(FILES):
        keep(directory, number)
    return directory


def keep(directory: Path, number: int, rows: int = 2) -> None:
    records = [
        {
            "key": b"k",
            "value": b"%d" % n,
            "partition": 0,
            "offset": 100 * number + n,
            "timestamp": DAY_US,
        }
        for n in range(rows)
    ]
    path = directory / f"records/day={DAY}/batch={number:09d}/part.parquet"
    durable_files.write_parquet(pa.Table.from_pylist(records, schema("records")), path)
    at_us = DAY_US + number
    ends = [{"topic": "orders", "partition": 0, "end_offset": number, "at": at_us}]
    path = directory / f"ends/day={DAY}/{at_us}.parquet"
    durable_files.write_parquet(pa.Table.from_pylist(ends, schema("ends")), path)


def seen(directory: Path) -> tuple[list[int], list[int]]:
    """The offsets of all records, and all samples."""
    source = RecordedSource(directory)
    offsets = [row[1] for row in rows_of(source.records())]
    return offsets, sorted(source.ends().column("end_offset").to_pylist())


ALL = ([100 * number + n for number in range(FILES) for n in range(2)], list(range(FILES)))


def merge(directory: Path) -> None:
    for part in ("records", "ends"):
        recording_files.merge_day(directory, part, DAY)


def test_small_files_of_a_day_become_one(recording_of_five: Path) -> None:
    merge(recording_of_five)
    assert seen(recording_of_five) == ALL
    left = [one.name for one in recording_files.files(recording_of_five, "records")]
    assert left == ["part-merged.parquet"]
    assert len(recording_files.files(recording_of_five, "ends")) == 1
    assert not (recording_of_five / recording_files.MERGING).exists()
    assert len(list((recording_of_five / f"records/day={DAY}").iterdir())) == 1
    # The merged file is merged again with later ones.
    for number in range(FILES, FILES + 2):
        keep(recording_of_five, number)
    merge(recording_of_five)
    assert len(recording_files.files(recording_of_five, "records")) == 1
    assert len(seen(recording_of_five)[0]) == 2 * FILES + 4


def test_few_files_large_ones_and_batches_that_may_be_repeated_stay(
    recording_of_five: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not recording_files.merge_day(recording_of_five, "records", DAY, last_batch=1)
    assert not recording_files.merge_day(recording_of_five, "records", "2026-11-14")
    monkeypatch.setattr(recording_files, "SMALL_BYTES", 10)
    assert not recording_files.merge_day(recording_of_five, "records", DAY)
    monkeypatch.undo()
    monkeypatch.setattr(recording_files, "FILES_MAX", 3)
    assert recording_files.merge_day(recording_of_five, "records", DAY, last_batch=3)
    left = [one.parent.name for one in recording_files.files(recording_of_five, "records")]
    assert left == ["batch=000000003", "batch=000000004"]


STEPS = ("write_parquet", "replace", "remove")


def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> list[str]:
    """From now on the call number ``at`` of those that change the disk is the last."""
    calls: list[str] = []

    def deadly(name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            calls.append(name)
            number = len(calls)
            if number == at and not after:
                raise SystemExit(9)
            real(*arguments)
            if number == at:
                raise SystemExit(9)

        return call

    for name in STEPS:
        monkeypatch.setattr(durable_files, name, deadly(name, getattr(durable_files, name)))
    return calls


@pytest.mark.parametrize("after", [False, True])
def test_a_merge_that_dies_at_any_step_loses_and_doubles_nothing(
    recording_of_five: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    deaths = 0
    while True:
        directory = tmp_path / f"copy-{deaths}"
        shutil.copytree(recording_of_five, directory)
        with monkeypatch.context() as patch:
            calls = dying(patch, deaths + 1, after=after)
            try:
                merge(directory)
            except SystemExit:
                deaths += 1
            else:
                break
        assert seen(directory) == ALL, calls  # at once, with nobody there to clear up
        merge(directory)
        assert seen(directory) == ALL, calls
        assert len(recording_files.files(directory, "records")) == 1
        assert len(recording_files.files(directory, "ends")) == 1
    assert set(calls) == set(STEPS)
    assert deaths >= 2 * (4 + FILES)


def test_a_reader_sees_to_its_end_what_was_there_when_it_began(recording_of_five: Path) -> None:
    batches = RecordedSource(recording_of_five).records()
    first = next(batches)
    recording_files.merge_day(recording_of_five, "records", DAY)
    keep(recording_of_five, FILES)
    assert rows_of([first, *batches]) == rows_of_all(FILES)
    # The old files stayed as long as somebody read; whoever begins now sees only the new one.
    assert len(recording_files.files(recording_of_five, "records")) == FILES + 2
    assert len(seen(recording_of_five)[0]) == 2 * FILES + 2
    assert recording_files.finish(recording_of_five)
    assert len(recording_files.files(recording_of_five, "records")) == 2


def rows_of_all(files: int) -> list[tuple[int, int, bytes, bytes | None]]:
    return sorted(
        (0, 100 * number + n, b"k", b"%d" % n) for number in range(files) for n in range(2)
    )


def test_a_copy_that_cannot_be_written_is_read(recording_of_five: Path) -> None:
    (recording_of_five / "_readers").mkdir()  # as good as forbidden, also for root
    assert seen(recording_of_five) == ALL


@pytest.mark.slow
@given(st.lists(st.one_of(st.integers(0, 6), st.just("merge")), max_size=12))
def test_any_order_of_keeping_and_merging_shows_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str]
) -> None:
    directory = tmp_path_factory.mktemp("any")
    for part in ("records", "ends"):
        (directory / part).mkdir()
    expected: list[int] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            keep(directory, number, step)
            expected += [100 * number + n for n in range(step)]
        else:
            merge(directory)
        assert seen(directory)[0] == expected


@pytest.mark.slow
def test_a_recorder_merges_as_it_goes(tmp_path: Path) -> None:
    with Broker(topics={"orders": 4}) as cluster, recorder(cluster, tmp_path) as one:
        for number in range(8):
            commit(cluster, "a", number)
            one.round()
        assert in_directory(tmp_path) == in_topic(cluster) != []
        assert len(recording_files.files(tmp_path, "records")) <= 3
        assert len(recording_files.files(tmp_path, "ends")) <= 3


RECORDING = """
import sys
from pathlib import Path
from shoal.client.admin import Admin
from shoal.fleet import recording_files
from shoal.fleet.recorder import Recorder
recording_files.FILES_MAX = 2
settings = {"bootstrap_servers": sys.argv[1]}
with Admin(**settings) as admin, Recorder(admin, settings, Path(sys.argv[2])) as one:
    one.run(0.0, seen=lambda count: print(count, flush=True), failed=print)
"""


@pytest.mark.slow
def test_a_recorder_killed_while_it_merges_keeps_every_record_once(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    with Broker(topics={"orders": 4}) as cluster:
        command = [sys.executable, "-c", RECORDING, cluster.bootstrap_servers, str(directory)]
        for run in range(4):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for number in range(6 + run):
                    commit(cluster, f"group-{run}", number)
                    process.stdout.readline()
                process.send_signal(signal.SIGKILL)
            assert process.returncode == -signal.SIGKILL
            kept = in_directory(directory)
            assert len(kept) == len(set(kept))
        with recorder(cluster, directory) as last:
            last.round()
        assert in_directory(directory) == in_topic(cluster) != []
