"""A journal replayed fast: what a restart does with a million commits.

Most of a journal is plain commits, and of those of one position only the last counts. So they are
kept by their key, undecoded, until another kind of record comes; then the survivors are decoded
and replayed, and after them the other record. Nothing else is left out or moved, so the state is
the one that replaying every record gives.

Rule: this module knows bytes well enough to be quick and nothing better than ``journal.decode``;
whatever is not written as we write it goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from struct import Struct
from typing import Final

from shoal.group.coordinator.journal import JournalRecord, OffsetRecord, TransactionMarker, decode

RawFields = tuple[int, int, bytes | None, bytes | None, object]
"""Offset, timestamp, key, value and headers, as ``shoal.records`` gives them."""

_KEPT_MAX: Final = 100_000
"""Undecoded commits at a time: a journal of different keys must not be in memory twice."""
_kind: Final = itemgetter(slice(0, 2))
_KINDS_OF_COMMITS: Final = frozenset({b"\0\0", b"\0\1"})
# Of a value: version, offset, leader epoch, size of the metadata; the commit's time ends it.
_HEAD: Final = Struct(">hqih")
_TIME: Final = Struct(">q")
# With the id of its topic it is flexible: the size is one more and takes a byte if it is small,
# and after the time there is one field with a tag, of sixteen bytes.
_HEAD_WITH_ID: Final = Struct(">hqiB")
_TIME_AND_ID: Final = Struct(">q3s16s")
_ONE_ID: Final = b"\x01\x00\x10"
_SMALL: Final = 0x80


class Loader:
    """Gives the records of a journal, in order, to ``replay``."""

    def __init__(self, replay: Callable[[JournalRecord, int], None]) -> None:
        self._replay = replay
        self._commits: dict[bytes, tuple[int, bytes]] = {}

    def feed(
        self, records: Sequence[RawFields], *, producer: tuple[int, int] | None = None
    ) -> None:
        """Some records; ``producer`` if they are of a transaction's batch."""
        if not records:
            return
        offsets, _, keys, values, _ = zip(*records, strict=True)
        is_plain = producer is None and None not in keys and None not in values
        if is_plain and _KINDS_OF_COMMITS.issuperset(map(_kind, keys)):
            self._commits.update(zip(keys, zip(offsets, values, strict=True), strict=True))
            if len(self._commits) >= _KEPT_MAX:
                self.flush()
            return
        self.flush()
        for offset, key, value in zip(offsets, keys, values, strict=True):
            record = decode(key, value, producer=producer) if key is not None else None
            if record is not None:
                self._replay(record, offset)

    def end_transaction(self, marker: TransactionMarker, offset: int) -> None:
        """A control batch."""
        self.flush()
        self._replay(marker, offset)

    def flush(self) -> None:
        """Replay what was kept. Also the last thing to do."""
        commits, self._commits = self._commits, {}
        for offset, record in decode_commits(commits.items()):
            self._replay(record, offset)


def decode_commits(
    commits: Iterable[tuple[bytes, tuple[int, bytes]]],
) -> Iterator[tuple[int, OffsetRecord]]:
    """Commits as (key, (offset in the journal, value)), decoded.

    Raises:
        InvalidMessageError: The bytes are not what their type says.
    """
    # A key without the partition at its end → group and topic.
    names: dict[bytes, tuple[str, str]] = {}
    for key, (at, value) in commits:
        known = names.get(key[:-4])
        record = _quickly(known, key, value) if known is not None else None
        if record is None:
            decoded = decode(key, value)
            assert isinstance(decoded, OffsetRecord)
            names[key[:-4]] = decoded.group_id, decoded.topic
            record = decoded
        yield at, record


def _quickly(names: tuple[str, str], key: bytes, value: bytes) -> OffsetRecord | None:
    """The record, if its value is of a version that we and Kafka write."""
    if value[:2] == b"\0\4":
        return _quickly_with_id(names, key, value)
    if len(value) < _HEAD.size:
        return None
    version, offset, leader_epoch, size = _HEAD.unpack_from(value)
    if version != 3 or size < 0 or len(value) != _HEAD.size + size + _TIME.size:
        return None
    try:
        metadata = value[_HEAD.size : -_TIME.size].decode() if size else ""
    except UnicodeDecodeError:
        return None
    return OffsetRecord(
        names[0],
        names[1],
        int.from_bytes(key[-4:], "big", signed=True),
        offset,
        None if leader_epoch < 0 else leader_epoch,
        metadata,
        _TIME.unpack_from(value, _HEAD.size + size)[0],
    )


def _quickly_with_id(names: tuple[str, str], key: bytes, value: bytes) -> OffsetRecord | None:
    if len(value) < _HEAD_WITH_ID.size:
        return None
    _, offset, leader_epoch, size = _HEAD_WITH_ID.unpack_from(value)
    end = _HEAD_WITH_ID.size + size - 1
    if not 0 < size < _SMALL or len(value) != end + _TIME_AND_ID.size:
        return None
    time_ms, tag, topic_id = _TIME_AND_ID.unpack_from(value, end)
    if tag != _ONE_ID:
        return None
    try:
        metadata = value[_HEAD_WITH_ID.size : end].decode() if size > 1 else ""
    except UnicodeDecodeError:
        return None
    return OffsetRecord(
        names[0],
        names[1],
        int.from_bytes(key[-4:], "big", signed=True),
        offset,
        None if leader_epoch < 0 else leader_epoch,
        metadata,
        time_ms,
        topic_id=topic_id,
    )
