"""Columns to batches: Arrow or lists, limits, timestamps of any unit; equal with both kernels."""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import encoding
from shoal.records.batch import checksum_holds, decode_batch, encode_batch, read_header
from shoal.records.encoding import GroupBatch, RowGroups, encode_columns, encode_groups
from tests.records.generate import each_kernel, is_built, needs_kernel, record_lists, using

pa = pytest.importorskip("pyarrow")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KERNELS = ("python", "c") if is_built() else ("python",)


def encode(keys: Any, values: Any, **options: Any) -> list[bytes]:
    """With every kernel, which have to agree."""
    results = []
    for name in KERNELS:
        with using(name):
            results.append(encode_columns(keys, values, **options))
    assert all(result == results[0] for result in results)
    return results[0]


def rows(batches: list[bytes]) -> list[Any]:
    assert all(checksum_holds(batch) for batch in batches)
    return list(chain.from_iterable(decode_batch(batch) for batch in batches))


def columns_of(records: Any) -> tuple[list[Any], ...]:
    keys, values, headers, timestamps = (list(column) for column in zip(*records, strict=True))
    return keys, values, headers, timestamps


def arrow_headers(headers: list[Any]) -> Any:
    pairs = [[{"key": key, "value": value} for key, value in row] or None for row in headers]
    return pa.array(pairs, HEADERS)


@pytest.mark.slow
@given(
    record_lists,
    st.integers(0, 4),
    st.one_of(st.integers(1, 500), st.integers(1, 100_000)),
    st.one_of(st.just(2**31 - 1), st.integers(1, 20)),
)
def test_columns_become_batches_within_the_limits(records, codec, batch_bytes, batch_rows) -> None:
    keys, values, headers, timestamps = columns_of(records)
    options = {
        "codec": codec,
        "batch_bytes": batch_bytes,
        "batch_rows": batch_rows,
        "base_offset": 70,
        "base_sequence": 2**31 - 5,
        "producer_id": 3,
        "producer_epoch": 1,
        "leader_epoch": 2,
        "is_transactional": True,
    }
    batches = encode(keys, values, timestamps=timestamps, headers=headers, **options)
    assert batches == encode(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        timestamps=pa.array(timestamps, pa.int64()),
        headers=arrow_headers(headers),
        **options,
    )
    found = rows(batches)
    assert [record[1:] for record in found] == [
        (timestamp, key, value, tuple(pairs)) for key, value, pairs, timestamp in records
    ]
    assert [record.offset for record in found] == list(range(70, 70 + len(records)))
    first = 0
    for batch in batches:
        header = read_header(batch)
        assert header.record_count <= batch_rows
        assert header.base_sequence == (2**31 - 5 + first) % 2**31
        assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (3, 1, 2)
        assert header.is_transactional
        assert header.max_timestamp_ms == max(timestamps[first : first + header.record_count])
        if codec == 0:
            assert len(batch) <= batch_bytes or header.record_count == 1
            # It is the batch which batch.py would write.
            assert batch == encode_batch(
                records[first : first + header.record_count],
                base_offset=header.base_offset,
                base_sequence=header.base_sequence,
                producer_id=3,
                producer_epoch=1,
                leader_epoch=2,
                is_transactional=True,
            )
        first += header.record_count
    assert first == len(records)


def test_batches_are_filled_to_the_limit() -> None:
    batches = encode(None, [b"x" * 100] * 1000, batch_bytes=16_384)
    sizes = [len(batch) for batch in batches]
    assert all(16_384 - 110 < size <= 16_384 for size in sizes[:-1])
    assert read_header(batches[1]).base_offset == read_header(batches[0]).record_count


@pytest.mark.parametrize("codec", [0, 4])
def test_sequence_numbers_wrap_between_batches(codec: int) -> None:
    batches = encode(None, [b"x"] * 4, batch_rows=1, base_sequence=2**31 - 2, codec=codec)
    assert [read_header(batch).base_sequence for batch in batches] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_more_batches_than_fit_into_one_call_are_all_there() -> None:
    values = [b"%d" % i for i in range(2000)]
    batches = encode(None, values, batch_rows=1)
    assert len(batches) == 2000
    assert [record.value for record in rows(batches)] == values


