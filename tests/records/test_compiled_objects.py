"""Records made by the extension module and by Python: the same objects, the same errors."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, CorruptDataError
from shoal.records import objects
from shoal.records.batch import encode_batch
from shoal.records.chunks import Chunk
from shoal.records.kernel import INDEX_BYTES, Batch, Sizes, address_of
from shoal.records.objects import iter_records, put, texts_of
from shoal.types import Record, TimestampType
from tests.records.generate import Sample, needs_kernel, plain, samples, using
from tests.records.test_corruption import damaged, mutations

NATIVE: Any = objects._native
pytestmark = [
    pytest.mark.skipif(NATIVE is None, reason="the extension was not built"),
    needs_kernel,
]


def outcome(chunk: Chunk, *, is_compiled: bool, kernel_name: str = "c", **options: Any) -> Any:
    """The records of each part, and how it ended."""
    parts: list[Any] = []
    with using(kernel_name), pytest.MonkeyPatch.context() as patched:
        if not is_compiled:
            patched.setattr(objects, "_native", None)
        try:
            parts.extend(iter_records(chunk, **options))
        except (CorruptDataError, BatchTooLargeError) as error:
            parts.append((type(error), str(error)))
    return parts


@pytest.mark.slow
@given(st.lists(samples(), min_size=1, max_size=3), st.integers(0, 2**33), st.booleans())
def test_the_same_records_of_all_kinds_of_batches(
    found: list[Sample], start: int, has_aborted: bool
) -> None:
    data = b"".join(sample.data for sample in found)
    aborted = [(found[0].options.get("producer_id", 5), found[0].offsets[0])]
    chunk = Chunk("t", 1, memoryview(bytearray(data)), start, None, aborted * has_aborted)
    made = outcome(chunk, is_compiled=True)
    assert made == outcome(chunk, is_compiled=False)
    for record in (record for part in made if isinstance(part, list) for record in part):
        assert type(record) is Record
        assert type(record.timestamp_type) is TimestampType


@pytest.mark.slow
@given(damaged(), st.integers(0, 2**33))
def test_damaged_batches_fail_or_succeed_alike(data: bytes, start: int) -> None:
    chunk = Chunk("t", 0, data, start)
    options: dict[str, Any] = {"check_crc": False, "limit_bytes": 100_000}
    made = outcome(chunk, is_compiled=True, **options)
    assert made == outcome(chunk, is_compiled=False, **options)
    plainly = outcome(chunk, is_compiled=False, kernel_name="python", **options)
    assert _flat(made) == _flat(plainly)


def _flat(parts: list[Any]) -> list[Any]:
    return [each for part in parts for each in (part if isinstance(part, list) else [part])]


@pytest.mark.slow
def test_mutations_give_the_same_records_and_errors() -> None:
    bad = 0
    for data in mutations(1500, seed=4):
        chunk = Chunk("t", 0, data)
        made = outcome(chunk, is_compiled=True, check_crc=False)
        assert made == outcome(chunk, is_compiled=False, check_crc=False)
        bad += bool(made) and isinstance(made[-1], tuple)
    assert 300 < bad < 1400, "the mutations are neither harmless nor all fatal"


def one(data: bytes, **options: Any) -> Record[Any, Any]:
    ((record,),) = outcome(Chunk("t", 1, data), is_compiled=True, **options)
    return record


def test_a_record_is_a_dataclass_like_any_other() -> None:
    record = one(encode_batch([(b"k", b"v", (("h", b"1"),), 5)], base_offset=9, leader_epoch=4))
    made = Record("t", 1, 9, 5, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"1"),), 4)
    assert record == made
    assert repr(record) == repr(made)
    assert replace(record, value=b"other").value == b"other"
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.copy(record) == record
    with pytest.raises(AttributeError):
        record.volume = 5  # type: ignore[attr-defined]  # which is the point
    del record.value
    assert not hasattr(record, "value")
    record.value = b"v"
    assert record == made


def test_names_of_headers_that_are_not_text_are_replaced_as_java_does() -> None:
    good = encode_batch([(None, b"v", (("name", None), ("name", b""), ("nämé", b"x")), 5)])
    data = good.replace("nämé".encode(), b"n\xff\xfe\xfd\xfc\xfb")
    record = one(data, check_crc=False)
    assert [name for name, _ in record.headers] == ["name", "name", "n" + "\ufffd" * 5]
    assert record.headers[0][0] is record.headers[1][0]


def test_many_different_names_of_headers_are_told_apart() -> None:
    rows = [
        (None, b"v", tuple((f"{'x' * (i % 3)}{i}-{n}", b"%d" % n) for n in range(5)), 5)
        for i in range(200)
    ]
    (found,) = outcome(Chunk("t", 0, encode_batch(rows)), is_compiled=True)
    assert [record.headers for record in found] == [row[2] for row in rows]


# --- the garbage collector ---

HEADED = encode_batch([(b"k", b"v", (("h", b"1"), ("i", None)), 5)], base_offset=2**40)


def test_the_collector_does_not_look_at_records_of_bytes_text_and_numbers() -> None:
    record = one(HEADED)
    assert texts_of([record], 0, 1, keys=True, values=True) == 1
    for content in (b"x", "x", 5, 2**70, 0.5, True, None):
        record.value = content
        put(record, content, content)
        assert (record.key, record.value) == (content, content)
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(record.headers)
    assert not any(gc.is_tracked(pair) for pair in record.headers)
    assert gc.is_tracked(copy.copy(record))  # Python made that


class Owner:
    """Refers to its record, which refers to it."""

    record: Any = None


WAYS: dict[str, Callable[[Any, Any], None]] = {
    "an assignment": lambda record, owner: setattr(record, "value", owner),
    "another field": lambda record, owner: setattr(record, "leader_epoch", owner),
    "inside of something": lambda record, owner: setattr(record, "headers", (("h", owner),)),
    "the class": lambda record, owner: Record.__setattr__(record, "value", owner),
    "put, as key": lambda record, owner: put(record, owner, b"v"),
    "put, as value": lambda record, owner: put(record, b"k", owner),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_is_part_of_a_circle_is_collected(way: str) -> None:
    record, owner = one(HEADED), Owner()
    owner.record = record
    WAYS[way](record, owner)
    watch = weakref.ref(owner)
    del record, owner
    gc.collect()
    assert watch() is None


def test_a_topic_that_can_refer_to_something_makes_its_records_known_to_the_collector() -> None:
    class Name(str):
        """With a dictionary of its own."""

    name: Any = Name("t")
    ((record,),) = outcome(Chunk(name, 1, HEADED), is_compiled=True)
    name.record = record
    watch = weakref.ref(name)
    del record, name
    gc.collect()
    assert watch() is None


def test_what_is_no_record_or_no_attribute_cannot_be_set() -> None:
    record = one(HEADED)
    arguments: tuple[Any, ...]
    for arguments in ((), (record,), (record, 1), (record, 1, 2, 3), (object(), 1, 2)):
        with pytest.raises(TypeError, match=r"put\(\) takes"):
            NATIVE.put(*arguments)
    for arguments in ((record,), (record, "key"), (record, "key", 1, 2), (object(), "key", 1)):
        with pytest.raises(TypeError):
            Record.__setattr__(*arguments)
    with pytest.raises(TypeError):
        Record.__setattr__(record, 5, 5)  # type: ignore[arg-type]  # which is the point
    assert record == one(HEADED)


def test_fields_are_put_where_the_class_has_them() -> None:
    """Also those of a class that has them in another order, and others between them."""
    names = tuple(Record.__slots__)

    class Base:
        __slots__ = ("first", *names[4:7])

    class Other(Base):
        __slots__ = (*names[7:], "between", *names[3::-1])

    times = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    try:
        NATIVE.prepare(Other, names, *times, CorruptDataError)
        ((made,),) = outcome(Chunk("t", 1, HEADED), is_compiled=True)
    finally:
        NATIVE.prepare(Record, names, *times, CorruptDataError)
    record = one(HEADED)
    assert type(made) is Other
    assert [getattr(made, name) for name in names] == [getattr(record, name) for name in names]
    assert not hasattr(made, "first")
    assert not hasattr(made, "between")


# --- text ---

texts = st.one_of(st.none(), st.text(max_size=9).map(str.encode), st.sampled_from([b"\xff", b"a"]))


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(0, 12),
    st.integers(0, 12),
)
@example([(b"\xff", b"v")], True, True, 0, 1)
def test_text_is_decoded_up_to_the_first_that_is_none(
    rows: list[tuple[Any, Any]], keys: bool, values: bool, start: int, end: int
) -> None:
    data = encode_batch([(key, value, (), 0) for key, value in rows])
    ((*found,),) = outcome(Chunk("t", 1, data), is_compiled=True)
    end = min(end, len(found))
    expected = start
    while expected < end:
        key, value = rows[expected]
        if (keys and _is_bad(key)) or (values and _is_bad(value)):
            break
        expected += 1
    assert texts_of(found, start, end, keys=keys, values=values) == max(start, expected)
    for number, (record, (key, value)) in enumerate(zip(found, rows, strict=True)):
        is_done = start <= number < expected
        assert record.key == (key.decode() if keys and is_done and key is not None else key)
        assert record.value == (
            value.decode() if values and is_done and value is not None else value
        )


def _is_bad(content: bytes | None) -> bool:
    return content is not None and b"\xff" in content


# --- held wrongly ---


def measured(rows: int) -> tuple[Any, Any, bytes, bytearray]:
    """What ``make`` is given: one batch, its sizes, and the memory both point into."""
    body, index = bytes(range(64)), bytearray(INDEX_BYTES * max(rows, 1))
    batches = (Batch * 1)(Batch(body=address_of(body), body_size=len(body), rows=rows))
    sizes = Sizes(index=address_of(index), index_size=max(rows, 1), rows=rows)
    return batches, sizes, body, index


@pytest.mark.parametrize(
    ("field", "value"),
    [(4, 2**31), (5, 65), (7, 65), (8, 2**31 - 1), (9, 2**31 - 1), (6, 63), (9, -5)],
)
def test_an_index_that_points_outside_its_batch_is_noticed(field: int, value: int) -> None:
    batches, sizes, _, index = measured(1)
    row = (ctypes.c_int32 * 10).from_buffer(index)
    row[7] = row[8] = 3
    if field == 6:
        row[9] = 2
    row[field] = value if value < 2**31 else -1
    with pytest.raises(CorruptDataError, match="changed while"):
        NATIVE.make(batches, 0, 1, sizes, "t", 0)


def test_batches_and_sizes_that_disagree_are_noticed() -> None:
    batches, sizes, _, _ = measured(1)
    for rows in (0, 2):
        batches[0].rows = rows
        with pytest.raises(CorruptDataError, match="changed while"):
            NATIVE.make(batches, 0, 1, sizes, "t", 0)
    batches[0].rows = 1
    for which in ((-1, 1), (0, 2), (1, 1), (2, 0), (0, -1)):
        with pytest.raises(ValueError, match=r"make\(\) takes"):
            NATIVE.make(batches, *which, sizes, "t", 0)
    sizes.rows = 2
    with pytest.raises(ValueError, match=r"make\(\) takes"):
        NATIVE.make(batches, 0, 1, sizes, "t", 0)
    with pytest.raises(ValueError, match=r"make\(\) takes"):
        NATIVE.make(batches, 0, 1, b"short", "t", 0)


def test_what_is_no_type_with_slots_is_refused() -> None:
    for kind, names in ((Record, ("topic",)), (object(), ("a",) * 9), (Record, ("__doc__",) * 9)):
        with pytest.raises(TypeError):
            NATIVE.prepare(kind, names, None, None, CorruptDataError)
    assert one(plain(1)).offset == 0  # what was prepared before is as it was


def test_being_told_again_what_records_are_keeps_no_references() -> None:
    times = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    told = Record, tuple(Record.__slots__), *times, CorruptDataError
    kept = [*told, *(getattr(Record, name) for name in Record.__slots__)]
    before = [sys.getrefcount(each) for each in kept]
    for _ in range(50):
        NATIVE.prepare(*told)
    gc.collect()
    after = [sys.getrefcount(each) for each in kept]
    assert all(abs(now - then) < 10 for then, now in zip(before, after, strict=True))


@pytest.mark.slow
def test_reading_keeps_no_memory() -> None:
    good = Chunk("t", 0, plain(200))
    bad = [Chunk("t", 0, data) for data in mutations(50, seed=9)]

    def one_round() -> None:
        for chunk in (good, *bad):
            for part in outcome(chunk, is_compiled=True, check_crc=False):
                if isinstance(part, list):
                    texts_of(part, 0, len(part), keys=True, values=True)

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    for _ in range(3):
        one_round()
    before = blocks()
    for _ in range(20):
        one_round()
    assert blocks() - before < 500
