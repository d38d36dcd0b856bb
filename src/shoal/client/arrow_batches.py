"""Arrow data on its way out: which rows go to which partition, encoded as record batches.

Rule: no Python object per row, and no row is copied before it is encoded. Keys are hashed by
columns; which rows go to which partition is said by an order, in which they are encoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shoal.client.key_hashes import murmur2_column
from shoal.client.partitioner import Partitioner, Sticky
from shoal.records.encoding import (
    GroupBatch,
    RowGroups,
    arrow_binary,
    encode_groups,
    header_columns,
)

_PART_BYTES: Final = 4 * 1024 * 1024
# What a batch of one row takes beside the bytes of key and value, at most; and each header.
_FRAME_BYTES: Final = 61 + 40
_HEADER_FRAME_BYTES: Final = 10
_SECONDS_END: Final = 2**63 // 1000


class Columns(NamedTuple):
    """The columns of one Arrow batch that make records."""

    keys: Any | None
    values: Any
    timestamps: Any | None
    headers: Any | None
    partitions: Any | None


class Encoding(NamedTuple):
    """How batches are made."""

    batch_bytes: int
    codec: int
    level: int | None
    take: Callable[[int], memoryview]
    """Gives memory to put batches into."""


def arrow_parts(data: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows in order, a few megabytes at a time: what is encoded next reuses the memory."""
    for batch in data.to_batches() if hasattr(data, "to_batches") else [data]:
        # Parts of one size: a last one of few rows would make a small batch for each partition.
        size = max(1, -(-batch.num_rows // max(1, round(batch.nbytes / _PART_BYTES))))
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


def columns_of(
    batch: pa.RecordBatch, key: str | None, value: str, partition: int | str | None
) -> Columns:
    """Pick the columns by name.

    Raises:
        ValueError: the value column, or a named partition column, is not there.
        TypeError: keys or values that are neither bytes nor text.
    """
    names = batch.schema.names

    def column(name: str | None, *, needed: bool) -> Any | None:
        if name is not None and (needed or name in names):
            return _only_column(batch, name)
        return None

    numbers = column(partition, needed=True) if isinstance(partition, str) else None
    keys = column(key, needed=False)
    return Columns(
        None if keys is None else arrow_binary(keys),
        arrow_binary(column(value, needed=True)),
        column("timestamp", needed=False),
        column("headers", needed=False),
        None if numbers is None else numbers.cast(pa.int64()),
    )


def outermost(data: pa.RecordBatch | pa.Table, partition: int | str | None) -> list[int]:
    """The least and the largest partition that is asked for.

    Raises:
        ValueError: the named column is not there.
        TypeError: it does not hold whole numbers.
    """
    if not isinstance(partition, str):
        return [] if partition is None else [partition]
    column = _only_column(data, partition)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"partitions are whole numbers; {partition!r} holds {column.type}")
    ends = pc.min_max(column.cast(pa.int64())).as_py().values()
    return [number for number in ends if number is not None]


def need_times(data: pa.RecordBatch | pa.Table) -> None:
    """Refuse times that ``send`` refuses.

    Raises:
        ValueError: a row has a time before 1970, or one that milliseconds cannot tell.
    """
    if "timestamp" not in data.schema.names:
        return
    column = _only_column(data, "timestamp")
    if pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type):
        first = pc.min(column.cast(pa.int64())).as_py()
        if first is not None and first < 0:
            raise ValueError(f"the timestamp {pc.min(column)} is before 1970")
        last = pc.max(column.cast(pa.int64())).as_py()
        is_seconds = pa.types.is_timestamp(column.type) and column.type.unit == "s"
        if last is not None and is_seconds and last >= _SECONDS_END:
            raise ValueError(f"a timestamp {last} seconds after 1970 is too far ahead")


def check_rows(
    data: pa.RecordBatch | pa.Table,
    key: str | None,
    value: str,
    partition: int | str | None,
    max_request_size: int,
) -> None:
    """Look at every row before the first is sent: nobody could tell later what was.

    Raises:
        ValueError: a row that no batch of ``max_request_size`` holds, or a header without a name.
        TypeError: a column of something that cannot be sent.
    """
    first = 0
    for part in arrow_parts(data):
        columns = columns_of(part, key, value, partition)
        sizes = _sizes(columns.values) + _FRAME_BYTES
        if columns.keys is not None:
            sizes += _sizes(columns.keys)
        if columns.headers is not None:
            sizes += _header_sizes(columns.headers, first)
        row = int(np.argmax(sizes))
        if sizes[row] > max_request_size:
            raise ValueError(
                f"row {first + row} has {sizes[row]} bytes, more than max_request_size="
                f"{max_request_size}"
            )
        first += part.num_rows


def _sizes(column: Any) -> npt.NDArray[np.int64]:
    return np.array(pc.binary_length(column).fill_null(0), dtype=np.int64)


