"""The last touch on a batch before it is sent: who produced it, and its place in the sequence.

Rule: a batch is encoded once; a retry under another producer id only changes fourteen bytes of its
header and the checksum over it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from shoal.records.batch import NewRecord, encode_batch
from shoal.records.checksum import crc32c

# Where these stand in a batch of format v2; records/batch.py has the whole layout.
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43

Producer = tuple[int, int, int]
"""Producer id, epoch, base sequence."""


def stamp(batch: memoryview, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Write the producer into an encoded batch, in place, if it is not there yet.

    A producer's batch starts at offset 0: Kafka refuses any other.
    """
    batch[:8] = bytes(8)
    wanted = _PRODUCER.pack(producer_id, epoch, base_sequence)
    if batch[_PRODUCER_AT : _PRODUCER_AT + len(wanted)] == wanted:
        return
    batch[_PRODUCER_AT : _PRODUCER_AT + len(wanted)] = wanted
    with batch[_COVERED_FROM:] as covered:
        _CRC.pack_into(batch, _CRC_AT, crc32c(covered))


def encode(
    records: Sequence[NewRecord], codec: int, level: int | None, producer: Producer
) -> bytes:
    producer_id, epoch, base_sequence = producer
    return encode_batch(
        records,
        codec=codec,
        level=level,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
    )
