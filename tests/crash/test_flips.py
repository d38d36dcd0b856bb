"""Damage that no crash explains: flipped bits, blank sectors, files cut, doubled, swapped, garbage.

Whatever is damaged, a reader gets the right bytes or an error, never other bytes; and what is not
damaged stays readable.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shoal.log.config import LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.partition import PartitionLog
from shoal.log.recovery import BadBytes, Scan, scan
from shoal.records.batch import BatchHeader
from shoal.testing.disk import SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches, read_records

TP = TopicPartition("orders", 0)


def segment_of(size: int, *, value_bytes: int = 200) -> tuple[bytes, list[tuple[int, int]]]:
    """A log of about ``size`` bytes, and where its batches stand."""
    data, batches, offset = bytearray(), [], 0
    chance = random.Random(5)
    while len(data) < size:
        values = [
            chance.randbytes(chance.randrange(value_bytes)) for _ in range(chance.randrange(1, 4))
        ]
        one = batch(*values, base_offset=offset, leader_epoch=3)
        batches.append((len(data), len(data) + len(one)))
        data += one
        offset += len(values)
    return bytes(data), batches


def judge(data: bytes | bytearray, offset: int = 0) -> tuple[Scan, dict[int, int]]:
    """The verdict on a segment, and the good batches as position → size."""
    good: dict[int, int] = {}

    def visit(position: int, header: BatchHeader) -> None:
        good[position] = header.size_bytes

    def read(position: int, size: int) -> memoryview:
        return memoryview(data)[position : position + size]

    result = scan(
        read, start=0, size=len(data), next_offset=offset, visit=visit, epoch_at=lambda _: 3
    )
    return result, good


def check_flip(data: bytearray, batches: list[tuple[int, int]], bit: int, offset: int) -> None:
    """L3 or L4, never wrong data: all other batches stay good, the damaged one is not shown."""
    data[bit >> 3] ^= 1 << (bit & 7)
    hurt = next(index for index, (_, end) in enumerate(batches) if bit >> 3 < end)
    result, good = judge(data, offset)
    start, end = batches[hurt]
    expected = {begin: stop - begin for begin, stop in batches if begin != start}
    assert good == expected, f"bit {bit}"
    if hurt == len(batches) - 1:
        assert result.tail is not None
        assert result.end_position == start
    else:
        assert result.tail is None
        assert [(bad.position, bad.end_position) for bad in result.bad] == [(start, end)]
    data[bit >> 3] ^= 1 << (bit & 7)


@pytest.mark.slow
def test_L3_L4_every_bit_of_a_2_KiB_log_flipped() -> None:
    whole, batches = segment_of(2048, value_bytes=60)
    data = bytearray(whole)
    for bit in range(len(data) * 8):
        check_flip(data, batches, bit, 0)


@pytest.mark.slow
def test_L3_L4_every_bit_of_a_64_KiB_log_flipped() -> None:
    """All 524,288; only the neighbours are scanned, but for every 101st bit the whole log."""
    whole, batches = segment_of(64 << 10)
    data = bytearray(whole)
    for index in range(len(batches)):
        around = batches[max(0, index - 1) : index + 3]
        first, end = around[0][0], around[-1][1]
        near = bytearray(whole[first:end])
        offset = int.from_bytes(near[:8], "big")
        moved = [(begin - first, stop - first) for begin, stop in around]
        for bit in range(batches[index][0] * 8, batches[index][1] * 8):
            check_flip(near, moved, bit - first * 8, offset)
            if bit % 101 == 0:
                check_flip(data, batches, bit, 0)


@pytest.mark.slow
def test_L3_L4_any_run_of_bytes_blank_lost_or_doubled() -> None:
    whole, batches = segment_of(16 << 10)
    chance = random.Random(11)
    damages: list[Callable[[bytes, int, int], bytes]] = [
        lambda data, at, size: data[:at] + bytes(size) + data[at + size :],
        lambda data, at, size: data[:at] + data[at + size :],
        lambda data, at, size: data[: at + size] + data[at : at + size] + data[at + size :],
        lambda data, at, size: data[:at] + chance.randbytes(size) + data[at + size :],
        lambda data, at, _: data[:at],
    ]
    for _ in range(600):
        damage = chance.choice(damages)
        at = chance.randrange(len(whole) - 600)
        data = damage(whole, at, chance.choice([1, 7, 512, 600]))
        _, good = judge(data)
        originals = {whole[start:end] for start, end in batches}
        found = [data[start : start + size] for start, size in good.items()]
        assert set(found) <= originals, "never other bytes"
        assert len(found) == len(set(found)), "never a batch twice"
        untouched = {whole[start:end] for start, end in batches if end <= at}
        assert untouched <= set(found), "what lies before the damage stays"


def test_L3_a_torn_batch_that_holds_a_whole_batch_inside_shows_neither() -> None:
    inner = batch(b"stolen", base_offset=5, leader_epoch=3)
    outer = batch(inner * 3, base_offset=1, leader_epoch=3)
    data = batch(b"good", leader_epoch=3) + outer
    for cut in range(1, len(outer)):
        torn = data[:-cut]
        result, good = judge(torn)
        if torn.endswith(inner):
            continue  # nothing in the bytes tells this from a wrong length before a good batch
        assert len(good) == 1, cut
        assert result.tail is not None


def test_L4_a_wrong_length_does_not_cost_the_batches_behind_it() -> None:
    batches = [batch(b"%d" % index * 30, base_offset=index, leader_epoch=3) for index in range(5)]
    data = bytearray(b"".join(batches))
    start = len(batches[0])
    data[start + 8 : start + 12] = (1 << 20).to_bytes(4, "big")  # far past the end of the file
    result, good = judge(bytes(data))
    assert result.tail is None
    assert result.bad == [BadBytes(start, start + len(batches[1]), 1, 2, result.bad[0].reason)]
    assert len(good) == 4


# Whole directories ---------------------------------------------------------------------------


CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)


def filled(*, unclean_start_at: int | None = None) -> tuple[dict[str, bytes], dict[int, bytes]]:
    """A cleanly closed directory with several segments, and its batches."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    for index in range(40):
        if index == unclean_start_at:
            log.sync()
            disk = SimDisk.of(disk.contents())
            directory = open_directory(disk)
            log = directory.partitions[TP]
        log.append(
            batch(
                b"%d" % index * 30,
                timestamp_ms=NOW_MS + index * 10,
                producer_id=9,
                producer_epoch=0,
                base_sequence=index,
            ),
            now_ms=NOW_MS,
        )
    log.sync()
    expected = read_batches(log)
    directory.close()
    return disk.contents(), expected


