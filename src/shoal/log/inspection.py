"""Looking at log directories, ours or a real Kafka's, whatever is in them. Nothing is changed.

A path may be a data directory, the directory of one partition, or one file. Every file gets a
verdict of its own: ok, torn (bad bytes at the very end of a partition, what a crash leaves),
corrupt, or unsupported. The files may be in use: a batch that is being written looks torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError, StorageError
from shoal.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEALS,
    STATE,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_seals,
    decode_state,
)
from shoal.log.directory import partition_of
from shoal.log.disk import DirectoryEntry, Disk, File, OsDisk, read_file
from shoal.log.index import OffsetIndex, TimeIndex
from shoal.log.producers import Producers
from shoal.log.recovery import is_blank, scan
from shoal.log.segment import file_name
from shoal.log.transaction_index import ENTRY_SIZE, AbortedTransaction, TransactionIndex
from shoal.records.batch import BatchHeader
from shoal.records.compression import Codec
from shoal.records.markers import read_marker
from shoal.types import TopicPartition

_TXNINDEX_MAX_BYTES: Final = 1 << 30
FOREIGN: Final = "not part of a log"
_LEFTOVERS: Final = (".deleted", ".cleaned", ".swap", ".tmp", ".quarantine")


class Status(Enum):
    """What can be said of a file, from best to worst."""

    OK = "ok"
    TORN = "torn"
    CORRUPT = "corrupt"
    UNSUPPORTED = "unsupported"


class Damage(NamedTuple):
    """A run of bytes that is not a batch."""

    position: int
    end_position: int
    start_offset: int
    end_offset: int
    reason: str


class Verdict(NamedTuple):
    """What was found in one file."""

    path: str
    status: Status
    detail: str = ""
    position: int | None = None
    batches: int = 0
    records: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    damages: tuple[Damage, ...] = ()


class InspectedPartition(NamedTuple):
    """A directory with segments. The name need not be one that a broker would take."""

    directory: str
    topic_partition: TopicPartition | None


class InspectionTarget(NamedTuple):
    """What a path turned out to be."""

    disk: Disk
    partitions: list[InspectedPartition]
    file: str | None
    """Only this file, if the path names one."""
    is_data_directory: bool


def look_at(path: str) -> InspectionTarget:
    """Find out what a path is.

    Raises:
        StorageError: there is nothing, or nothing that could be a log.
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    above = OsDisk(parent or ("/" if path.startswith("/") else "."), read_only=True)
    entry = above.stat(name) if name else None
    if name and entry is None:
        raise StorageError(f"{path} does not exist")
    if entry is not None and entry.kind == "other":
        raise StorageError(f"{path} is neither a file nor a directory")
    if entry is not None and entry.kind == "file":
        partition = InspectedPartition("", partition_of((parent or above.root).rpartition("/")[2]))
        return InspectionTarget(above, [partition], name, is_data_directory=False)
    disk = OsDisk(path, read_only=True)
    # A broker may keep a file of its own beside the partitions that ends like a segment.
    is_marked = disk.stat(META_PROPERTIES) is not None
    if not is_marked and _holds_segments(disk.list()):
        partition = InspectedPartition("", partition_of(disk.root.rpartition("/")[2]))
        return InspectionTarget(disk, [partition], None, is_data_directory=False)
    partitions = [
        InspectedPartition(one.name, partition_of(one.name))
        for one in disk.list()
        if one.kind == "directory" and _holds_segments(disk.list(one.name))
    ]
    if not partitions and not is_marked:
        raise StorageError(f"{path} holds no log: neither segments nor partition directories")
    return InspectionTarget(disk, partitions, None, is_data_directory=True)


def _holds_segments(entries: list[DirectoryEntry]) -> bool:
    return any(entry.name.endswith(".log") for entry in entries)


