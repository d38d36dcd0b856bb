"""Control batches: the markers which end a producer's transaction in a partition.

A marker is a batch of one record, written by the transaction coordinator and never shown to
applications. Its key says what it is: i16 version, i16 type (0 abort, 1 commit); its value who
wrote it: i16 version, i32 coordinator_epoch.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.records.batch import decode_batch, front
from shoal.records.checksum import Buffer

MARKER_SIZE: Final = 78
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
# Attributes to record count, and the one record: every field of a marker has its place.
_MARKER: Final = struct.Struct(">hiqqqhii5shhchic")
_ATTRIBUTES: Final = 0x30  # transactional, control
_NO_SEQUENCE: Final = -1
# Sizes as varints: of the record and (behind its attributes and deltas) the key; of the value.
_BEFORE_KEY: Final = b"\x20\0\0\0\x08"
_BEFORE_VALUE: Final = b"\x0c"
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    """What a marker says."""

    commit: bool
    coordinator_epoch: int | None
    """None if the writer left it out."""


def encode_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch which ends a producer's transaction in one partition."""
    covered = _MARKER.pack(
        _ATTRIBUTES,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        _NO_SEQUENCE,
        1,
        _BEFORE_KEY,
        0,
        commit,
        _BEFORE_VALUE,
        0,
        coordinator_epoch,
        b"\0",
    )
    return front(covered, base_offset, leader_epoch) + covered


def read_marker(data: Buffer, position: int = 0, *, check_crc: bool = True) -> EndMarker | None:
    """What this control batch says of its producer's transaction; None if nothing.

    Compaction may have emptied it, and a control batch may be of another kind.
    """
    for record in decode_batch(data, position, check_crc=check_crc):
        key, value = record.key, record.value
        if key is None or len(key) < _CONTROL_KEY.size:
            raise CorruptDataError("a control record has no type", position=position)
        kind = _CONTROL_KEY.unpack_from(key)[1]
        if kind not in (_ABORT, _COMMIT):
            return None
        is_whole = value is not None and len(value) >= _CONTROL_VALUE.size
        epoch = _CONTROL_VALUE.unpack_from(value or b"")[1] if is_whole else None
        return EndMarker(kind == _COMMIT, epoch)
    return None


def is_abort_marker(data: Buffer, position: int = 0, *, check_crc: bool = True) -> bool:
    """Does this control batch say that its producer's transaction was aborted?"""
    marker = read_marker(data, position, check_crc=check_crc)
    return marker is not None and not marker.commit