def open_directory(disk: SimDisk) -> LogDirectory:
    return LogDirectory.open(disk, now_ms=NOW_MS, config_for=lambda _: CONFIG, reserve_bytes=0)


def answers(log: PartitionLog) -> list[object]:
    """Everything an index, a snapshot or an epoch file could make wrong."""
    return [
        [(record.offset, record.value) for record in read_records(log, max_bytes=300)],
        [log.offset_for_time(NOW_MS + at) for at in range(-5, 410, 3)],
        log.latest_by_time(),
        log.end_offset,
        {
            producer: [batch[:3] for batch in entry.batches]
            for producer, entry in log.producers.entries.items()
        },
    ]


def test_L6_all_derived_files_may_be_deleted() -> None:
    contents, _ = filled()
    whole = answers(open_directory(SimDisk.of(contents)).partitions[TP])
    bare = {
        path: data
        for path, data in contents.items()
        if not path.endswith((".index", ".timeindex", ".snapshot", ".checkpoint"))
    }
    assert len(bare) < len(contents) - 10
    assert answers(open_directory(SimDisk.of(bare)).partitions[TP]) == whole


@pytest.mark.slow
def test_L6_a_lying_index_never_causes_a_wrong_answer() -> None:
    contents, _ = filled()
    whole = answers(open_directory(SimDisk.of(contents)).partitions[TP])
    derived = [name for name in contents if name.endswith((".index", ".timeindex", ".snapshot"))]
    chance = random.Random(3)
    for _ in range(300):
        damaged = dict(contents)
        path = chance.choice(derived)
        content = bytearray(damaged[path])
        kind = chance.randrange(4)
        if kind == 0 and content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content = bytearray(chance.randbytes(chance.randrange(100)))
        elif kind == 2:
            content = content[: chance.randrange(len(content) + 1)]
        else:
            other = chance.choice([name for name in derived if name[-6:] == path[-6:]])
            content, damaged[other] = bytearray(damaged[other]), bytes(content)
        damaged[path] = bytes(content)
        assert answers(open_directory(SimDisk.of(damaged)).partitions[TP]) == whole, path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "shoal.checkpoint", "shoal-index.checkpoint"]
)
def test_L6_garbage_in_a_small_file_costs_no_record_and_no_epoch(name: str) -> None:
    contents, expected = filled(unclean_start_at=20)
    epochs = open_directory(SimDisk.of(contents)).partitions[TP].epochs.entries
    assert epochs == [(0, 0), (1, 20)]
    chance = random.Random(name)
    for _ in range(40):
        path = f"orders-0/{name}"
        damaged = {**contents, path: chance.randbytes(chance.randrange(60))}
        log = open_directory(SimDisk.of(damaged)).partitions[TP]
        assert read_batches(log) == expected
        assert log.epochs.entries == epochs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "meta.properties"])
