"""May a producer's batch be stored? Every record in it is looked at, one by one.

A batch that a broker took is read for years by clients that nobody can ask any more. So the
records are walked before they are stored, as Kafka does: a codec bit that lies, a count that is
not the number of records, a length that leads elsewhere, or bytes behind the last record are
found here and not by whoever reads. What is found out on the way (keys, times) is kept.

Rule: nothing is decoded and no checksum computed. With the C kernel it is one call, which takes a
microsecond for each hundred records.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_char
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.records import kernel
from shoal.records.batch import (
    HEADER_SIZE,
    LIMIT_BYTES,
    BatchHeader,
    inflate,
    parse_records,
    read_body,
    read_header,
)
from shoal.records.checksum import Buffer

_CODEC: Final = 0x07
_ATTRIBUTES_AT: Final = 22


class Facts(NamedTuple):
    """Of all records of a batch."""

    null_keys: int
    timestamp_min_ms: int
    timestamp_max_ms: int


def is_compressed(batch: Buffer) -> bool:
    """Whether the records of a batch, of which the header is there, are compressed."""
    return len(batch) >= HEADER_SIZE and bool(batch[_ATTRIBUTES_AT] & _CODEC)


def vet(batch: Buffer, *, limit_bytes: int = LIMIT_BYTES) -> Facts | None:
    """Facts about one whole batch, the buffer's only content; None if something is wrong with it.

    ``why_not`` then says what.

    Raises:
        BatchTooLargeError: it inflates to more than ``limit_bytes``.
    """
    library = kernel.native()
    try:
        header = read_header(batch)
        body = None
        if header.codec:
            body = inflate(memoryview(batch)[HEADER_SIZE:], 0, header, limit_bytes)
        if library is None:
            return _vet_in_python(batch, header, body)
    except CorruptDataError:
        return None
    facts = kernel.Facts()
    inside = (None, 0) if body is None else (kernel.address_of(body), len(body))
    if not library.shoal_vet(kernel.address_of(batch), len(batch), *inside, byref(facts)):
        return None
    return Facts(facts.null_keys, facts.timestamp_min, facts.timestamp_max)


def _vet_in_python(batch: Buffer, header: BatchHeader, body: Buffer | None) -> Facts:
    records = parse_records(bytes(batch[HEADER_SIZE:] if body is None else body), header)
    times = [record[1] for record in records]
    null_keys = sum(record[2] is None for record in records)
    return Facts(null_keys, min(times, default=2**63 - 1), max(times, default=-(2**63)))


def quick_vetter() -> Callable[[bytearray | memoryview], int | None]:
    """For plain batches that are many: a function to the largest timestamp, or None as ``vet``.

    It is for one thread, and the buffer must be one that may be written to.
    """
    library = kernel.native()
    if library is None:
        return _latest
    facts = kernel.Facts()
    # What is short keeps Python's lock: to give it away takes longer.
    call, address, found = library.vet_briefly, c_char.from_buffer, byref(facts)

    def latest(batch: bytearray | memoryview) -> int | None:
        if call(byref(address(batch)), len(batch), None, 0, found):
            return facts.timestamp_max  # type: ignore[no-any-return]  # a field of a structure
        return None

    return latest


def _latest(batch: bytearray | memoryview) -> int | None:
    facts = vet(batch)
    return None if facts is None else facts.timestamp_max_ms


def why_not(batch: Buffer) -> str:
    """What is wrong with the records of a batch whose header and checksum are right."""
    header = read_header(batch)
    try:
        body = read_body(batch, 0, header, check_crc=False)
        parse_records(body, header)
    except CorruptDataError as error:
        return error.reason
    raise AssertionError("the kernels disagree about a batch")
