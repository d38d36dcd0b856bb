"""Which records of a chunk are wanted: ranges, control batches, aborted transactions, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, CorruptDataError
from shoal.records import chunks as chunks_module
from shoal.records.batch import encode_batch, iter_headers, read_header, seal
from shoal.records.chunks import Chunk, DecodeLimits, as_chunks, native_groups, plain_groups
from shoal.records.compression import compress
from shoal.records.kernel import Batch, native
from shoal.records.markers import encode_marker
from shoal.records.objects import decode_records
from tests.records.generate import each_kernel, needs_kernel, plain, samples, using


def offsets(chunk: Any, **options: Any) -> list[int]:
    return [fields[0] for fields in decode_records(chunk, **options)]


@each_kernel
@pytest.mark.parametrize("codec", [0, 3])
def test_only_the_wanted_offsets_are_returned(kernel_name: str, codec: int) -> None:
    data = b"".join(plain(10, base_offset=10 * i, codec=codec) for i in range(5))
    with using(kernel_name):
        assert offsets(("t", 0, data, 0, None)) == list(range(50))
        assert offsets(("t", 0, data, 7, 31)) == list(range(7, 31))
        assert offsets(("t", 0, data, 20, 30)) == list(range(20, 30))
        assert offsets(("t", 0, data, 49, 50)) == [49]
        assert offsets(("t", 0, data, 50, None)) == []
        assert offsets(("t", 0, data, 0, 0)) == []
        assert offsets(("t", 0, b"", 0, None)) == []


@each_kernel
def test_a_batch_cut_at_the_end_is_left_out(kernel_name: str) -> None:
    data = plain(3) + plain(3, base_offset=3)
    with using(kernel_name):
        for cut in (len(data) - 1, len(plain(3)) + 70, len(plain(3)) + 5, len(plain(3))):
            assert offsets(("t", 0, data[:cut], 0, None)) == [0, 1, 2]


@each_kernel
def test_control_batches_are_never_shown(kernel_name: str) -> None:
    marker = encode_marker(
        commit=True, producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=3
    )
    with using(kernel_name):
        assert offsets(("t", 0, plain(3) + marker + plain(2, base_offset=4), 0, None)) == [
            0,
            1,
            2,
            4,
            5,
        ]


def transaction(base: int, producer_id: int, count: int = 2) -> bytes:
    return encode_batch(
        [(None, b"", (), 0)] * count,
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=base
    )


@each_kernel
def test_records_of_aborted_transactions_are_hidden(kernel_name: str) -> None:
    data = b"".join(
        [
            transaction(0, 1),  # aborted at 6
            transaction(2, 2),  # committed at 7
            transaction(4, 1),
            marker(6, 1, commit=False),
            marker(7, 2, commit=True),
            transaction(8, 1),  # the same producer again, committed
            marker(10, 1, commit=True),
            plain(2, base_offset=11),
            transaction(13, 2),  # aborted, its marker is not fetched yet
        ]
    )
    with using(kernel_name):
        chunk = Chunk("t", 0, data, 0, None, aborted=[(2, 13), (1, 0)])
        assert offsets(chunk) == [2, 3, 8, 9, 11, 12]
        assert offsets(chunk._replace(aborted=())) == [0, 1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 14]


@each_kernel
def test_an_aborted_transaction_may_begin_before_the_first_batch_that_is_left(
    kernel_name: str,
) -> None:
    # Compaction took the batch at 3, where it began, and the first record of the next.
    rest = encode_batch(
        [(None, b"", (), 0)],
        base_offset=4,
        offsets=[5],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data = plain(3) + rest + marker(6, 1, commit=False) + transaction(7, 1)
    with using(kernel_name):
        assert offsets(Chunk("t", 0, data, 0, None, aborted=[(1, 3)])) == [0, 1, 2, 7, 8]


@each_kernel
def test_what_a_producer_sent_outside_of_a_transaction_is_shown(kernel_name: str) -> None:
    plainly = encode_batch([(None, b"", (), 0)], base_offset=2, producer_id=1, producer_epoch=0)
    data = transaction(0, 1) + plainly + marker(3, 1, commit=False)
    with using(kernel_name):
        assert offsets(Chunk("t", 0, data, 0, None, aborted=[(1, 0)])) == [2]


@each_kernel
def test_a_broken_abort_marker_is_an_error(kernel_name: str) -> None:
    broken = encode_batch(
        [(None, None, (), 0)],
        base_offset=2,
        producer_id=1,
        is_transactional=True,
        is_control=True,
    )
    chunk = Chunk("t", 0, transaction(0, 1) + broken, 0, None, aborted=[(1, 0)])
    with using(kernel_name), pytest.raises(CorruptDataError, match="no type"):
        offsets(chunk)


def test_a_bytearray_cannot_be_resized_while_it_is_read() -> None:
    data = bytearray(plain(1))
    chunks = as_chunks([("t", 0, data, 0, None)])
    with pytest.raises(BufferError):
        data.append(0)
    assert chunks[0].data == data


# Groups -------------------------------------------------------------------------------------


def grouped(name: str, chunks: Sequence[Chunk], limits: DecodeLimits) -> list[list[int]]:
    """The base offsets of the batches in each group."""
    with using(name):
        library = native()
        if library is None:
            groups = plain_groups(chunks, limits)
            return [[rows.header.base_offset for rows in group] for group in groups]
        return [
            [
                batch.base_offset
                for batch in group.batches[group.first : group.first + group.batch_count]
                if batch.body
            ]
            for group in native_groups(library, chunks, limits)
        ]


@each_kernel
@pytest.mark.parametrize("codec", [0, 4])
def test_groups_end_before_they_grow_too_large(kernel_name: str, codec: int) -> None:
    data = b"".join(plain(10, base_offset=10 * i, codec=codec) for i in range(6))
    body = len(plain(10)) - 61  # the later ones are a little larger
    chunk = [Chunk("t", 0, data)]
    assert grouped(kernel_name, chunk, DecodeLimits(group_bytes=2 * body + 100)) == [
        [0, 10],
        [20, 30],
        [40, 50],
    ]
    assert grouped(kernel_name, chunk, DecodeLimits(group_bytes=1)) == [[10 * i] for i in range(6)]
    assert grouped(kernel_name, chunk, DecodeLimits()) == [[0, 10, 20, 30, 40, 50]]


@needs_kernel
def test_inflated_bodies_can_be_kept_apart() -> None:
    codecs = (0, 0, 3, 3, 0, 0, 3)
    data = b"".join(plain(2, base_offset=2 * i, codec=codec) for i, codec in enumerate(codecs))
    assert grouped("c", [Chunk("t", 0, data)], DecodeLimits(apart=True)) == [
        [0, 2],
        [4],
        [6],
        [8, 10],
        [12],
    ]


@each_kernel
@pytest.mark.parametrize("codec", [0, 2])
def test_what_is_good_comes_before_the_error(kernel_name: str, codec: int) -> None:
    good = plain(3, codec=codec) + plain(3, base_offset=3, codec=codec)
    bad = bytearray(plain(3, base_offset=6, codec=codec))
    bad[-1] ^= 1
    data = bytes(good + bad + plain(3, base_offset=9))
    with using(kernel_name):
        library = native()
        limits, chunks = DecodeLimits(), [Chunk("t", 0, data)]
        groups: Any = plain_groups(chunks, limits)
        if library is not None:
            groups = native_groups(library, chunks, limits)
        next(groups)
        with pytest.raises(CorruptDataError, match="offset 6: its checksum fails") as caught:
            next(groups)
        assert caught.value.position == len(good)
        assert offsets(("t", 0, data[: caught.value.position], 0, None)) == list(range(6))


@each_kernel
@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("first_bad", [0, 1, 2])
def test_a_record_which_lies_ends_the_group_before_its_batch(
    kernel_name: str, first_bad: int, check_crc: bool
) -> None:
    from tests.records.test_batch import seal_again

    parts = [bytearray(plain(40, base_offset=40 * i)) for i in range(3)]
    parts[first_bad][61] = 0x81
    data = b"".join(seal_again(part) for part in parts)
    with using(kernel_name):
        assert offsets(("t", 0, data[: sum(map(len, parts[:first_bad]))], 0, None)) == list(
            range(40 * first_bad)
        )
        with pytest.raises(CorruptDataError, match=f"offset {40 * first_bad}: record 0"):
            offsets(("t", 0, data, 0, None), check_crc=check_crc)


@each_kernel
def test_a_batch_which_inflates_too_far_is_named(kernel_name: str) -> None:
    data = plain(3, codec=4) + encode_batch([(None, bytes(9999), (), 0)], base_offset=3, codec=4)
    with using(kernel_name), pytest.raises(BatchTooLargeError, match="offset 3 inflates"):
        offsets(("t", 0, data, 0, None), limit_bytes=5000)


@each_kernel
def test_a_compressed_batch_without_a_body_is_corrupt_if_it_counts_records(
    kernel_name: str,
) -> None:
    from shoal.records.batch import seal
    from shoal.records.compression import compress

    fields = read_header(plain(1))._replace(attributes=1)._asdict()
    for name in ("length", "magic", "crc"):
        del fields[name]
    batch = seal(compress(1, b""), **fields)
    with using(kernel_name), pytest.raises(CorruptDataError, match="1 records cannot fit"):
        offsets(("t", 0, batch, 0, None))
    empty = seal(compress(1, b""), **{**fields, "record_count": 0})
    with using(kernel_name):
        assert offsets(("t", 0, empty, 0, None)) == []


class Changing:
    """The kernel, with somebody who writes into the bytes as soon as batches were counted."""

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change
        self.limits: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(native(), name)

    def count_batches(self, *asked: Any) -> int:
        found: int = native().count_batches(*asked)  # type: ignore[union-attr]
        self._change()
        return found

    def shoal_scan(self, chunks: Any, count: int, batches: Any, limit: int, *rest: Any) -> int:
        self.limits.append(limit)
        roomy = (Batch * 10)()  # where one too many would be seen, and do no harm
        found: int = native().shoal_scan(chunks, count, roomy, limit, *rest)  # type: ignore[union-attr]
        assert [batch.size for batch in roomy[limit:]] == [0] * (10 - limit)
        return found


@needs_kernel
@pytest.mark.parametrize("group_bytes", [1, 2**20])
def test_bytes_that_change_to_more_batches_overrun_nothing(group_bytes: int) -> None:
    """As those of an answer would, if its memory were used again while it is read."""
    data = bytearray(plain(40))
    others = b"".join(plain(1, base_offset=n) for n in range(5))
    assert len(others) <= len(data)

    def change() -> None:
        data[:] = others + data[len(others) :]

    library = Changing(change)
    limits = DecodeLimits(group_bytes=group_bytes)
    with using("c"), pytest.raises((AssertionError, CorruptDataError)):
        list(native_groups(library, [Chunk("t", 0, data)], limits))
    assert library.limits == [1]


@needs_kernel
def test_kernels_which_disagree_are_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = Chunk("t", 0, plain(3))
    monkeypatch.setattr(chunks_module, "parse_records", lambda *_: [])
    with pytest.raises(AssertionError, match="the kernels disagree"):
        raise chunks_module._explain(chunk, 0, DecodeLimits())


@pytest.mark.slow
@needs_kernel
@given(
    st.lists(samples(), max_size=3),
    st.integers(-5, 200),
    st.one_of(st.none(), st.integers(-5, 200)),
    st.integers(1, 3000),
)
def test_both_kernels_find_the_same_records(found, after, until, group_bytes) -> None:
    data = b"".join(sample.data for sample in found)
    base = found[0].offsets[0] if found else 0
    end = None if until is None else base + until
    chunk = Chunk("t", 0, data, base + after, end)
    expected = [
        row
        for sample in found
        for row in sample.rows
        if row[0] >= chunk.start_offset and (end is None or row[0] < end)
    ]
    assert sum(1 for _ in iter_headers(data)) == len(found)
    for name in ("python", "c"):
        with using(name):
            assert decode_records(chunk) == expected
    limits = DecodeLimits(group_bytes=group_bytes)
    plain_rows = [
        [rows.header.base_offset for rows in group] for group in plain_groups([chunk], limits)
    ]
    with using("c"):
        native_rows = [
            [b.base_offset for b in group.batches[group.first :][: group.batch_count] if b.rows]
            for group in native_groups(native(), [chunk], limits)
        ]
    assert plain_rows == native_rows


@each_kernel
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_a_count_beyond_all_bytes_takes_no_memory(kernel_name: str, codec: int) -> None:
    """Eighty bytes that announce 2^31 - 1 records were asked 80 GB for."""
    fields = read_header(plain(1, codec=codec))._asdict()
    for name in ("length", "magic", "crc"):
        del fields[name]
    fields |= {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}
    data = plain(2) + seal(compress(codec, b""), **(fields | {"base_offset": 2}))
    with using(kernel_name):
        assert offsets(("t", 0, data, 0, 2)) == [0, 1]
        with pytest.raises(CorruptDataError, match="2147483647 records cannot fit into 0 bytes"):
            offsets(("t", 0, data, 0, None))
