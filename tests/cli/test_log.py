"""``shoal log``: what it shows, what it judges, what it mends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal import Admin, Producer
from shoal.cli.log import app
from shoal.errors import CorruptDataError, DataDirectoryInUseError, StorageError
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.partition import Origin, PartitionLog
from shoal.records.batch import encode_batch
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.offsets_topic import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from tests.log.batches import NOW_MS, batch, read_records

TP = TopicPartition("orders", 0)
SEGMENT = "orders-0/00000000000000000000.log"


def shoal_log(*arguments: str, **given: str) -> Result:
    return CliRunner().invoke(app, list(arguments), **given)  # type: ignore[arg-type]  # each test passes what it needs


def rows(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A closed data directory with one partition of three segments and a committed offset."""
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=900))
    for index in range(24):
        log.append(
            encode_batch(
                [
                    (
                        b"key-%d" % index,
                        b"value \x1b[31m%d" % index,
                        [("h", b"\xff")],
                        NOW_MS + index,
                    )
                ],
                producer_id=4,
                producer_epoch=0,
                base_sequence=index,
            ),
            now_ms=NOW_MS,
        )
    offsets = directory.create(TopicPartition("__consumer_offsets", 3), now_ms=NOW_MS)
    key = OffsetCommitKey(group="billing", topic="orders", partition=0)
    value = OffsetCommitValue(offset=17, leader_epoch=0, metadata="note", commit_timestamp=NOW_MS)
    records = [
        (encode_key(key), encode_value(value), (), NOW_MS),
        (encode_key(key), None, (), NOW_MS),
        (encode_key(GroupMetadataKey(group="billing")), b"\0\x63garbage", (), NOW_MS),
        (b"\x00\x63", b"?", (), NOW_MS),
    ]
    offsets.append(encode_batch(records), now_ms=NOW_MS, origin=Origin.BROKER)
    directory.close()
    return tmp_path


def test_a_good_directory_is_ok(data: Path) -> None:
    result = shoal_log("verify", str(data))
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("ok\n")
    assert SEGMENT in result.stdout
    quiet = shoal_log("verify", "--quiet", str(data))
    assert quiet.stdout == "ok\n"
    found = rows(shoal_log("verify", "--json", str(data)))
    assert {row["status"] for row in found} == {"ok"}
    first = next(row for row in found if row["path"] == SEGMENT)
    assert (first["start_offset"], first["records"]) == (0, first["batches"])


def test_verify_changes_nothing_and_works_on_a_directory_in_use(data: Path) -> None:
    def picture() -> dict[str, tuple[bytes, int]]:
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in data.rglob("*")
            if path.is_file()
        }

    before = picture()
    shoal_log("verify", str(data))
    shoal_log("dump", str(data))
    assert picture() == before
    directory = LogDirectory.open(str(data), now_ms=NOW_MS)
    assert shoal_log("verify", str(data)).exit_code == 0
    directory.close()


def hurt(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def last_segment(data: Path) -> Path:
    return max((data / "orders-0").glob("*.log"))


def test_a_torn_tail_is_told_from_corruption(data: Path) -> None:
    last = last_segment(data)
    last.write_bytes(last.read_bytes()[:-5])
    result = shoal_log("verify", "--quiet", str(data))
    assert result.exit_code == 3
    assert "torn" in result.stdout
    hurt(data / SEGMENT, 200)
    result = shoal_log("verify", "--json", "--quiet", str(data))
    assert result.exit_code == 4
    corrupt = next(row for row in rows(result) if row["status"] == "corrupt")
    (damage,) = corrupt["damages"]
    assert damage["position"] <= 200 < damage["end_position"]
    assert damage["end_offset"] - damage["start_offset"] == 1


def test_one_partition_or_one_file_may_be_named(data: Path) -> None:
    assert shoal_log("verify", str(data / "orders-0")).exit_code == 0
    result = shoal_log("verify", "--json", str(data / SEGMENT))
    (row,) = rows(result)
    assert row["path"] == "00000000000000000000.log"
    index = next((data / "orders-0").glob("*.index"))
    assert shoal_log("verify", str(index)).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("00000000000000000000.log", b"", "ok", 0),
        ("00000000000000000000.log", b"x", "torn", 3),
        ("00000000000000000000.log", b"this is a text file, not a log\n" * 50, "torn", 3),
        ("00000000000000000000.log", bytes(9000), "ok", 0),
        ("00000000000000000007.log", batch(b"x", base_offset=3), "torn", 3),
        ("not-an-offset.log", batch(b"x"), "corrupt", 4),
        ("00000000000000000000.log", batch(b"x")[:16] + b"\1" + batch(b"x")[17:], "unsupported", 5),
        ("00000000000000000000.log", batch(b"x")[:16] + b"\7" + batch(b"x")[17:], "torn", 3),
        ("00000000000000000000.index", b"\0" * 8, "corrupt", 4),
        ("leader-epoch-checkpoint", b"garbage", "corrupt", 4),
        ("00000000000000000000.log.swap", b"", "ok", 0),
        ("00000000000000000000.log.deleted", b"", "ok", 0),
        ("00000000000000000000.snapshot", b"garbage", "corrupt", 4),
        ("00000000000000000000.txnindex", b"x" * 33, "corrupt", 4),
        ("notes.txt", b"mine", "ok", 0),
    ],
)
def test_files_from_elsewhere_get_a_verdict(
    tmp_path: Path, name: str, content: bytes, status: str, code: int
) -> None:
    directory = tmp_path / "some directory"
    directory.mkdir()
    (directory / "00000000000000000099.log").write_bytes(b"")
    (directory / name).write_bytes(content)
    if name.endswith(".log"):
        (directory / "00000000000000000099.log").unlink()
    result = shoal_log("verify", "--json", str(directory))
    row = next(row for row in rows(result) if row["path"] == name)
    assert (row["status"], result.exit_code) == (status, code), row


