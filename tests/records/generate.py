"""Records and batches for the tests of this package: strategies, and a way to force a kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from shoal.records import kernel
from shoal.records.batch import NewRecord, encode_batch
from shoal.types import TimestampType

INT64_MAX = 2**63 - 1
KERNELS = ("python", "c")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Force one kernel; a fixture would not do, as Hypothesis runs many examples in one test."""
    before = os.environ.get("SHOAL_KERNEL")
    os.environ["SHOAL_KERNEL"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["SHOAL_KERNEL"]
        else:
            os.environ["SHOAL_KERNEL"] = before


def is_built() -> bool:
    with using("auto"):
        return kernel.native() is not None


needs_kernel = pytest.mark.skipif(not is_built(), reason="the C kernel was not built (no compiler)")
each_kernel = pytest.mark.parametrize(
    "kernel_name", ["python", pytest.param("c", marks=needs_kernel)]
)

# Lengths on both sides of each step of a varint, but mostly short.
_lengths = st.one_of(
    st.integers(0, 12), st.sampled_from([63, 64, 65, 127, 128, 8191, 8192, 8193, 20_000])
)
_bytes = st.one_of(st.binary(max_size=8), _lengths.map(lambda n: b"x" * n))
optional_bytes = st.one_of(st.none(), _bytes)
header_lists = st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple)
timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_010_000),
    st.integers(-(2**62), 2**62 - 1),
    st.just(-1),
)
new_records = st.tuples(
    optional_bytes, optional_bytes, st.one_of(st.just(()), header_lists), timestamps
)
record_lists = st.one_of(
    st.lists(new_records, min_size=1, max_size=8),
    # Enough for the kernel's ways, which small batches do not take.
    st.lists(new_records, min_size=4, max_size=8).map(lambda some: some * 10),
)


class Sample(NamedTuple):
    """A batch and what was put into it."""

    data: bytes
    records: Sequence[NewRecord]
    offsets: Sequence[int]
    options: dict[str, Any]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What a reader has to find: offset, timestamp, key, value, headers."""
        options = self.options
        by_broker = options.get("timestamp_type") is TimestampType.LOG_APPEND_TIME
        time = options.get("max_timestamp_ms")
        if by_broker and time is None:
            time = max((record[3] for record in self.records), default=-1)
        return [
            (offset, time if by_broker else timestamp_ms, key, value, tuple(headers))
            for offset, (key, value, headers, timestamp_ms) in zip(
                self.offsets, self.records, strict=True
            )
        ]


@st.composite
def samples(draw: st.DrawFn, codecs: Sequence[int] = range(5)) -> Sample:
    """Batches of all kinds, compacted ones too, but no control batches."""
    records = draw(record_lists)
    base = draw(st.one_of(st.just(0), st.integers(0, 2**62)))
    options: dict[str, Any] = {
        "base_offset": base,
        "codec": draw(st.sampled_from(codecs)),
        "leader_epoch": draw(st.integers(-1, 5)),
    }
    offsets: list[int] = list(range(base, base + len(records)))
    if draw(st.booleans()):
        gaps = draw(st.lists(st.integers(1, 100), min_size=len(records), max_size=len(records)))
        offsets = [base + sum(gaps[: i + 1]) - 1 for i in range(len(gaps))]
        options |= {"offsets": offsets, "last_offset": offsets[-1] + draw(st.integers(0, 9))}
    if draw(st.booleans()):
        options |= {
            "producer_id": draw(st.integers(0, INT64_MAX)),
            "producer_epoch": draw(st.integers(0, 2**15 - 1)),
            "base_sequence": draw(st.integers(0, 2**31 - 1)),
            "is_transactional": draw(st.booleans()),
        }
    if draw(st.booleans()):
        options["timestamp_type"] = TimestampType.LOG_APPEND_TIME
        options["max_timestamp_ms"] = draw(st.one_of(st.none(), st.integers(0, 2**62)))
    if draw(st.booleans()):
        options["delete_horizon_ms"] = draw(st.integers(0, 2**61))
    return Sample(encode_batch(records, **options), records, offsets, options)


def plain(count: int, *, base_offset: int = 0, codec: int = 0, size: int = 20) -> bytes:
    """A batch of records which tell their offsets, some with headers, some null."""
    records: list[NewRecord] = [
        (
            None if i % 7 == 3 else b"k%d" % (base_offset + i),
            None if i % 11 == 5 else b"v%d" % (base_offset + i) + b"." * size,
            (("n", b"%d" % i), ("é", None)) if i % 5 == 2 else (),
            1_700_000_000_000 + 10 * i,
        )
        for i in range(count)
    ]
    return encode_batch(records, base_offset=base_offset, codec=codec)
