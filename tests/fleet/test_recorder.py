"""The recorder keeps every record once, whatever happens to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.client.admin import Admin
from shoal.errors import ConfigError
from shoal.fleet import durable_files, sources
from shoal.fleet import recorder as recorder_module
from shoal.fleet.recorder import Recorder
from shoal.fleet.sources import ClusterSource, RecordedSource, directory_source
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata, TopicPartition

PROGRAM = str(Path(sys.executable).parent / "shoal")


@pytest.fixture
def cluster() -> Iterator[Broker]:
    """A broker for this test alone: a recording is about a whole cluster."""
    with Broker(topics={"orders": 4}) as one:
        yield one


def commit(broker: Broker, group: str, offset: int) -> None:
    """A group without members commits in four partitions."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        offsets = {TopicPartition("orders", n): OffsetAndMetadata(offset) for n in range(4)}
        admin.alter_group_offsets(group, offsets)


@contextmanager
def recorder(broker: Broker, directory: Path) -> Iterator[Recorder]:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    with Admin(**settings) as admin, Recorder(admin, settings, directory) as one:
        yield one


Rows = list[tuple[int, int, bytes, bytes | None]]


def in_topic(broker: Broker) -> Rows:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    with Admin(**settings) as admin:
        return rows_of(ClusterSource(admin, settings).records())


def in_directory(directory: Path) -> Rows:
    return rows_of(RecordedSource(directory).records())


def rows_of(batches: Any) -> Rows:
    return sorted(
        (row["partition"], row["offset"], row["key"], row["value"])
        for batch in batches
        for row in batch.to_pylist()
    )


@pytest.mark.slow
def test_a_recorder_goes_on_where_another_stopped(cluster: Broker, tmp_path: Path) -> None:
    with recorder(cluster, tmp_path) as first:
        assert first.round() == 0
        commit(cluster, "a", 1)
        assert first.round() == 4
        assert first.round() == 0
    commit(cluster, "b", 2)
    with recorder(cluster, tmp_path) as second:
        assert second.round() == len(in_topic(cluster)) - 4
    assert in_directory(tmp_path) == in_topic(cluster)
    ends = directory_source(tmp_path).ends()
    assert ends.num_rows == 4 * 4
    assert set(ends.column("topic").to_pylist()) == {"orders"}


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["write_parquet", "replace"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_recorder_that_dies_at_any_step_repeats_and_loses_nothing(
    cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str, call: int
) -> None:
    for number in range(3):
        commit(cluster, f"group-{number}", number)
    real, calls = getattr(durable_files, dies), []

    def deadly(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == call:
            raise SystemExit(9)
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(durable_files, dies, deadly)
        try:
            with recorder(cluster, tmp_path) as first:
                first.round()
                commit(cluster, "late", 7)
                first.round()
        except SystemExit:
            pass
    assert len(calls) >= call
    commit(cluster, "later", 8)
    with recorder(cluster, tmp_path) as second:
        second.round()
    assert in_directory(tmp_path) == in_topic(cluster)


@pytest.mark.slow
def test_the_program_killed_again_and_again_keeps_every_record_once(
    cluster: Broker, tmp_path: Path
) -> None:
    directory = tmp_path / "history"
    command = [PROGRAM, "fleet", "record", str(directory), "--every", "0.1"]
    command += ["-b", cluster.bootstrap_servers]
    for run in range(4):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for number in range(12):
            commit(cluster, f"group-{run}", number)
            if number == 3 * run:
                # It has kept something, and is about to keep more.
                assert "records kept" in process.stderr.readline()
                process.kill()
        process.kill()
        process.communicate()
    done = subprocess.run([*command, "--rounds", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert in_directory(directory) == in_topic(cluster)
    assert len(in_topic(cluster)) >= 4 * 12 * 4


@pytest.mark.slow
def test_a_long_topic_is_kept_in_parts(
    cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "ROWS_MAX", 5)
    monkeypatch.setattr(sources, "BATCH_ROWS", 3)
    for number in range(6):
        commit(cluster, f"group-{number}", number)
    with recorder(cluster, tmp_path) as one:
        assert one.round() == len(in_topic(cluster))
        assert one.progress.batch >= 3
    assert in_directory(tmp_path) == in_topic(cluster)


@pytest.mark.slow
def test_a_cluster_that_goes_away_is_asked_again(cluster: Broker, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "default_api_timeout_ms": 300,
        "request_timeout_ms": 300,
    }
    heard: list[str] = []

    def seen(count: int) -> None:
        heard.append(f"kept {count}")
        if len(heard) == 1:
            cluster.stop()

    def failed(error: Exception) -> None:
        heard.append("failed")
        cluster.start()
        commit(cluster, "after", 1)

    with Admin(**settings) as admin, Recorder(admin, settings, tmp_path) as one:
        one.run(0.01, seen=seen, failed=failed, rounds=3)
    assert heard[:2] == ["kept 0", "failed"]
    assert in_directory(tmp_path) == in_topic(cluster) != []


@pytest.mark.slow
def test_a_directory_belongs_to_one_recorder_and_one_cluster(
    cluster: Broker, tmp_path: Path
) -> None:
    with recorder(cluster, tmp_path) as first:
        commit(cluster, "a", 1)
        first.round()
        with (
            pytest.raises(ConfigError, match="another recorder is at work"),
            recorder(cluster, tmp_path),
        ):
            pass
    with (
        Broker() as other,
        pytest.raises(ConfigError, match="the history of cluster"),
        recorder(other, tmp_path),
    ):
        pass
    (tmp_path / "_checkpoint").mkdir()
    with pytest.raises(ConfigError, match="kept by a Spark job"), recorder(cluster, tmp_path):
        pass


def test_a_directory_that_is_no_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds neither a recording"):
        directory_source(tmp_path)
    with pytest.raises(ConfigError, match="there is no directory"):
        directory_source(tmp_path / "absent")
