"""Which records become rows: options ``keyEquals``, ``valueContains`` and ``headerEquals``.

Spark cannot push a filter down to a Python source without giving wrong rows where a frame is used
twice, so the filter is said by options. It is evaluated on Arrow columns in the worker: what is not
wanted is neither parsed nor handed to the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.spark.options import SourceOptions


def columns_to_filter(options: SourceOptions) -> list[str]:
    """The columns the options look at."""
    looked_at = {
        "key": options.key_equals,
        "value": options.value_contains,
        "headers": options.header_equals,
    }
    return [name for name, wanted in looked_at.items() if wanted is not None]


def wanted_rows(
    batches: Iterator[pa.RecordBatch], options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of the batches that fit all of the options."""
    if not columns_to_filter(options):
        yield from batches
        return
    for batch in batches:
        kept = _kept(batch, options)
        if kept.num_rows:
            yield kept


def _kept(batch: pa.RecordBatch, options: SourceOptions) -> pa.RecordBatch:
    if options.key_equals is not None:
        wanted = pa.scalar(options.key_equals.encode(), pa.binary())
        batch = batch.filter(pc.equal(batch.column("key"), wanted))
    if options.value_contains is not None:
        batch = batch.filter(pc.match_substring(batch.column("value"), options.value_contains))
    if options.header_equals is not None:
        batch = batch.filter(_has_header(batch.column("headers"), *options.header_equals))
    return batch


def _has_header(lists: pa.Array, name: str, value: str) -> pa.Array:
    """Which rows have a header of this name and value, among others maybe."""
    headers = lists.flatten()
    fits = pc.and_(
        pc.equal(pc.struct_field(headers, "key"), name),
        pc.equal(pc.struct_field(headers, "value"), pa.scalar(value.encode(), pa.binary())),
    ).fill_null(False)
    mask = np.zeros(len(lists), dtype=bool)
    mask[np.asarray(pc.list_parent_indices(lists).filter(fits))] = True
    return pa.array(mask)
