"""The C that reads JSON documents into columns, if it was built: ``json_kernel.c`` says how.

Rule: nothing here looks at a document. A table of columns is made of the struct once; for each run
of values there is room made for what they hold, and Arrow's arrays are laid over it afterwards.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_char_p, c_int64, c_void_p
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from shoal.errors import ConfigError
from shoal.records import kernel
from shoal.records.encoding import point_bytes

VERSION: Final = 1
_FILE: Final = os.path.join(os.path.dirname(__file__), "_json_kernel.so")
_STRUCT, _LIST, _WHOLE, _DOUBLE, _SINGLE, _DECIMAL, _FLAG, _TEXT = range(8)
_WIDTHS: Final = {_LIST: 4, _DOUBLE: 8, _SINGLE: 4, _DECIMAL: 16, _FLAG: 1, _TEXT: 16}
"""Bytes of a value; of whole numbers the type says it."""
LIST_ROOM: Final = 4
"""How many values the lists of a document have, until more are met."""


class _Column(ctypes.Structure):
    """``Column`` in the C."""

    _fields_ = (
        ("kind", c_int64),
        ("first", c_int64),
        ("children", c_int64),
        ("name", c_char_p),
        ("name_size", c_int64),
        ("width", c_int64),
        ("precision", c_int64),
        ("scale", c_int64),
        ("room", c_int64),
        ("count", c_int64),
        ("valid", c_void_p),
        ("values", c_void_p),
    )


@cache
def _load(path: str) -> Any | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    if library.shoal_json_version() != VERSION:
        raise ConfigError(f"{path} is not version {VERSION}; build it again with `make setup`")
    library.shoal_json_read.argtypes = [c_void_p, c_int64, c_void_p, c_int64, c_void_p]
    library.shoal_json_text_size.argtypes = [c_void_p]
    library.shoal_json_texts.argtypes = [c_void_p, c_void_p, c_void_p]
    library.shoal_json_read.restype = library.shoal_json_text_size.restype = c_int64
    library.shoal_json_texts.restype = None
    return library


def native() -> Any | None:
    """The library, or None where others do its work, as for the kernel of records."""
    return None if kernel.native() is None else _load(_FILE)


class DocumentReader:
    """Documents to a struct of types that JSON has.

    Args:
        library: What ``native`` found.
        kind: A struct of structs, lists, numbers, booleans and text.
    """

    def __init__(self, library: Any, kind: pa.DataType) -> None:
        self._library = library
        self._kinds: list[pa.DataType] = [kind]
        self._is_in_list = [False]
        self._has_long_lists = False
        columns = [_column(kind, "")]
        for at, one in enumerate(self._kinds):  # it grows meanwhile: children behind one another
            columns[at].first = len(columns)
            fields = list(_fields(one))
            columns[at].children = len(fields)
            self._kinds += [field.type for field in fields]
            self._is_in_list += [self._is_in_list[at] or types.is_list(one)] * len(fields)
            columns += [_column(field.type, field.name) for field in fields]
        self._columns = (_Column * len(columns))(*columns)

    def read(self, run: pa.Array) -> tuple[pa.Array, list[int]]:
        """The column, and the rows that are null in it because somebody else has to read them."""
        left = np.empty(len(run), np.int64)
        place = kernel.BinaryIn()
        size = point_bytes(place, run)
        held = self._make_room(len(run), size)
        count = self._read(place, left)
        if count < 0:
            self._has_long_lists = True
            held = self._make_room(len(run), size)
            count = self._read(place, left)
        assert count >= 0, "there was room for as many values as there can be"
        return self._array(0, held), left[:count].tolist()

    def _read(self, place: Any, left: npt.NDArray[np.int64]) -> int:
        columns, rows = self._columns, len(left)
        count: int = self._library.shoal_json_read(
            columns, len(columns), ctypes.byref(place), rows, left.ctypes.data
        )
        return count

    def _make_room(self, rows: int, size: int) -> list[tuple[npt.NDArray[np.uint8], ...]]:
        """Bytes that say which values are there, and those of the values, for each column."""
        # A value of a list takes two bytes at least: itself, and what stands behind it.
        in_lists = size // 2 + 1 if self._has_long_lists else LIST_ROOM * rows
        held: list[tuple[npt.NDArray[np.uint8], ...]] = []
        for column, is_in_list in zip(self._columns, self._is_in_list, strict=True):
            column.room = in_lists if is_in_list else rows
            valid = np.empty(column.room, np.uint8)
            values = np.empty(column.width * (column.room + 1), np.uint8)
            column.valid, column.values = valid.ctypes.data, values.ctypes.data
            held.append((valid, values))
        return held

    def _array(self, at: int, held: list[tuple[npt.NDArray[np.uint8], ...]]) -> pa.Array:
        column, (valid, values) = self._columns[at], held[at]
        count = column.count
        nulls = count - int(np.count_nonzero(valid[:count]))
        is_valid = _bits(valid[:count]) if nulls else None
        inside = range(column.first, column.first + column.children)
        children = [self._array(child, held) for child in inside]
        return pa.Array.from_buffers(
            self._kinds[at],
            count,
            [is_valid, *self._buffers(column, values)],
            null_count=nulls,
            children=children or None,
        )

    def _buffers(self, column: Any, values: npt.NDArray[np.uint8]) -> Iterator[pa.Buffer]:
        """What Arrow has of a column behind the bits that say which values are there."""
        count = column.count
        if column.kind == _LIST:
            yield pa.py_buffer(values[: column.width * (count + 1)])
        elif column.kind == _FLAG:
            yield _bits(values[:count])
        elif column.kind == _TEXT:
            offsets = np.empty(count + 1, np.int32)
            place = ctypes.byref(column)
            data = np.empty(self._library.shoal_json_text_size(place), np.uint8)
            self._library.shoal_json_texts(place, offsets.ctypes.data, data.ctypes.data)
            yield pa.py_buffer(offsets)
            yield pa.py_buffer(data)
        elif column.kind != _STRUCT:
            yield pa.py_buffer(values[: column.width * count])


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    if types.is_struct(kind):
        yield from kind
    elif types.is_list(kind):
        yield kind.value_field


def _column(kind: pa.DataType, name: str) -> _Column:
    column = _Column(kind=_kind(kind))
    column.name = name.encode()
    column.name_size = len(name.encode())
    column.width = _WIDTHS.get(column.kind, 0)
    if column.kind == _WHOLE:
        column.width = kind.bit_width // 8
    elif column.kind == _DECIMAL:
        column.precision, column.scale = kind.precision, kind.scale
    return column


def _kind(kind: pa.DataType) -> int:
    for is_kind, number in (
        (types.is_struct, _STRUCT),
        (types.is_list, _LIST),
        (types.is_signed_integer, _WHOLE),
        (types.is_float64, _DOUBLE),
        (types.is_float32, _SINGLE),
        (types.is_decimal128, _DECIMAL),
        (types.is_boolean, _FLAG),
        (types.is_string, _TEXT),
    ):
        if is_kind(kind):
            return number
    raise AssertionError(f"JSON is not read as {kind}")


def _bits(each: npt.NDArray[np.uint8]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(each, bitorder="little"))
