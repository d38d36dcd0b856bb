"""Which partition of an internal topic holds an id: clients and tools compute it too."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_IDS_KNOWN: Final = 4096
"""Of which the partition is at hand: each request of a transaction or a group asks for it."""


@lru_cache(maxsize=_IDS_KNOWN)
def string_hash(text: str) -> int:
    """Java's ``String.hashCode`` as an unsigned 32-bit number.

    ``shoal.assign`` has it too; but a broker starts without the assignors, and sooner.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


@lru_cache(maxsize=_IDS_KNOWN)
def partition_for(key: str, count: int) -> int:
    """The partition of ``__consumer_offsets`` or ``__transaction_state`` that holds an id."""
    value = string_hash(key)
    if value >= 0x80000000:
        value = 0x100000000 - value
    # Java's abs(MIN_VALUE) stays negative; Kafka's own abs makes it 0.
    return 0 if value == 0x80000000 else value % count
