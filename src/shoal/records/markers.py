"""Control batches: the markers which end a producer's transaction in a partition.

A marker is a batch of one record, written by the transaction coordinator and never shown to
applications. Its key says what it is: i16 version, i16 type (0 abort, 1 commit); its value who
wrote it: i16 version, i32 coordinator_epoch.
"""

from __future__ import annotations

import struct
from typing import Final

from shoal.errors import CorruptDataError
from shoal.records.batch import NewRecord, decode_batch, encode_batch
from shoal.records.checksum import Buffer

_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")


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
    record: NewRecord = (
        _CONTROL_KEY.pack(0, commit),
        _CONTROL_VALUE.pack(0, coordinator_epoch),
        (),
        timestamp_ms,
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def is_abort_marker(data: Buffer, position: int = 0, *, check_crc: bool = True) -> bool:
    """Does this control batch say that its producer's transaction was aborted?"""
    for record in decode_batch(data, position, check_crc=check_crc):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptDataError("a control record has no type", position=position)
        return bool(_CONTROL_KEY.unpack_from(record.key)[1] == 0)
    return False  # compaction emptied it