def test_overlapping_segments_are_corrupt(tmp_path: Path) -> None:
    one = b"".join(batch(b"x", base_offset=offset) for offset in range(9))
    (tmp_path / f"{0:020d}.log").write_bytes(one)
    (tmp_path / f"{5:020d}.log").write_bytes(batch(b"x", base_offset=5))
    result = shoal_log("verify", "--quiet", str(tmp_path))
    assert result.exit_code == 4
    assert "past the next segment" in result.stdout


def test_pipes_links_and_devices_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(batch(b"x"))
    os.mkfifo(tmp_path / f"{9:020d}.log")
    (tmp_path / "leader-epoch-checkpoint").symlink_to("/etc/hostname")
    result = shoal_log("verify", "--quiet", str(tmp_path))
    assert result.exit_code == 5
    assert result.stdout.count("not a regular file") == 2


@pytest.mark.parametrize("what", ["missing", "empty", "pipe"])
def test_what_is_no_log_is_said_in_one_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    for command in ("verify", "dump"):
        result = shoal_log(command, str(path))
        assert isinstance(result.exception, StorageError)
        assert "\n" not in str(result.exception)


def test_a_file_that_belongs_to_no_partition_is_not_called_ok(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear broker")
    (tmp_path / "serve.log").write_text("ready 127.0.0.1:9092")
    for words in (("verify", "letter.txt"), ("dump", "serve.log")):
        result = shoal_log(words[0], str(tmp_path / words[1]))
        assert isinstance(result.exception, StorageError), result.stdout
        assert "is not a partition file" in str(result.exception)


def test_what_is_counted_has_the_right_plural(data: Path) -> None:
    found = rows(shoal_log("verify", "--json", str(data / "orders-0")))
    told = [row["detail"] for row in found if row["detail"].endswith(("entry", "entries"))]
    assert told
    for detail in told:
        number, noun = detail.split()
        assert noun == ("entry" if number == "1" else "entries")


# Dump


def test_dump_shows_batches(data: Path) -> None:
    found = rows(shoal_log("dump", "--json", str(data / "orders-0")))
    assert [row["base_offset"] for row in found] == list(range(24))
    assert [row["base_sequence"] for row in found] == list(range(24))
    assert found[0]["codec"] == "none"
    table = shoal_log("dump", str(data / "orders-0"))
    assert "4/0 #23" in table.stdout
    assert "horizon" not in table.stdout, "a column without values is left out"
    assert max(map(len, table.stdout.splitlines())) < 200


def test_dump_shows_records_of_a_range(data: Path) -> None:
    result = shoal_log(
        "dump", "--records", "--json", "--from", "5", "--to", "8", str(data / "orders-0")
    )
    found = rows(result)
    assert [row["offset"] for row in found] == [5, 6, 7]
    assert found[0]["key"] == "key-5"
    assert found[0]["headers"] == [["h", {"base64": "/w=="}]]
    assert len(rows(shoal_log("dump", "-r", "--json", "--limit", "3", str(data)))) == 3


def test_records_cannot_move_the_cursor(data: Path) -> None:
    result = shoal_log("dump", "--records", str(data / "orders-0"))
    assert "\x1b" not in result.stdout
    assert "\\x1b[31m" in result.stdout


def test_a_long_table_says_that_there_is_more(data: Path) -> None:
    result = shoal_log("dump", "--limit", "4", str(data / "orders-0"))
    assert "more than 4 rows" in result.stderr
    assert "nothing to show" in shoal_log("dump", "--from", "99", str(data / "orders-0")).stdout


def test_committed_offsets_are_decoded(data: Path) -> None:
    found = rows(shoal_log("dump", "-r", "--json", str(data / "__consumer_offsets-3")))
    key = {"type": "OffsetCommitKey", "group": "billing", "topic": "orders", "partition": 0}
    assert found[0]["key"] == key
    assert found[0]["value"]["offset"] == 17
    assert found[0]["value"]["metadata"] == "note"
    assert (found[1]["key"], found[1]["value"]) == (key, None)
    assert "error" in found[2]["key"]
    assert found[3]["key"]["type"] == "unknown (99)"
    table = shoal_log("dump", "-r", str(data / "__consumer_offsets-3"))
    lines = [line.split("  ")[-1] for line in table.stdout.splitlines()]
    assert lines[1:3] == [
        "committed orders-0 at 17 (metadata 'note')",
        "offset of orders-0 removed",
    ]
    assert "cannot be decoded" in table.stdout
    assert "unknown kind (99)" in table.stdout
    copied = data / "copy"
    (data / "__consumer_offsets-3").rename(copied)
    plain = rows(shoal_log("dump", "-r", "--json", str(copied)))
    assert "type" not in (plain[0]["key"] or {})
    asked = rows(shoal_log("dump", "--offsets", "--json", str(copied)))
    assert asked[0]["key"] == key


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_dump_shows_the_entries_of_side_files(data: Path, suffix: str) -> None:
    path = max((data / "orders-0").glob(f"*{suffix}"))
    found = rows(shoal_log("dump", "--json", str(path)))
    if suffix == ".snapshot":
        assert found == [
            {
                "producer_id": 4,
                "producer_epoch": 0,
                "last_sequence": 23,
                "last_offset": 23,
                "timestamp_ms": NOW_MS + 23,
                "batches": 5,
                "coordinator_epoch": -1,
                "current_txn_first_offset": None,
            }
        ]
    path.write_bytes(b"garbage")
    assert isinstance(shoal_log("dump", str(path)).exception, CorruptDataError)


def transactions(path: Path) -> PartitionLog:
    """A closed partition with an aborted transaction in each of some segments, and an open one."""
    directory = LogDirectory.open(str(path), now_ms=NOW_MS, durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=400))
    for epoch in range(6):
        log.append(
            batch(
                b"x" * 100,
                producer_id=4,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            ),
            now_ms=NOW_MS,
            transaction_version=2,
        )
        if epoch < 5:
            log.append_marker(
                producer_id=4,
                producer_epoch=epoch + 1,
                coordinator_epoch=7,
                commit=epoch % 2 == 1,
                transaction_version=2,
                now_ms=NOW_MS,
            )
    directory.close()
    return log


