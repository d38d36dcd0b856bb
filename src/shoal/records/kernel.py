"""Finds and loads the C kernel, if it was built, and says what its structures look like.

Rule: nothing here loops over records and nothing here knows Arrow. ``native()`` is the one
question the rest of the package asks: the loaded library, or None for "do it in Python". The
results are the same either way; ``SHOAL_KERNEL=python``, ``c`` or ``auto`` forces the choice.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_char_p, c_int, c_int64, c_ssize_t, c_uint32, c_void_p
from typing import Any, Final

from shoal.errors import ConfigError
from shoal.records.checksum import Buffer

VERSION: Final = 10
_VARIABLE: Final = "SHOAL_KERNEL"
_FILE: Final = os.path.join(os.path.dirname(__file__), "_kernel.so")


def _structure(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


def _int64s(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), c_int64)


# The same names in the same order as in kernel.c. Addresses are plain integers here.
ChunkIn = _structure(
    "ChunkIn",
    data=c_void_p,
    **_int64s("size start_offset end_offset partition"),
    aborted=c_void_p,
    aborted_count=c_int64,
)
Batch = _structure(
    "Batch",
    **_int64s("chunk position size"),
    body=c_void_p,
    **_int64s(
        "body_size base_offset last_delta attributes base_timestamp max_timestamp producer_id "
        "record_count leader_epoch start_offset end_offset partition rows"
    ),
)
Sizes = _structure(
    "Sizes",
    index=c_void_p,
    **_int64s(
        "index_size rows key_bytes key_nulls value_bytes value_nulls headed_rows headers "
        "header_key_bytes header_value_bytes header_value_nulls header_keys_beyond_ascii "
        "timestamp_min timestamp_max"
    ),
)
#: sizeof(Row) in kernel.c: what the index needs per record
INDEX_BYTES: Final = 40
#: The parts of ``Layout``, each a start and a size.
PARTS: Final = (
    "offset",
    "timestamp",
    "partition",
    "timestamp_type",
    "key_offsets",
    "key_data",
    "key_validity",
    "value_offsets",
    "value_data",
    "value_validity",
    "header_offsets",
    "header_validity",
    "header_key_offsets",
    "header_key_data",
    "header_value_offsets",
    "header_value_data",
    "header_value_validity",
)
Layout: Final = c_int64 * (2 * len(PARTS))
#: Which columns are wanted, or'ed together.
WANTED: Final = {
    "offset": 1,
    "timestamp": 2,
    "partition": 4,
    "timestamp_type": 8,
    "key": 16,
    "value": 32,
    "headers": 64,
}
BinaryIn = _structure(
    "BinaryIn", offsets=c_void_p, data=c_void_p, validity=c_void_p, first_bit=c_int64
)
TableIn = _structure(
    "TableIn",
    rows=c_int64,
    timestamps=c_void_p,
    fixed_timestamp=c_int64,
    key=BinaryIn,
    value=BinaryIn,
    headers=BinaryIn,
    header_key=BinaryIn,
    header_value=BinaryIn,
    **_int64s(
        "limit_bytes limit_rows seal attributes leader_epoch producer_id producer_epoch "
        "base_offset base_sequence"
    ),
    order=c_void_p,
    ends=c_void_p,
)
Facts = _structure("Facts", **_int64s("null_keys timestamp_min timestamp_max"))
Cut = _structure("Cut", **_int64s("position size rows base_timestamp max_timestamp"))

_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "shoal_prepare": (None, [c_int64]),
    "shoal_crc32c": (c_uint32, [c_char_p, c_int64]),
    "shoal_scan": (
        c_int64,
        [c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p],
    ),
    "shoal_measure": (c_int64, [c_void_p, c_int64, c_void_p]),
    "shoal_vet": (c_int64, [c_void_p, c_int64, c_void_p, c_int64, c_void_p]),
    "shoal_layout": (c_int64, [c_void_p, c_int64, c_void_p]),
    "shoal_decode": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64]),
    "shoal_cut": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p, c_int64]),
    "shoal_offsets": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p]),
    "shoal_murmur2": (None, [c_void_p, c_int64, c_void_p]),
    "shoal_encode": (c_int64, [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64]),
}
#: Names of our own for functions called without letting other threads run meanwhile.
_BRIEF: Final = {
    "count_batches": "shoal_scan",
    "lay_out": "shoal_layout",
    "vet_briefly": "shoal_vet",
}


def load(path: str, *, crc_instruction: bool = True) -> Any:
    """The library in this file, ready to be called.

    Raises:
        OSError: no such file, or not for this machine.
        ConfigError: built from other sources than these.
    """
    library = ctypes.CDLL(path)
    if not hasattr(library, "shoal_kernel_version") or library.shoal_kernel_version() != VERSION:
        raise ConfigError(
            f"{path} is not version {VERSION} of the kernel; build it again with `make setup`"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    library.shoal_prepare(crc_instruction)
    # These are over sooner than another thread could begin: they keep Python's lock.
    brief = ctypes.PyDLL(path)
    for name, symbol in _BRIEF.items():
        function = brief[symbol]
        function.restype, function.argtypes = _SIGNATURES[symbol]
        setattr(library, name, function)
    return library


_loaded: dict[str, Any] = {}


def native() -> Any | None:
    """The C kernel, or None where Python does its work."""
    wish = os.environ.get(_VARIABLE, "auto")
    if wish not in _loaded:
        _loaded[wish] = _choose(wish)
    return _loaded[wish]


def _choose(wish: str) -> Any | None:
    if wish == "python":
        return None
    if wish not in ("c", "auto"):
        raise ConfigError(f"{_VARIABLE}={wish!r} is not one of auto, c, python")
    try:
        return load(_FILE)
    except OSError as error:
        if wish == "auto":
            return None
        raise ConfigError(
            f"{_VARIABLE}=c, but the kernel was not built ({error}); install a C compiler and "
            "run `make setup` again, or leave the variable away"
        ) from None


def __getattr__(name: str) -> object:
    if name == "NAME":  # which one is in use, for a bug report
        return "python" if native() is None else "c"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Scratch memory -----------------------------------------------------------------------------
# Memory which was used before need not be zeroed nor faulted in again; on a fetch of a mebibyte
# that is a tenth of the work. A few pieces are kept, none of them large.

_SPARE: Final[deque[bytearray]] = deque(maxlen=4)
_SPARE_BYTES_MIN: Final = 64 * 1024
_SPARE_BYTES_MAX: Final = 4 * 1024 * 1024


@contextmanager
def scratch(size: int) -> Iterator[bytearray]:
    """At least ``size`` bytes of anything, for the time of the block."""
    piece = None
    if _SPARE_BYTES_MIN <= size <= _SPARE_BYTES_MAX:
        with suppress(IndexError):
            piece = _SPARE.pop()
    if piece is None or len(piece) < size:
        piece = bytearray(size)
    try:
        yield piece
    finally:
        if _SPARE_BYTES_MIN <= len(piece) <= _SPARE_BYTES_MAX:
            _SPARE.append(piece)


# Addresses ----------------------------------------------------------------------------------


class _BufferView(ctypes.Structure):
    """``Py_buffer``, part of Python's stable ABI since 3.11."""

    _fields_ = (
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    )


def address_of(data: Buffer | array[int]) -> int:
    """Where the bytes lie. The caller keeps ``data`` alive and unchanged while C reads it.

    NumPy would tell as well, but a broker should not import it for this.
    """
    view = _BufferView()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(view), 0)
    address: int = view.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address