def test_more_than_the_scratch_holds_is_encoded_in_steps() -> None:
    values = [b"%d" % i + b"." * 50_000 for i in range(100)]
    for batch_bytes in (300_000, 2_000_000, 10_000_000):
        batches = encode(None, values, batch_bytes=batch_bytes)
        assert [record.value for record in rows(batches)] == values


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    large = b"x" * 3_000_000
    batches = encode(None, [b"a", large, b"b"], batch_bytes=1000)
    assert [record.value for batch in batches for record in decode_batch(batch)] == [
        b"a",
        large,
        b"b",
    ]
    assert [read_header(batch).record_count for batch in batches] == [1, 1, 1]


@each_kernel
@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_the_topic_would_not_take_is_refused_by_its_rows(
    kernel_name: str, codec: int
) -> None:
    import random

    noise = random.Random(0).randbytes(5000)
    with (
        using(kernel_name),
        pytest.raises(ValueError, match=r"row 1 to 2 has .*max_message_bytes="),
    ):
        encode_columns(
            None, [b"a", noise, b"b"], batch_bytes=1, max_message_bytes=4000, codec=codec
        )
    with using(kernel_name):
        assert len(encode_columns(None, [noise], max_message_bytes=6000, codec=codec)) == 1


def test_null_keys_and_null_values_stay_null() -> None:
    batches = encode([None, b"", b"k"], [b"", None, None], timestamp_ms=9)
    assert [record[1:4] for record in rows(batches)] == [
        (9, None, b""),
        (9, b"", None),
        (9, b"k", None),
    ]
    assert [record[2:4] for record in rows(encode([None] * 2, [None] * 2))] == [(None, None)] * 2


def test_no_rows_are_no_batches() -> None:
    assert encode([], []) == []
    assert encode(None, []) == []
    assert encode(pa.array([], pa.binary()), pa.array([], pa.string())) == []


@each_kernel
def test_columns_of_different_lengths_are_refused(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(ValueError, match="different lengths: 1, 2"):
        encode_columns([b"k"], [b"a", b"b"])


class Lying(list[Any]):
    """A sequence that says another length than it has, as one does that is changed meanwhile."""

    def __len__(self) -> int:
        return super().__len__() + 1


class Long(bytes):
    def __len__(self) -> int:
        return 5000


@needs_kernel
@pytest.mark.parametrize(
    "columns",
    [
        {"keys": Lying([b"k"])},
        {"values": Lying([b"v"])},
        {"timestamps": Lying([5])},
        {"headers": Lying([()])},
        {"headers": [Lying([("h", b"x")]), ()]},
    ],
)
def test_a_column_that_is_shorter_than_it_says_is_refused(columns: Any) -> None:
    given = {"keys": None, "values": [b"a", b"b"], **columns}
    with using("c"), pytest.raises(ValueError, match="changed, or is not as long as it says"):
        encode_columns(**given)


@needs_kernel
def test_bytes_that_are_fewer_than_they_say_are_refused() -> None:
    with using("c"), pytest.raises(ValueError, match="changed, or is not as long as it says"):
        encode_columns(None, [Long(b"v")])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "é", None]),
        pa.array(["a", "é", None], pa.large_string()),
        pa.array([b"a", "é".encode(), None], pa.large_binary()),
        pa.chunked_array([["a"], ["é", None]]),
        pa.array(["x", "a", "é", None, "y"]).slice(1, 3),
        pa.array([None] * 9 + [b"a", "é".encode(), None, b"z"], pa.binary()).slice(9, 3),
    ],
)
def test_arrow_columns_of_bytes_or_text_are_taken_as_they_are(column: Any) -> None:
    expected = [b"a", "é".encode(), None]
    assert [record.value for record in rows(encode(column, column))] == expected
    assert [record.key for record in rows(encode(column, column))] == expected


def test_fixed_size_and_null_columns_are_taken_too() -> None:
    fixed = pa.array([b"ab", b"cd"], pa.binary(2))
    assert [record[2:4] for record in rows(encode(pa.nulls(2), fixed))] == [
        (None, b"ab"),
        (None, b"cd"),
    ]