def test_dump_shows_transactions(tmp_path: Path) -> None:
    transactions(tmp_path)
    inside = tmp_path / "orders-0"
    shown = rows(shoal_log("dump", "-r", "--json", str(inside)))
    assert [(row["marker"], row["coordinator_epoch"]) for row in shown if row["control"]] == [
        ("abort", 7),
        ("commit", 7),
        ("abort", 7),
        ("commit", 7),
        ("abort", 7),
    ]
    aborted = [
        row
        for path in sorted(inside.glob("*.txnindex"))
        for row in rows(shoal_log("dump", "--json", str(path)))
    ]
    assert [tuple(row.values()) for row in aborted] == [(4, 0, 1, 2), (4, 4, 5, 6), (4, 8, 9, 10)]
    (state,) = rows(shoal_log("dump", "--json", str(max(inside.glob("*.snapshot")))))
    assert (state["coordinator_epoch"], state["current_txn_first_offset"]) == (7, 10)
    assert "abort" in shoal_log("dump", "-r", str(inside)).stdout


def test_verify_compares_the_transaction_index_with_the_log(tmp_path: Path) -> None:
    transactions(tmp_path)
    assert shoal_log("verify", str(tmp_path)).exit_code == 0
    first, *_ = sorted((tmp_path / "orders-0").glob("*.txnindex"))
    good = first.read_bytes()
    wrong_producer = good[:9] + b"\5" + good[10:]
    for content, complaint in [
        (good[:-1], "not a transaction index"),
        (wrong_producer, "names no marker"),
        (b"", "is missing"),
        (None, "is missing"),
    ]:
        first.unlink(missing_ok=True)
        if content is not None:
            first.write_bytes(content)
        result = shoal_log("verify", "--json", "--quiet", str(tmp_path))
        assert result.exit_code == 4
        (row,) = rows(result)
        assert complaint in row["detail"], row
    assert shoal_log("repair", "--yes", str(tmp_path)).exit_code == 0
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    assert directory.partitions[TP].aborted_transactions(0, 99) == [(4, 0), (4, 4), (4, 8)]
    directory.close()
    assert first.read_bytes() == good


