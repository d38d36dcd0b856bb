"""The coordinator's journal on a disk that forgets what was not synced.

A batch is appended as a whole. A crash keeps what was synced and, of the rest, some prefix: a
torn batch fails its checksum, and nothing behind it is read. Compaction keeps the last record of
each key at its offset, as Kafka's does.

Rule: what is read back went through bytes, so a record that cannot be written cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from shoal.group.coordinator.consumer_journal import ConsumerGroupTombstone, ConsumerRecord
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
    decode,
    encode,
)

Entry = tuple[int, JournalRecord]

_TOMBSTONES = (GroupTombstone, OffsetTombstone, ConsumerGroupTombstone)
_CONSUMER_RECORDS = get_args(ConsumerRecord)


class SimulatedJournal:
    """Batches in order; the first ``synced`` of them survive anything."""

    def __init__(self) -> None:
        self._base: list[Entry] = []  # compacted
        self._base_end = 0  # the offset after it
        self._batches: list[tuple[int, Sequence[JournalRecord]]] = []
        self._next_offset = 0
        self._dropped = 0  # batches that became part of the base
        self.synced = 0
        # What was read before. It holds the record too: an id is of one object while that lives.
        self._read: dict[int, tuple[JournalRecord, JournalRecord]] = {}

    @property
    def appended(self) -> int:
        return self._dropped + len(self._batches)

    def append(self, records: Sequence[JournalRecord]) -> int:
        """Returns the offset of the first record."""
        offset = self._next_offset
        self._batches.append((offset, records))
        self._next_offset += len(records)
        return offset

    def crash(self, kept: int) -> None:
        """Power is lost: of the batches that were not synced, ``kept`` are there all the same."""
        survivors = min(self.synced + kept, self.appended)
        del self._batches[survivors - self._dropped :]
        self.synced = survivors
        # Offsets are dense: what was lost was never there.
        self._next_offset = self._end()

    def _end(self, count: int | None = None) -> int:
        """The offset after the first ``count`` batches."""
        kept = self._batches[:count]
        return kept[-1][0] + len(kept[-1][1]) if kept else self._base_end

    def compact(self, *, drop_tombstones: bool) -> None:
        """Keep the last of each key among what is synced."""
        last: dict[tuple[str, ...], Entry] = {}
        count = self.synced - self._dropped
        for offset, record in self._entries(count):
            key = key_of(record)
            last.pop(key, None)
            last[key] = (offset, record)
        self._base = [
            (offset, record)
            for offset, record in sorted(last.values(), key=lambda entry: entry[0])
            if not (drop_tombstones and isinstance(record, _TOMBSTONES))
        ]
        self._base_end = self._end(count)
        del self._batches[:count]
        self._dropped += count

    def _entries(self, count: int | None = None) -> Iterator[Entry]:
        yield from self._base
        for base, records in self._batches[:count]:
            yield from enumerate(records, base)

    def read(self) -> Iterator[Entry]:
        """Everything there is, through bytes and back."""
        known = self._read
        for offset, record in self._entries():
            read = known.get(id(record))
            if read is None or read[0] is not record:
                decoded = decode(*encode(record))
                assert decoded is not None
                read = known[id(record)] = (record, decoded)
            yield offset, read[1]


def key_of(record: JournalRecord) -> tuple[str, ...]:
    match record:
        case GroupRecord() | GroupTombstone():
            return ("group", record.group_id)
        case OffsetRecord() | OffsetTombstone():
            return ("offset", record.group_id, record.topic, str(record.partition))
        case _ if isinstance(record, _CONSUMER_RECORDS):
            return ("consumer", encode(record)[0].hex())
        case _:
            raise TypeError(f"no key: {record}")