def _header_sizes(headers: Any, first: int) -> npt.NDArray[np.int64]:
    """How many bytes the headers of each row take; ``first`` is the number of the first row."""
    lists, names, contents = header_columns(headers)
    rows = np.array(pc.list_parent_indices(lists), dtype=np.int64)
    if names.null_count:
        row = rows[np.flatnonzero(np.asarray(names.is_null()))[0]]
        raise ValueError(f"row {first + row} has a header without a key")
    sizes = _sizes(arrow_binary(names)) + _sizes(arrow_binary(contents)) + _HEADER_FRAME_BYTES
    return np.bincount(rows, sizes, minlength=len(lists)).astype(np.int64)


def choose_partitions(
    topic: str,
    data: pa.RecordBatch | pa.Table,
    columns: Callable[[pa.RecordBatch], Columns],
    partition_count: int,
    partitioner: Partitioner,
) -> Iterator[Any]:
    """Per part of the data the partition of each row, from a partitioner that may refuse one.

    Raises:
        ValueError: it named a partition that does not exist.
    """
    for part in arrow_parts(data):
        numbers = _partitions(topic, columns(part), partition_count, partitioner)
        _need_partitions(topic, numbers, partition_count)
        yield pa.array(numbers)


def _need_partitions(topic: str, numbers: npt.NDArray[np.int64], partition_count: int) -> None:
    wrong = numbers[(numbers < 0) | (numbers >= partition_count)]
    if len(wrong):
        raise ValueError(
            f"topic {topic!r} has partitions 0 to {partition_count - 1}, not {wrong[0]}"
        )


def _only_column(data: pa.RecordBatch | pa.Table, name: str) -> Any:
    """The column of this name.

    Raises:
        ValueError: there is none, or more than one.
    """
    names = data.schema.names
    if names.count(name) == 1:
        return data.column(name)
    many = f"{names.count(name)} columns are called" if name in names else "no column"
    raise ValueError(f"{many} {name!r}; there are {', '.join(names)}")


def encoded(
    topic: str,
    columns: Columns,
    partition: int | str | None,
    partition_count: int,
    partitioner: Partitioner,
    encoding: Encoding,
) -> Iterator[tuple[int, GroupBatch]]:
    """Record batches with the partition each goes to; rows of a partition in their order."""
    if isinstance(partition, int):
        for batch in _encode(columns, None, encoding):
            yield partition, batch
    elif columns.partitions is None and columns.keys is None and isinstance(partitioner, Sticky):
        # Nothing binds a row to a partition: whole batches are spread.
        for batch in _encode(columns, None, encoding):
            number = partitioner(topic, None, partition_count)
            partitioner.batch_done(topic, number, partition_count)
            yield number, batch
    else:
        numbers = _partitions(topic, columns, partition_count, partitioner)
        _need_partitions(topic, numbers, partition_count)
        which, groups = _grouped(numbers)
        for batch in _encode(columns, groups, encoding):
            yield which[batch.group], batch


def _encode(columns: Columns, groups: RowGroups | None, encoding: Encoding) -> Iterator[GroupBatch]:
    return encode_groups(
        columns.keys,
        columns.values,
        timestamps=columns.timestamps,
        headers=columns.headers,
        timestamp_ms=time.time_ns() // 1_000_000,
        groups=groups,
        batch_bytes=encoding.batch_bytes,
        codec=encoding.codec,
        level=encoding.level,
        take=encoding.take,
    )


def _partitions(
    topic: str, columns: Columns, count: int, partitioner: Partitioner
) -> npt.NDArray[np.int64]:
    if columns.partitions is not None:
        numbers = np.array(columns.partitions.fill_null(0), dtype=np.int64)
        if columns.partitions.null_count:
            is_null = np.asarray(columns.partitions.is_null())
            chosen = _partitions(topic, columns._replace(partitions=None), count, partitioner)
            numbers[is_null] = chosen[is_null]
        return numbers
    if columns.keys is None:
        keys: list[bytes | None] = [None] * len(columns.values)
    elif isinstance(partitioner, Sticky):
        return _by_key(topic, columns.keys, count, partitioner)
    else:
        keys = columns.keys.to_pylist()
    return np.array([partitioner(topic, key, count) for key in keys], dtype=np.int64)


def _by_key(topic: str, keys: Any, count: int, partitioner: Sticky) -> npt.NDArray[np.int64]:
    hashes = murmur2_column(keys)
    numbers = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    if keys.null_count:
        is_null = np.asarray(keys.is_null().to_numpy(zero_copy_only=False))
        current = numbers[is_null] = partitioner(topic, None, count)
        partitioner.batch_done(topic, current, count)  # or all without a key stay on one for ever
    return numbers


def _grouped(numbers: npt.NDArray[np.int64]) -> tuple[list[int], RowGroups]:
    """The partitions that get rows, and the rows of each in their order."""
    # NumPy sorts small integers by counting, several times faster than large ones.
    small = numbers.astype(np.uint16) if numbers.max() < 2**16 else numbers
    order = np.argsort(small, kind="stable").astype(np.int64, copy=False)
    ordered = small[order]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    ends = np.append(changes, len(numbers)).astype(np.int64, copy=False)
    return ordered[ends - 1].tolist(), RowGroups(order, ends)