def test_dump_shows_epochs(data: Path) -> None:
    path = data / "orders-0" / "leader-epoch-checkpoint"
    assert rows(shoal_log("dump", "--json", str(path))) == [{"leader_epoch": 0, "start_offset": 0}]


def test_corruption_is_passed_over_only_on_request(data: Path) -> None:
    hurt(data / SEGMENT, 200)
    refused = shoal_log("dump", "--json", str(data / "orders-0"))
    assert isinstance(refused.exception, CorruptDataError)
    assert "--skip-corrupt" in str(refused.exception)
    found = rows(shoal_log("dump", "--json", "--skip-corrupt", str(data / "orders-0")))
    assert len(found) == 23


# Repair


def test_nothing_to_mend(data: Path) -> None:
    result = shoal_log("repair", str(data))
    assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")


def test_repair_prints_its_plan_and_waits_for_a_yes(data: Path) -> None:
    last = last_segment(data)
    torn = last.read_bytes()[:-5]
    last.write_bytes(torn)
    asked = shoal_log("repair", str(data))
    assert asked.exit_code == 1
    assert "cut" in asked.stderr
    assert "--yes" in asked.stderr
    assert last.read_bytes() == torn
    done = shoal_log("repair", "--yes", str(data))
    assert done.exit_code == 0, done.output
    assert shoal_log("verify", str(data)).exit_code == 0
    (quarantine,) = last.parent.glob("*.quarantine")
    assert last.read_bytes() + quarantine.read_bytes() == torn


def test_corrupt_bytes_are_taken_out_only_if_asked(data: Path) -> None:
    hurt(data / SEGMENT, 200)
    index = max((data / "orders-0").glob("*.timeindex"))
    index.write_bytes(b"x" * 12)
    before = (data / SEGMENT).read_bytes()
    kept = shoal_log("repair", "--yes", str(data))
    assert kept.exit_code == 4
    assert "left as it is" in kept.stderr
    assert (data / SEGMENT).read_bytes() == before
    assert not index.exists(), "a wrong index is simply removed"
    done = shoal_log("repair", "--yes", "--drop-corrupt", "--json", str(data))
    assert done.exit_code == 0, done.output
    (answer,) = rows(done)
    assert answer["left"] == []
    assert shoal_log("verify", str(data)).exit_code == 0
    directory = LogDirectory.open(str(data), now_ms=NOW_MS)
    log = directory.partitions[TP]
    assert len(read_records(log)) == 23
    assert not log.state.corrupt, "holes that a repair made are no damage"
    assert directory.reports[0].is_good_news
    directory.close()


def test_a_directory_in_use_is_not_mended(data: Path) -> None:
    last = last_segment(data)
    last.write_bytes(last.read_bytes()[:-5])
    lock = LogDirectory.open(str(data / "elsewhere"), now_ms=NOW_MS)
    lock.close()
    holder = LogDirectory.open(str(data), now_ms=NOW_MS)
    hurt(data / SEGMENT, 200)
    result = shoal_log("repair", "--yes", "--drop-corrupt", str(data))
    assert isinstance(result.exception, DataDirectoryInUseError)
    holder.abandon()


def test_repair_wants_a_whole_data_directory(data: Path) -> None:
    assert shoal_log("repair", str(data / "orders-0")).exit_code == 2


@pytest.mark.slow
def test_the_directory_of_a_broker_is_verified_with_every_partition(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with (
        Broker(data_dir=directory) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.create_topic("orders", partitions=2)
        producer.send("orders", b"x", partition=1).result(10)
    assert (directory / "audit.log").exists()  # ends like a segment, and is none
    shown = shoal_log("verify", str(directory), "--json")
    assert shown.exit_code == 0, shown.stdout
    segments = [row["path"] for row in rows(shown) if row["records"]]
    assert segments == ["orders-1/00000000000000000000.log"]
    dumped = rows(shoal_log("dump", "--records", str(directory), "--json"))
    assert [row["value"] for row in dumped] == ["x"]
