"""Whether a repeated task has the same rows: their number, and a sum of their hashes.

The order of rows does not matter, nor how they come in batches. It tells rows apart that differ by
accident, as those of another number of tasks or of another state of a source do; it is not proof
against somebody who looks for equal sums.

Rule: by columns, not by rows, except for headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from shoal.client.key_hashes import murmur2_column

if TYPE_CHECKING:
    import numpy.typing as npt

_END: Final = 2**64
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


class RowsFingerprint:
    """Of the rows of one task."""

    def __init__(self) -> None:
        self.rows = 0
        self.sum = 0

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        """Count rows for ``topic``."""
        if not rows.num_rows:
            return
        hashes = np.full(rows.num_rows, crc32(topic.encode()), np.uint64)
        names = rows.schema.names
        for name in ("key", "value"):
            if name in names:
                hashes = _mixed(hashes + _texts(rows.column(name)))
            else:
                hashes = _mixed(hashes)
        if "partition" in names:
            wished = rows.column("partition").fill_null(-1).cast(pa.int64())
            hashes = _mixed(hashes + wished.to_numpy(zero_copy_only=False).view(np.uint64))
        if "headers" in names:
            told = [crc32(repr(one).encode()) for one in rows.column("headers").to_pylist()]
            hashes = _mixed(hashes + np.array(told, np.uint64))
        self.rows += rows.num_rows
        self.sum = (self.sum + int(hashes.sum(dtype=np.uint64))) % _END


def _texts(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Size and murmur2 of each value; 0 for null."""
    binary = column.cast(pa.binary())
    sizes = np.asarray(pa.compute.binary_length(binary).fill_null(0)).astype(np.uint64)
    hashes = (sizes + np.uint64(1)) << np.uint64(32) | murmur2_column(binary).astype(np.uint64)
    return np.where(np.asarray(binary.is_valid()), hashes, np.uint64(0))


def _mixed(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each bit of the result depends on all bits before (splitmix64)."""
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> _SHIFTS[2])