@each_kernel
def test_columns_of_numbers_are_refused(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(TypeError, match="int64 cannot be written; cast it"):
        encode_columns(None, pa.array([1, 2]))


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        ("s", [5, -5], [5000, -5000]),
        ("ms", [5, -5], [5, -5]),
        ("us", [5999, -5999], [5, -6]),
        ("ns", [5_999_999, -1], [5, -1]),
    ],
)
def test_timestamps_of_any_unit_are_rounded_down_to_milliseconds(unit, values, expected) -> None:
    column = pa.array([*values, None], pa.timestamp(unit, "UTC"))
    batches = encode(None, [b""] * 3, timestamps=column, timestamp_ms=77)
    assert [record.timestamp_ms for record in rows(batches)] == [*expected, 77]
    sliced = pa.array([0, *values], pa.timestamp(unit))[1:]
    batches = encode(None, [b""] * 2, timestamps=sliced)
    assert [record.timestamp_ms for record in rows(batches)] == expected


@each_kernel
def test_other_columns_are_no_timestamps(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(TypeError, match="double is not a timestamp"):
        encode_columns(None, [b""], timestamps=pa.array([1.5]))


@each_kernel
def test_timestamps_too_far_apart_are_refused(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(ValueError, match="apart"):
        encode_columns(None, [b"", b""], timestamps=[-(2**63), 2**63 - 1])


@each_kernel
def test_a_timestamp_beyond_64_bits_is_refused(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(ValueError, match="not fit"):
        encode_columns(None, [b""], timestamps=[2**63])


def test_headers_of_a_slice_are_the_slice_s() -> None:
    headers = [[("a", b"0")], [], [("b", None), ("c", b"2")], [("d", b"3")]]
    whole = arrow_headers(headers)
    batches = encode(None, [b"x", b"y"], headers=whole.slice(2, 2))
    assert [record.headers for record in rows(batches)] == [
        (("b", None), ("c", b"2")),
        (("d", b"3"),),
    ]
    chunked = pa.chunked_array([whole.slice(0, 1), whole.slice(2, 1)])
    batches = encode(None, [b"x", b"y"], headers=chunked)
    assert [len(record.headers) for record in rows(batches)] == [1, 2]


@each_kernel
@pytest.mark.parametrize("pair", [{"key": None, "value": b"1"}, None])
def test_a_header_without_a_key_is_refused(kernel_name: str, pair: Any) -> None:
    column = pa.array([[pair]], HEADERS)
    with using(kernel_name), pytest.raises(ValueError, match="a header has no key"):
        encode_columns(None, [b""], headers=column)


def test_what_lies_behind_a_null_row_of_headers_does_not_matter() -> None:
    pairs = pa.array(
        [{"key": "a", "value": b"1"}, {"key": None, "value": None}], HEADERS.value_type
    )
    column = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pairs, mask=pa.array([False, True])
    )
    batches = encode(None, [b"x", b"y"], headers=column)
    assert [record.headers for record in rows(batches)] == [(("a", b"1"),), ()]


@each_kernel
def test_headers_of_another_type_are_refused(kernel_name: str) -> None:
    with using(kernel_name), pytest.raises(TypeError, match="headers are list<struct<"):
        encode_columns(None, [b""], headers=pa.array([["a"]]))


def test_tables_without_rows_are_no_batches_whatever_columns_they_have() -> None:
    empty = pa.array([], pa.binary())
    times = pa.array([], pa.timestamp("us"))
    assert encode(empty, empty, headers=arrow_headers([]), timestamps=times) == []
    assert encode(empty, pa.array([None], pa.binary())[:0]) == []


def test_columns_without_headers_have_none() -> None:
    batches = encode(None, [b"a", b"b"], headers=arrow_headers([[], []]))
    assert [record.headers for record in rows(batches)] == [(), ()]


@needs_kernel
def test_more_than_a_column_can_hold_has_to_be_encoded_in_parts() -> None:
    large = bytes(2**20)  # the same one, many times over
    with using("c"), pytest.raises(ValueError, match="more than 2 GiB in one column"):
        encode_columns(None, [large] * 2048)


class _TooLarge:
    """What pyarrow returns for chunks which do not fit into one array."""

    chunks = ()

    def combine_chunks(self) -> _TooLarge:
        return self


def test_chunks_which_do_not_fit_into_one_array_have_to_be_encoded_in_parts() -> None:
    with pytest.raises(ValueError, match="more than 2 GiB in one column"):
        encoding._whole(_TooLarge())


# --- groups of rows ---


class Room:
    """Memory as a producer gives it: old bytes in it, and it counts how often it is asked."""

    def __init__(self) -> None:
        self.taken: list[memoryview] = []

    def take(self, size: int) -> memoryview:
        self.taken.append(memoryview(bytearray(b"\xa5" * size)))
        return self.taken[-1]


@each_kernel
@given(
    record_lists.filter(len),
    st.randoms(use_true_random=False),
    st.sampled_from([0, 0, 4]),
    st.one_of(st.integers(1, 500), st.integers(1, 100_000)),
)
def test_groups_are_encoded_like_each_of_them_alone(
    kernel_name, records, random, codec, batch_bytes
) -> None:
    keys, values, headers, timestamps = columns_of(records)
    order = [*range(len(records))]
    random.shuffle(order)
    ends = sorted({len(order), *random.choices(range(1, len(order) + 1), k=3)})
    starts = [0, *ends[:-1]]
    sliced = [
        pa.array([column[0], *column])[1:]
        for column in (pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    ]
    room = Room()
    with using(kernel_name):
        found = [
            (one.group, one.record_count, one.base_timestamp_ms, bytes(one.data))
            for one in encode_groups(
                *sliced,
                timestamps=pa.array(timestamps, pa.int64()),
                headers=arrow_headers(headers),
                timestamp_ms=-1,
                groups=RowGroups(array("q", order), array("q", ends)),
                batch_bytes=batch_bytes,
                codec=codec,
                level=None,
                take=room.take,
            )
        ]
    expected = []
    for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
        rows = [records[row] for row in order[start:end]]
        of_group = columns_of(rows)
        for batch in encode_columns(
            of_group[0],
            of_group[1],
            headers=of_group[2],
            timestamps=of_group[3],
            batch_bytes=batch_bytes,
            codec=codec,
        ):
            header = read_header(batch)
            expected.append((group, header.record_count, header.base_timestamp_ms, batch[8:]))
    assert [(*most, batch[8:]) for *most, batch in found] == expected
    assert all(checksum_holds(batch) for *_, batch in found)


def plain_batches(
    values: Any, groups: RowGroups | None, batch_bytes: int, room: Room
) -> list[GroupBatch]:
    """Of values alone, not compressed."""
    return list(
        encode_groups(
            None,
            values,
            timestamps=None,
            headers=None,
            timestamp_ms=7,
            groups=groups,
            batch_bytes=batch_bytes,
            codec=0,
            level=None,
            take=room.take,
        )
    )


@each_kernel
def test_rows_without_groups_stay_as_they_lie(kernel_name) -> None:
    values = pa.array([b"%d" % n for n in range(1000)])
    room = Room()
    with using(kernel_name):
        batches = plain_batches(values, None, 1000, room)
    assert len(batches) > 5
    assert {one.group for one in batches} == {0}
    assert [row[3] for row in rows([bytes(one.data) for one in batches])] == values.to_pylist()


@needs_kernel
def test_all_groups_lie_in_one_piece_of_memory() -> None:
    values = pa.array([b"v" * 100] * 3000).slice(1000, 1000)
    order, ends = array("q", range(1000)), array("q", accumulate([10] * 100))
    room = Room()
    with using("c"):
        batches = plain_batches(values, RowGroups(order, ends), 400, room)
    assert len(batches) > 256  # more than one call of the kernel lists
    assert len(room.taken) == 1
    assert len(room.taken[0]) < 200_000, "not of the size of what the rows are a slice of"
    assert sum(one.record_count for one in batches) == 1000
