"""What the shell of the coordinators makes of the bytes of ``__consumer_offsets``."""

from __future__ import annotations

import time

import pytest

from shoal import Admin, Consumer, TopicPartition
from shoal.broker.groups import _feed
from shoal.errors import ErrorCode
from shoal.group.coordinator.journal import JournalRecord, OffsetRecord, TransactionMarker, encode
from shoal.group.coordinator.journal_loading import Loader
from shoal.machine.internal_topic import partition_for
from shoal.records.batch import HEADER_SIZE, encode_batch, iter_headers
from shoal.records.markers import encode_marker
from shoal.testing.broker import Broker
from tests.broker.asking import commit as ask_to_commit
from tests.broker.raw_client import RawClient
from tests.client.conftest import poll_until


def commit(offset: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, offset, None, "", 5)


def batch(record: JournalRecord, base_offset: int, **more: object) -> bytes:
    return encode_batch([(*encode(record), (), 5)], base_offset=base_offset, **more)  # type: ignore[arg-type]  # each test passes what it needs


def replayed(data: bytes, end: int) -> list[tuple[JournalRecord, int]]:
    found: list[tuple[JournalRecord, int]] = []
    loader = Loader(lambda record, offset: found.append((record, offset)))
    assert _feed(loader, data) == end
    loader.flush()
    return found


def test_plain_commits_are_replayed():
    assert replayed(batch(commit(1), 4) + batch(commit(2), 5), 6) == [(commit(2), 5)]


@pytest.mark.parametrize("commits", [True, False])
def test_commits_of_a_transaction_wait_for_its_marker(commits):
    staged = batch(commit(2), 5, producer_id=7, producer_epoch=1, is_transactional=True)
    marker = encode_marker(
        commit=commits, producer_id=7, producer_epoch=1, timestamp_ms=5, base_offset=6
    )
    assert replayed(batch(commit(1), 4) + staged + marker, 7) == [
        (commit(1), 4),
        (commit(2)._replace(producer_id=7, producer_epoch=1), 5),
        (TransactionMarker(7, 1, commits), 6),
    ]


def test_control_batches_that_end_no_transaction_are_skipped():
    other = encode_batch([(b"\0\0\0\5", b"", (), 5)], base_offset=4, is_control=True)
    assert replayed(other, 5) == []


def test_a_damaged_batch_costs_what_was_in_it_alone(caplog):
    damaged = bytearray(batch(commit(2), 5))
    damaged[-1] ^= 1
    assert replayed(batch(commit(1), 4) + damaged, 6) == [(commit(1), 4)]
    assert replayed(bytes(damaged) + batch(commit(3), 6), 7) == [(commit(3), 6)]
    assert "is lost: corrupt data" in caplog.text


def flip(broker: Broker, offset: int) -> None:
    """Damage the batch at ``offset`` of the only log of offsets that holds anything."""
    logs = broker.data_dir.glob("__consumer_offsets-*/*.log")
    (path,) = (path for path in logs if path.stat().st_size)
    data = bytearray(path.read_bytes())
    (at,) = (at for at, header in iter_headers(bytes(data)) if header.base_offset == offset)
    data[at + HEADER_SIZE] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_committed_behind_a_damaged_place_counts_after_a_restart(clean):
    with Broker(topics=["t"], durability="group") as broker:
        with RawClient(broker.port) as raw:
            assert [ask_to_commit(raw, "g", "t", 0, offset) for offset in range(5)] == [0] * 5
        if clean:
            broker.stop()
        else:
            broker.kill()
        flip(broker, 2)
        broker.start()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            found = admin.group_offsets("g")[TopicPartition("t", 0)]
            assert found is not None
            assert found.offset == 4


@pytest.mark.slow
def test_groups_whose_log_took_no_more_are_served_again_and_their_members_expire():
    with Broker(topics=["t"], durability="os") as broker:
        count = broker.on_loop(lambda live: live.config.groups.offsets_partitions)
        beside = next(
            f"g{n}"
            for n in range(10_000)
            if partition_for(f"g{n}", count) == partition_for("g", count)
        )
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as member:
            member.subscribe(["t"])
            poll_until(member, member.assignment)
            groups = broker.on_loop(lambda live: live.groups)
            shard = broker.on_loop(lambda _: groups.runtime_of("g"))
            assert not isinstance(shard, ErrorCode)
            broker.on_loop(lambda _: shard.partition.log.fence("the disk said so"))
            with RawClient(broker.port) as raw:
                assert ask_to_commit(raw, beside, "t", 0, 5) != 0
                broker.on_loop(lambda _: groups._fire())  # nothing to watch while it is closed
                assert groups._armed_ms is None
                until = time.monotonic() + 10
                while broker.on_loop(lambda _: shard.partition.log.fenced):
                    assert time.monotonic() < until
                    time.sleep(0.01)
                assert groups._armed_ms is not None
                assert ask_to_commit(raw, beside, "t", 0, 5) == 0
