"""Equal rows have equal fingerprints, however they come; others do not."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shoal.spark.fingerprint import RowsFingerprint

TEXTS = st.none() | st.binary(max_size=9)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, st.none() | st.integers(0, 3)), max_size=12)


def batch(rows: list[tuple[bytes | None, bytes | None, int | None]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([one[0] for one in rows], pa.binary()),
            "value": pa.array([one[1] for one in rows], pa.binary()),
            "partition": pa.array([one[2] for one in rows], pa.int32()),
        }
    )


def of(*batches: pa.RecordBatch, topic: str = "t") -> tuple[int, int]:
    fingerprint = RowsFingerprint()
    for one in batches:
        fingerprint.add(topic, one)
    return fingerprint.rows, fingerprint.sum


@given(ROWS, st.integers(0, 12), st.randoms())
def test_order_and_batches_do_not_matter(rows, cut, random) -> None:  # type: ignore[no-untyped-def]
    mixed = list(rows)
    random.shuffle(mixed)
    assert of(batch(rows)) == of(batch(mixed[:cut]), batch(mixed[cut:]))


@given(ROWS, ROWS)
def test_other_rows_are_noticed(one, other) -> None:  # type: ignore[no-untyped-def]
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (of(batch(one)) == of(batch(other))) is same


def test_texts_are_their_bytes_and_topics_and_headers_count() -> None:
    text = pa.record_batch({"value": pa.array(["ä", None, ""])})
    binary = pa.record_batch({"value": pa.array(["ä".encode(), None, b""])})
    assert of(text) == of(binary) != of(text, topic="u")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    plain, other = (
        pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([headers], kind)})
        for headers in ([{"key": "a", "value": b"1"}], [{"key": "a", "value": b"2"}])
    )
    assert of(plain) != of(other)
    assert of(text.slice(1)) == of(binary.slice(1)) != of(binary.slice(0, 2))
