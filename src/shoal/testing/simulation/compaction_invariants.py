"""What compaction must leave of transactions: T13.

    T13 compaction takes nothing that counts: the last committed record of every key stays, what
        is undecided stays, nothing moves or changes, and a reader of committed records gets what
        is left of them and nothing else, wherever it begins; who was fenced stays fenced

A compacted log is read whole and compared with everything that was ever seen in it. The reader
here follows the protocol by itself: aborted transactions in the order of their first offsets, and
an abort marker ends one.

Rule: what compaction *may* take is not asked. It may be slow, it may not be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.records.batch import BatchHeader, decode_batch, iter_headers
from shoal.records.markers import is_abort_marker
from shoal.testing.simulation.invariants import demand

_KEYS: Final = 5
_READ_BYTES: Final = (200, 1_000, 1 << 20)


def key_of(value: bytes) -> bytes:
    """The key a record is sent with to a compacted topic."""
    return b"k%d" % (crc32(value) % _KEYS)


class SeenLog(Protocol):
    """Everything that was ever visible in a partition, by offset."""

    @property
    def values(self) -> Sequence[bytes]: ...
    @property
    def fates(self) -> Sequence[bool | None]:
        """Whether readers of committed records get it; ``None`` if that is not decided."""
        ...

    @property
    def epochs(self) -> Mapping[int, int]:
        """The last epoch of each producer."""
        ...

    @property
    def lso(self) -> int: ...


class Left(NamedTuple):
    """A record that is there, or a marker."""

    offset: int
    value: bytes
    header: BatchHeader
    aborts: bool


def left_of(
    log: PartitionLog,
    as_seen: Callable[[bytes, bytes], bytes],
    start: int = 0,
    size_bytes: int = _READ_BYTES[-1],
) -> Iterator[list[Left]]:
    """What is stored up to the high watermark, read by read."""
    offset = max(start, log.start_offset)
    while offset < log.high_watermark:
        read = log.read(offset, size_bytes)
        if read.error is ErrorCode.CORRUPT_MESSAGE:
            offset += 1  # a hole that a power cut has left, T2 sees to those
            continue
        demand(read.error is ErrorCode.NONE, "T13", f"{log.topic_partition} at {offset}: {read}")
        data, found, began = read.read_bytes(), [], offset
        for position, header in iter_headers(data):
            if header.is_control:
                aborts = bool(header.record_count) and is_abort_marker(data, position)
                found.append(Left(header.base_offset, b"", header, aborts))
            else:
                found += [
                    Left(
                        one.offset,
                        as_seen(bytes(one.key or b""), bytes(one.value or b"")),
                        header,
                        False,
                    )
                    for one in decode_batch(data, position)
                ]
            offset = header.next_offset
        if offset == began:
            return
        yield found


def read_committed(
    log: PartitionLog, as_seen: Callable[[bytes, bytes], bytes], start: int, size_bytes: int
) -> list[int]:
    """The offsets a reader of committed records gets that begins at ``start``."""
    got: list[int] = []
    stable = log.last_stable_offset
    for found in left_of(log, as_seen, start, size_bytes):
        if not found:
            continue
        end = min(found[-1].header.next_offset, stable)
        begins = sorted(
            (first, producer_id)
            for producer_id, first in log.aborted_transactions(max(start, found[0].offset), end)
        )
        aborted: set[int] = set()
        for offset, _, header, aborts in found:
            while begins and begins[0][0] <= header.last_offset:
                aborted.add(begins.pop(0)[1])
            if header.is_control:
                if aborts:
                    aborted.discard(header.producer_id)
            elif start <= offset < stable and not (
                header.is_transactional and header.producer_id in aborted
            ):
                got.append(offset)
    return got


def check_compacted(
    log: PartitionLog,
    seen: SeenLog,
    dice: Random,
    key: Callable[[bytes], bytes | None],
    as_seen: Callable[[bytes, bytes], bytes],
) -> None:
    """Compare a compacted log with all that was seen in it.

    Args:
        key: the key of a value that was seen; ``None`` if nothing of it has to stay.
        as_seen: a stored key and value, as they were written down.
    """
    tp, values, fates = log.topic_partition, seen.values, seen.fates
    there: set[int] = set()
    for found in left_of(log, as_seen):
        for offset, value, header, _ in found:
            if header.is_control or offset >= len(values):
                continue
            there.add(offset)
            same = values[offset] == value
            demand(same, "T13", f"{tp} has {value!r} at {offset}, where {values[offset]!r} was")
    last: dict[bytes, int] = {}
    for offset, fate in enumerate(fates):
        if fate is None:
            demand(offset in there, "T13", f"{values[offset]!r} in {tp} is undecided, and gone")
        elif fate:
            name = key(values[offset])
            if name is not None:
                last[name] = offset
    for name, offset in last.items():
        what = f"{values[offset]!r}, the last committed of {name!r} in {tp} at {offset}, is gone"
        demand(offset in there, "T13", what)
    start = dice.randrange(len(values) + 1)
    size_bytes = dice.choice(_READ_BYTES)
    got = read_committed(log, as_seen, start, size_bytes)
    wanted = sorted(at for at in there if start <= at < log.last_stable_offset and fates[at])
    got = [at for at in got if at < len(values)]
    what = f"a reader of {tp} from {start} on by {size_bytes} gets {got}, not {wanted}"
    demand(got == wanted, "T13", what)


def check_fences(log: PartitionLog, seen: SeenLog) -> None:
    """Whoever was shut out is shut out after a restart too."""
    known = {entry.producer_id: entry.epoch for entry in log.producer_states()}
    for producer_id, epoch in seen.epochs.items():
        what = f"{log.topic_partition} lets {producer_id} in from {known.get(producer_id)} on"
        demand(known.get(producer_id, -1) >= epoch, "T13", f"{what}, {epoch} was seen")
