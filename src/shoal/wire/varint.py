"""Unsigned varints (KIP-482): seven bits to a byte, the lowest first, at most 32 bits.

Values below 128 are one byte, and nearly all lengths are: encoder and decoder handle those inline
and come here for the rest.
"""

from __future__ import annotations

from shoal.errors import InvalidMessageError

MAX_BYTES = 5


def encode_uvarint(value: int) -> bytes:
    """Bytes of ``value``, which is below 2**32."""
    assert 0 <= value < 1 << 32, f"not an unsigned 32-bit value: {value}"
    if 0x7F < value < 1 << 14:
        # Lengths of two bytes are the usual ones here, and need no loop.
        return (value & 0x7F | 0x80 | value >> 7 << 8).to_bytes(2, "little")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The value at ``position`` and the position after it; IndexError where the data ends."""
    value = 0
    for count in range(MAX_BYTES):
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + count + 1
    raise InvalidMessageError("a varint has more than 32 bits")
