"""The content of log files as rows: batches, records, index entries, snapshots. Nothing is changed.

Rows are plain dictionaries with the same keys in the same order for every row of a kind, so that a
table and JSON lines come from one source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from shoal.errors import CorruptDataError
from shoal.log.checkpoints import decode_epochs
from shoal.log.disk import Disk, read_file
from shoal.log.index import OffsetIndex, TimeIndex
from shoal.log.inspection import InspectedPartition, InspectionTarget, base_of, path_in
from shoal.log.producers import Producers
from shoal.log.recovery import scan
from shoal.log.transaction_index import TransactionIndex
from shoal.records.batch import BatchHeader, decode_batch
from shoal.records.compression import Codec
from shoal.records.markers import read_marker

Row = dict[str, Any]


class Choice(NamedTuple):
    """What to show: offsets ``start..end``; whether to go on behind bytes that are not a batch."""

    start: int = 0
    end: int | None = None
    skip_corrupt: bool = False

    def takes(self, header: BatchHeader) -> bool:
        return header.last_offset >= self.start and (
            self.end is None or header.base_offset < self.end
        )


def batches(target: InspectionTarget, choice: Choice) -> Iterator[tuple[Row, bytes]]:
    """Every chosen batch: its row, and its bytes.

    Raises:
        CorruptDataError: bytes are not a batch, and the choice is not to go on.
    """
    for partition in target.partitions:
        for name in _segments(target, partition):
            path = path_in(partition.directory, name)
            for position, header in _good(target.disk, path, choice):
                if choice.takes(header):
                    data = target.disk.open(path, write=False).read_at(position, header.size_bytes)
                    yield batch_row(path, position, header), data


def _segments(target: InspectionTarget, partition: InspectedPartition) -> list[str]:
    if target.file is not None:
        return [target.file] if target.file.endswith(".log") else []
    return [
        entry.name
        for entry in target.disk.list(partition.directory)
        if entry.kind == "file" and entry.name.endswith(".log") and base_of(entry.name) is not None
    ]


def _good(disk: Disk, path: str, choice: Choice) -> list[tuple[int, BatchHeader]]:
    file = disk.open(path, write=False)
    found: list[tuple[int, BatchHeader]] = []
    result = scan(
        file.read_at,
        start=0,
        size=file.size(),
        next_offset=base_of(path.rpartition("/")[2]),
        dense=False,
        visit=lambda position, header: found.append((position, header)),
    )
    if result.bad and not choice.skip_corrupt:
        bad = result.bad[0]
        if choice.end is None or bad.start_offset < choice.end:
            raise CorruptDataError(
                f"{bad.reason} (--skip-corrupt shows the rest)", path=path, position=bad.position
            )
    return found


def batch_row(path: str, position: int, header: BatchHeader) -> Row:
    codec = header.codec
    return {
        "file": path,
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "codec": Codec(codec).name.lower() if codec <= Codec.ZSTD else str(codec),
        "max_timestamp_ms": header.max_timestamp_ms,
        "timestamp_type": header.timestamp_type.name.lower(),
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def records(target: InspectionTarget, choice: Choice) -> Iterator[Row]:
    """Every chosen record; keys, values and header values are bytes."""
    for row, data in batches(target, choice):
        marker = read_marker(data) if row["control"] else None
        for record in decode_batch(data):
            if record.offset >= choice.start and (choice.end is None or record.offset < choice.end):
                yield {
                    "file": row["file"],
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": record.key,
                    "value": record.value,
                    "headers": list(record.headers),
                    "control": row["control"],
                    "marker": None if marker is None else "commit" if marker.commit else "abort",
                    "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
                }


def side_file(target: InspectionTarget) -> list[Row]:
    """The entries of an index (of any kind), a snapshot or an epoch checkpoint.

    Raises:
        CorruptDataError: the file is something else, or damaged.
    """
    name = target.file or ""
    data = read_file(target.disk, name)
    base = base_of(name) or 0
    rows = _rows(name, data or b"", base)
    if rows is None:
        raise CorruptDataError("cannot be read as what its name says", path=name)
    return rows


def _rows(name: str, data: bytes, base: int) -> list[Row] | None:
    if name.endswith(".index"):
        return _index_rows(OffsetIndex.decode(data), base)
    if name.endswith(".timeindex"):
        return _time_rows(TimeIndex.decode(data), base)
    if name.endswith(".snapshot"):
        snapshot = Producers.decode(data, base)
        return None if snapshot is None else _producer_rows(snapshot[0])
    if name.endswith(".txnindex"):
        return _aborted_rows(TransactionIndex.decode(data))
    epochs = decode_epochs(data)
    if epochs is None:
        return None
    return [{"leader_epoch": epoch, "start_offset": start} for epoch, start in epochs]


def _index_rows(index: OffsetIndex | None, base: int) -> list[Row] | None:
    if index is None:
        return None
    return [
        {"offset": base + offset, "position": position}
        for offset, position in zip(index.offsets, index.positions, strict=True)
    ]


def _time_rows(times: TimeIndex | None, base: int) -> list[Row] | None:
    if times is None:
        return None
    entries = [times[entry] for entry in range(len(times))]
    return [
        {"timestamp_ms": timestamp_ms, "offset": base + offset} for timestamp_ms, offset in entries
    ]


def _aborted_rows(index: TransactionIndex | None) -> list[Row] | None:
    return None if index is None else [index[at]._asdict() for at in range(len(index))]


def _producer_rows(producers: Producers) -> list[Row]:
    return [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "timestamp_ms": entry.timestamp_ms,
            "batches": len(entry.batches),
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }
        for entry in producers.entries.values()
    ]