def test_garbage_in_a_shared_file_costs_no_record(name: str) -> None:
    contents, expected = filled()
    del contents[".kafka_cleanshutdown"]
    chance = random.Random(name)
    for _ in range(40):
        damaged = {**contents, name: chance.randbytes(chance.randrange(60))}
        log = open_directory(SimDisk.of(damaged)).partitions[TP]
        assert read_batches(log) == expected


@pytest.mark.slow
def test_L4_corruption_is_served_around_and_survives_clean_restarts() -> None:
    contents, expected = filled()
    del contents[".kafka_cleanshutdown"]
    contents.pop("recovery-point-offset-checkpoint")
    path = "orders-0/00000000000000000000.log"
    for position in range(0, len(contents[path]), 37):
        data = bytearray(contents[path])
        data[position] ^= 0x10
        disk = SimDisk.of({**contents, path: bytes(data)})
        directory = open_directory(disk)
        log = directory.partitions[TP]
        (bad,) = log.state.corrupt
        kept = {o: b for o, b in expected.items() if not bad.start_offset <= o < bad.end_offset}
        assert len(kept) == len(expected) - 1, "one batch is hurt"
        assert read_batches(log) == kept
        assert bytes(data) == disk.contents()[path], "L4: nothing is deleted"
        log.append(batch(b"new"), now_ms=NOW_MS)
        log.sync()
        directory.close()
        again = open_directory(disk)
        assert again.clean_start
        found = read_batches(again.partitions[TP])
        assert set(found) == set(kept) | {40}


def test_L4_a_lost_synced_tail_keeps_its_offsets_taken() -> None:
    contents, _ = filled()
    del contents[".kafka_cleanshutdown"]
    path = max(name for name in contents if name.endswith(".log"))
    contents[path] = contents[path][:50]
    disk = SimDisk.of(contents)
    log = open_directory(disk).partitions[TP]
    assert log.end_offset == 40, "L2: offsets are never used twice"
    assert log.append(batch(b"new"), now_ms=NOW_MS).base_offset == 40
    log.sync()
    assert 40 in read_batches(log)
    again = open_directory(SimDisk.of(disk.contents())).partitions[TP]
    assert 40 in read_batches(again)
