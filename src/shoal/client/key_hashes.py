"""murmur2 of a column: Kafka's hash of a key, for all keys at once.

Rule: ``partitioner.py`` is the reference for one key. The kernel does the same in a loop, and where
it was not built NumPy does, word by word of all keys.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.records.encoding import arrow_binary, point_bytes
from shoal.records.kernel import BinaryIn, native


def murmur2_column(keys: Any) -> npt.NDArray[np.uint32]:
    """``murmur2`` of each value of a binary or string array; of null, whatever."""
    binary = arrow_binary(keys)
    if not len(binary):
        return np.empty(0, np.uint32)  # it may have no buffers at all
    library = native()
    return _by_numpy(binary) if library is None else _by_kernel(library, binary)


def _by_kernel(library: Any, binary: Any) -> npt.NDArray[np.uint32]:
    hashes = np.empty(len(binary), np.uint32)
    place = BinaryIn()
    point_bytes(place, binary)
    library.shoal_murmur2(ctypes.byref(place), len(binary), hashes.ctypes.data)
    return hashes


def _by_numpy(binary: Any) -> npt.NDArray[np.uint32]:
    _, offsets_buffer, data_buffer = binary.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)
    offsets = offsets[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if len(sizes) and sizes[0] and (sizes == sizes[0]).all():
        # Keys of one size are a table: columns of words instead of a search for each byte.
        table = data[offsets[0] : offsets[-1]].reshape(len(sizes), sizes[0])
        return _murmur2_table(table)
    m = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ sizes.astype(np.uint32)
    words = sizes // 4
    for index in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > index)
        k = _little_endian(data, starts[rows] + 4 * index, 4) * m
        k ^= k >> np.uint32(24)
        h[rows] = (h[rows] * m) ^ (k * m)
    for rest in (1, 2, 3):
        rows = np.flatnonzero(sizes % 4 == rest)
        if len(rows):
            tail = _little_endian(data, starts[rows] + 4 * words[rows], rest)
            h[rows] = (h[rows] ^ tail) * m
    h ^= h >> np.uint32(13)
    h *= m
    return h ^ (h >> np.uint32(15))


def _murmur2_table(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """``murmur2`` of each row."""
    rows, size = table.shape
    m = np.uint32(0x5BD1E995)
    h = np.full(rows, np.uint32(0x9747B28C) ^ np.uint32(size), np.uint32)
    words = size // 4
    for k in np.ascontiguousarray(table[:, : 4 * words]).view("<u4").T * m:
        h = (h * m) ^ ((k ^ (k >> np.uint32(24))) * m)
    rest = table[:, 4 * words :].astype(np.uint32)
    if size % 4:
        for place in range(size % 4):
            h ^= rest[:, place] << np.uint32(8 * place)
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    return h ^ (h >> np.uint32(15))


def _little_endian(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int32], size: int
) -> npt.NDArray[np.uint32]:
    number = np.zeros(len(positions), dtype=np.uint32)
    for place in range(size):
        number |= data[positions + place].astype(np.uint32) << np.uint32(8 * place)
    return number
