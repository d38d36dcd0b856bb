"""Every power cut of a scenario: each state a forgetful disk could be left in is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.durability import Syncer
from shoal.log.partition import PartitionLog
from shoal.testing.disk import RecordingDisk
from shoal.types import TopicPartition
from tests.crash.states import STATES_MIN, TP, Witness, same_bytes, same_records, values
from tests.log.batches import NOW_MS, batch, keyed

pytestmark = pytest.mark.slow

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=500)
COMPACTED = replace(
    SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=1500
)


def test_L1_L2_L3_L5_nothing_acknowledged_is_lost_while_appending_and_rolling() -> None:
    witness = Witness(SMALL, same_bytes)
    witness.watch()
    log = witness.open().create(TP, now_ms=NOW_MS)
    for index, data in enumerate(values(24)):
        witness.append(log, data)
        if index % 3 == 2:
            witness.sync(log)
    assert witness.states >= STATES_MIN


def test_L1_L2_nothing_is_lost_around_checkpoints_and_clean_stops() -> None:
    witness = Witness(replace(SMALL, segment_bytes=6000), same_bytes)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for turn in range(6):
        for data in reversed(values(5)):
            witness.append(log, data)
        if turn % 2:
            witness.sync(log)
        run_job(directory.checkpoint(NOW_MS))
        if turn % 3 == 2:
            directory.close()
            witness.acknowledge(log)
            directory = witness.open()
            log = directory.partitions[TP]
            assert directory.clean_start
    assert witness.states >= STATES_MIN


def test_L1_the_mark_of_a_clean_stop_is_gone_before_the_log_is_used() -> None:
    witness = Witness(SMALL, same_bytes, step=16)
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    witness.append(log, batch(b"first"))
    directory.close()
    witness.acknowledge(log)
    witness.watch()
    directory = witness.open()
    assert directory.clean_start
    log = directory.partitions[TP]
    witness.append(log, batch(b"x" * 800))
    witness.sync(log)
    assert witness.states >= 5


def test_L1_L2_a_power_cut_during_recovery_is_survived_too() -> None:
    states = 0
    for torn in (30, 300, 610):
        before = Witness(SMALL, same_bytes)
        log = before.open().create(TP, now_ms=NOW_MS)
        for data in values(12):
            before.append(log, data)
        before.sync(log)
        before.append(log, batch(b"y" * 600))
        contents = before.disk.contents()
        path = max(name for name in contents if name.endswith(".log"))
        contents[path] = contents[path][: log.active.size - torn]
        # The same disk, opened after the cut, and cut again at every step of its recovery.
        disk = RecordingDisk()
        for name, content in contents.items():
            disk._plant(name, content)
        acknowledged = before.acknowledged if torn < 600 else {}
        witness = Witness(SMALL, same_bytes, disk=disk, appended=before.appended)
        witness.acknowledged, witness.may_be_gone = acknowledged, False
        witness.watch()
        again = witness.open().partitions[TP]
        for data in values(10):
            witness.append(again, data)
            witness.sync(again)
        states += witness.states
    assert states >= STATES_MIN


def test_L1_what_a_restart_shows_survives_the_next_power_cut() -> None:
    witness = Witness(SMALL, same_bytes)
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    witness.sync(log)
    for data in values(12):
        witness.append(log, data)
    # The process dies, the machine does not: everything unsynced is still in the page cache.
    directory.abandon()
    again = witness.open().partitions[TP]
    assert again.high_watermark == 12
    witness.acknowledge(again)
    witness.check(witness.disk.crash())


def test_L9_a_retried_batch_is_stored_once_across_every_power_cut() -> None:
    sent: list[bytes] = []

    def stored_once(witness: Witness, log: PartitionLog, found: dict[int, bytes]) -> None:
        same_bytes(witness, log, found)
        for offset in sorted(found)[-5:]:
            if offset not in witness.acknowledged:
                continue
            again = log.append(sent[offset], now_ms=NOW_MS)
            assert again.error is ErrorCode.NONE
            assert (again.duplicate, again.base_offset) == (True, offset), "L9: stored twice"

    witness = Witness(SMALL, stored_once)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for sequence in range(24):
        sent.append(
            batch(
                b"z" * (sequence * 197 % 900),
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
            )
        )
        witness.append(log, sent[-1])
        if sequence % 3 == 2:
            witness.sync(log)
        if sequence % 7 == 6:
            run_job(directory.checkpoint(NOW_MS))
    assert witness.states >= STATES_MIN


def test_L10_compaction_keeps_the_last_record_of_every_key_at_every_step() -> None:
    witness = Witness(COMPACTED, same_records)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for turn in range(4):
        for index in range(6):
            key = b"key-%d" % (index % 3)
            value = None if (turn, index) == (1, 4) else b"%d/%d" % (turn, index)
            witness.append(log, keyed([(key, value), (b"other-%d" % turn, b"x" * 300)]))
        witness.sync(log)
        run_job(directory.compact(NOW_MS))
        if turn == 2:
            run_job(directory.checkpoint(NOW_MS))
    assert log.cleaned_offset > 0
    assert witness.states >= STATES_MIN


def test_L10_old_segments_stay_until_the_compacted_one_has_a_name() -> None:
    """The same in small: few cuts, but all around one compaction."""
    witness = Witness(COMPACTED, same_records, step=100)
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for turn in range(4):
        for index in range(6):
            data = [(b"key-%d" % (index % 3), b"%d" % index), (b"other-%d" % turn, b"x" * 300)]
            witness.append(log, keyed(data))
        witness.sync(log)
        witness.watch()
        run_job(directory.compact(NOW_MS))
        witness.disk.on_change = None
    assert log.cleaned_offset > 0
    assert witness.states >= 10


def test_L10_retention_never_takes_more_than_it_announced() -> None:
    witness = Witness(replace(SMALL, retention_bytes=3000), same_bytes)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for index, data in enumerate(values(30)):
        witness.append(log, data)
        if index % 3 == 2:
            witness.sync(log)
            witness.max_start = log.end_offset  # from here on anything up to the end may go
            run_job(directory.retain(NOW_MS))
            witness.max_start = log.start_offset
        if index % 10 == 9:
            run_job(directory.checkpoint(NOW_MS))
            witness.min_start = log.start_offset
    assert log.start_offset > 0
    assert witness.states >= STATES_MIN


def test_L2_a_topic_deleted_and_made_again_never_shows_the_old_records() -> None:
    witness = Witness(SMALL, same_bytes)
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for _ in range(30):
        witness.append(log, batch(b"old"))
    witness.sync(log)
    run_job(directory.checkpoint(NOW_MS))
    remove = directory.delete(TP)
    remove()
    witness.appended.clear()
    witness.acknowledged.clear()
    witness.may_be_gone = True
    witness.watch()
    log = directory.create(TP, now_ms=NOW_MS)
    for index, data in enumerate(values(24)):
        witness.append(log, data)
        if index % 3 == 2:
            witness.sync(log)
    assert witness.states >= STATES_MIN


def test_L1_policy_os_loses_at_most_a_suffix() -> None:
    def a_prefix(witness: Witness, log: PartitionLog, found: dict[int, bytes]) -> None:
        for offset, data in found.items():
            assert witness.appended.get(offset) == data, f"L2: other bytes at offset {offset}"

    witness = Witness(SMALL, a_prefix, durability=Durability.OS)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for index, data in enumerate(values(28)):
        witness.append(log, data)
        if index % 8 == 7:
            run_job(directory.checkpoint(NOW_MS))
    assert witness.states >= STATES_MIN


def test_committed_offsets_are_never_durable_before_the_data_they_name() -> None:
    disk = RecordingDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    offsets = directory.create(TopicPartition("__consumer_offsets", 0), now_ms=NOW_MS)
    data = directory.create(TP, now_ms=NOW_MS)
    turns: list[Callable[[], None]] = []
    syncer = Syncer(Durability.GROUP, post=turns.append, workers=0)
    seen = set()

    def check() -> None:
        # Unsynced bytes may survive by luck; the promise is about what the syncs guarantee.
        image = LogDirectory.open(disk.crash(), now_ms=NOW_MS, reserve_bytes=0)
        ends = {tp.topic: log.end_offset for tp, log in image.partitions.items()}
        committed, end = ends.get("__consumer_offsets", 0), ends.get(TP.topic, 0)
        assert committed <= end
        seen.add((committed, end))

    disk.on_change = check
    for _ in range(5):
        # The offsets register first, so that only the rule can bring them behind.
        for log in (offsets, data):
            syncer.register(log, log.append(batch(b"x"), now_ms=NOW_MS).end_offset, None)
        while turns:
            turns.pop()()
    assert (4, 5) in seen, "a cut between the two syncs was looked at"
    assert offsets.high_watermark == data.high_watermark == 5