def base_of(name: str) -> int | None:
    """The offset in a file's name."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isascii() and stem.isdigit() else None


def verify(target: InspectionTarget) -> Iterator[Verdict]:
    """A verdict on every file, in the order of their names."""
    if target.is_data_directory:
        for entry in target.disk.list():
            if entry.kind != "directory":
                yield _shared_file(target.disk, entry)
    for partition in target.partitions:
        for verdict in _partition(target.disk, partition):
            if target.file is None or verdict.path == target.file:
                yield verdict


def path_in(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _shared_file(disk: Disk, entry: DirectoryEntry) -> Verdict:
    if entry.kind == "other":
        return Verdict(entry.name, Status.UNSUPPORTED, "not a regular file")
    readers: dict[str, Callable[[bytes | None], object]] = {
        RECOVERY_POINTS: decode_offsets,
        LOG_STARTS: decode_offsets,
        HIGH_WATERMARKS: decode_offsets,
        CLEANER_OFFSETS: decode_offsets,
        META_PROPERTIES: lambda data: decode_properties(data) or None,
    }
    reader = readers.get(entry.name)
    if reader is None:
        known = entry.name in (CLEAN_SHUTDOWN, LOCK)
        return Verdict(entry.name, Status.OK, "" if known else FOREIGN)
    return _small_file(disk, entry.name, reader)


def _small_file(disk: Disk, path: str, reader: Callable[[bytes | None], object]) -> Verdict:
    data = read_file(disk, path)
    if data == b"":
        return Verdict(path, Status.OK, "empty")  # a broker makes it before it has something to say
    if reader(data) is None:
        return Verdict(path, Status.CORRUPT, "cannot be read")
    return Verdict(path, Status.OK)


class _Content(NamedTuple):
    """What was found in a segment: its good batches by position, and the rest."""

    base: int
    batches: dict[int, BatchHeader]
    damages: tuple[Damage, ...]
    ends: dict[int, int]
    """Offset → producer id of the markers that abort."""
    aborted: list[AbortedTransaction]
    """Transactions that began in the log and were aborted here."""
    is_last: bool

    def is_hurt_at(self, offset: int) -> bool:
        """Entries for damaged batches cannot be judged."""
        return any(offset >= damage.start_offset for damage in self.damages)


def _partition(disk: Disk, partition: InspectedPartition) -> Iterator[Verdict]:
    entries = disk.list(partition.directory)
    bases = sorted(
        base
        for entry in entries
        if entry.name.endswith(".log") and (base := base_of(entry.name)) is not None
    )
    contents: dict[int, _Content] = {}
    producers = Producers()
    for entry in sorted(entries, key=lambda one: (not one.name.endswith(".log"), one.name)):
        path = path_in(partition.directory, entry.name)
        if entry.kind == "directory":
            continue
        if entry.kind == "other":
            yield Verdict(path, Status.UNSUPPORTED, "not a regular file")
        elif entry.name.endswith(".log"):
            base = base_of(entry.name)
            if base is None:
                yield Verdict(path, Status.CORRUPT, "the name is not an offset")
                continue
            following = next((one for one in bases if one > base), None)
            found: dict[int, BatchHeader] = {}
            verdict = judge_segment(disk, path, base, following, found)
            ends, aborted = _replay(disk, path, found, producers)
            contents[base] = _Content(
                base, found, verdict.damages, ends, aborted, is_last=following is None
            )
            yield verdict
        else:
            yield _beside(disk, path, entry, contents)
    names = {entry.name for entry in entries}
    for base, content in contents.items():
        name = file_name(base, ".txnindex")
        if content.aborted and not content.damages and not content.is_last and name not in names:
            path = path_in(partition.directory, name)
            count = len(content.aborted)
            yield Verdict(path, Status.CORRUPT, f"is missing, with {count} aborted transactions")


def judge_segment(
    disk: Disk, path: str, base: int, following: int | None, found: dict[int, BatchHeader]
) -> Verdict:
    """The verdict on a segment; ``found`` receives its good batches by position."""
    file = disk.open(path, write=False)
    size = file.size()
    result = scan(
        file.read_at,
        start=0,
        size=size,
        next_offset=base,
        dense=False,  # compaction may have been here
        visit=found.__setitem__,
    )
    verdict = Verdict(
        path,
        Status.OK,
        batches=len(found),
        records=sum(header.record_count for header in found.values()),
        start_offset=next((header.base_offset for header in found.values()), base),
        end_offset=result.next_offset if found else base,
    )
    damages = [Damage(*bad) for bad in result.bad]
    if result.tail is not None:
        if is_blank(file.read_at, result.end_position, size):
            blank = size - result.end_position
            verdict = verdict._replace(detail=f"{blank} blank bytes at the end")
        else:
            end = verdict.end_offset or base
            damages.append(Damage(result.end_position, size, end, end, result.tail))
    if damages:
        return _damaged(verdict, file, damages, following, torn=not result.bad)
    return _fits(verdict, found, following)


def _replay(
    disk: Disk, path: str, found: dict[int, BatchHeader], producers: Producers
) -> tuple[dict[int, int], list[AbortedTransaction]]:
    """The abort markers of a segment, and which transactions they ended; segments come in order."""
    ends: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    file = disk.open(path, write=False)
    for position, header in found.items():
        if not header.is_transactional or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.note(header, header.last_offset)
            continue
        try:
            marker = read_marker(file.read_at(position, header.size_bytes))
        except CorruptDataError:
            continue  # a control record of somebody's own
        if marker is None:
            continue
        ended = producers.note_marker(header, marker, header.last_offset)
        if not marker.commit:
            ends[header.last_offset] = header.producer_id
        if ended is not None:
            aborted.append(ended)
    return ends, aborted


def _damaged(
    verdict: Verdict, file: File, damages: list[Damage], following: int | None, *, torn: bool
) -> Verdict:
    first = damages[0]
    status = Status.TORN if torn and following is None else Status.CORRUPT
    # An old message has its magic where a batch has it.
    magic = file.read_at(first.position + 16, 1)
    if magic and magic[0] in (0, 1) and "format" in first.reason:
        status = Status.UNSUPPORTED
    return verdict._replace(
        status=status, detail=first.reason, position=first.position, damages=tuple(damages)
    )


def _fits(verdict: Verdict, found: dict[int, BatchHeader], following: int | None) -> Verdict:
    for position, header in found.items():
        if header.codec > Codec.ZSTD:
            return verdict._replace(
                status=Status.UNSUPPORTED,
                detail=f"compressed with codec {header.codec}",
                position=position,
            )
    end = verdict.end_offset
    if following is not None and end is not None and end > following:
        return verdict._replace(
            status=Status.CORRUPT, detail=f"reaches to offset {end}, past the next segment"
        )
    return verdict


def _beside(disk: Disk, path: str, entry: DirectoryEntry, contents: dict[int, _Content]) -> Verdict:
    """A file beside the segments."""
    name = entry.name
    if name.endswith(_LEFTOVERS):
        return Verdict(path, Status.OK, "left over by a compaction, a deletion or a repair")
    readers: dict[str, Callable[[bytes | None], object]] = {
        LEADER_EPOCHS: decode_epochs,
        PARTITION_METADATA: decode_partition_metadata,
        STATE: decode_state,
        SEALS: decode_seals,
    }
    if name in readers:
        return _small_file(disk, path, readers[name])
    base = base_of(name)
    if base is None:
        return Verdict(path, Status.OK, FOREIGN)
    if name.endswith(".snapshot"):
        return _small_file(disk, path, lambda data: Producers.decode(data or b"", base))
    if base not in contents:
        return Verdict(path, Status.CORRUPT, "there is no segment of that name")
    if name.endswith(".index"):
        return _offset_index(disk, path, contents[base])
    if name.endswith(".timeindex"):
        return _time_index(disk, path, contents[base])
    if name.endswith(".txnindex"):
        return _transaction_index(disk, path, contents[base])
    return Verdict(path, Status.OK, FOREIGN)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _offset_index(disk: Disk, path: str, content: _Content) -> Verdict:
    index = OffsetIndex.decode(read_file(disk, path) or b"")
    if index is None:
        return Verdict(path, Status.CORRUPT, "not an index")
    for entry, (offset, position) in enumerate(zip(index.offsets, index.positions, strict=True)):
        if content.is_hurt_at(content.base + offset):
            break
        header = content.batches.get(position)
        if header is None or header.base_offset > content.base + offset:
            return Verdict(
                path, Status.CORRUPT, f"entry {entry} points to no batch", position=entry * 8
            )
    return Verdict(path, Status.OK, _entries(len(index)))


def _time_index(disk: Disk, path: str, content: _Content) -> Verdict:
    times = TimeIndex.decode(read_file(disk, path) or b"")
    if times is None:
        return Verdict(path, Status.CORRUPT, "not a time index")
    # A batch that compaction emptied still says how late it was; it need not be indexed.
    at_least = at_most = -1
    headers, at = list(content.batches.values()), 0
    for entry in range(len(times)):
        timestamp_ms, offset = times[entry]
        if content.is_hurt_at(content.base + offset):
            break
        while at < len(headers) and headers[at].base_offset <= content.base + offset:
            at_most = max(at_most, headers[at].max_timestamp_ms)
            if headers[at].record_count:
                at_least = max(at_least, headers[at].max_timestamp_ms)
            at += 1
        if not at_least <= timestamp_ms <= at_most:
            detail = f"entry {entry} is not the latest time up to its offset"
            return Verdict(path, Status.CORRUPT, detail, position=entry * 12)
    return Verdict(path, Status.OK, _entries(len(times)))


def _transaction_index(disk: Disk, path: str, content: _Content) -> Verdict:
    data = read_file(disk, path, limit_bytes=_TXNINDEX_MAX_BYTES) or b""
    index = TransactionIndex.decode(data)
    if index is None:
        return Verdict(path, Status.CORRUPT, "not a transaction index")
    entries = [index[at] for at in range(len(index))]
    for at, entry in enumerate(entries):
        if content.is_hurt_at(entry.last_offset):
            break
        if content.ends.get(entry.last_offset) != entry.producer_id:
            detail = f"entry {at} names no marker that aborts"
            return Verdict(path, Status.CORRUPT, detail, position=at * ENTRY_SIZE)
    listed = {entry.last_offset for entry in entries}
    for ended in content.aborted:
        # The last segment is written to: its newest entries may still be in memory.
        is_late = content.is_last and ended.last_offset > max(listed, default=-1)
        if ended.last_offset not in listed and not is_late and not content.damages:
            detail = f"the abort of producer {ended.producer_id} at {ended.last_offset} is missing"
            return Verdict(path, Status.CORRUPT, detail)
    return Verdict(path, Status.OK, _entries(len(index)))
