"""Declaring, building, encoding and decoding: the rules that hold for every message."""

from __future__ import annotations

import copy
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.wire.encoder import ZERO_COPY_MIN_BYTES
from shoal.wire.fields import fields_of
from shoal.wire.schema import (
    REQUEST_BUDGET,
    RESPONSE_BUDGET,
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uint16,
    Uint32,
    Uuid,
    nullable,
    since,
    tagged,
    until,
)


class Everything(Message, versions=(0, 4), flexible=2):
    """Each type and each way to exist."""

    class Inner(Struct):
        name: String
        number: Int32 = since(1, default=-1)

    class Extra(Struct):
        left: Int32 = 0
        right: String = ""

    flag: Bool = False
    tiny: Int8 = 0
    short: Int16 = 0
    word: Int32 = 0
    long: Int64 = 0
    port: Uint16 = 0
    count: Uint32 = 0
    ratio: Float64 = 0.0
    topic_id: Uuid = ZERO_UUID
    text: String = ""
    maybe: String | None = None
    blob: Bytes = b""
    maybe_blob: Bytes | None = None
    inner: Inner
    maybe_inner: Inner | None = since(2, default=None)
    inners: Array[Inner] = ()
    maybe_inners: Array[Inner] | None = None
    numbers: Array[Int32] = ()
    maybe_numbers: Array[Int64] | None = nullable(since=1, default=())
    texts: Array[String] = ()
    ids: Array[Uuid] = ()
    old: Int32 = until(1, default=7)
    between: String = since(1, until=3, default="", ignorable=True)
    tag_number: Int64 = tagged(0, since=2, default=-1)
    tag_struct: Extra | None = tagged(2, since=2, default=None)
    tag_texts: Array[String] = tagged(3, since=3, default=())
    tag_flag: Bool = tagged(4, since=3, default=True)
    tag_maybe: Array[Int32] | None = tagged(5, since=3, default=())


class Carrier(Message, versions=(0, 1), flexible=1):
    class Part(Struct):
        index: Int32
        key: Uuid
        notes: Bytes
        ids: Array[Uuid]
        records: Records | None

    name: String
    parts: Array[Part]
    after: Int16 = 3


class Small(Message, versions=(0, 1), flexible=1):
    names: Array[String]


def everything(**values) -> Everything:
    return Everything(inner=Everything.Inner(name="i"), **values)


# ---------------------------------------------------------------------- building


def test_a_field_without_a_default_must_be_given():
    with pytest.raises(TypeError, match="inner"):
        Everything()  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(TypeError, match="unexpected"):
        everything(wrong=1)


def test_fields_have_slots_and_can_be_changed():
    message = everything()
    message.word = 5
    assert message.word == 5
    with pytest.raises(AttributeError):
        message.wrod = 5  # type: ignore[attr-defined]  # wrong on purpose


def test_messages_are_compared_by_value_and_lists_equal_tuples():
    assert everything(numbers=[1, 2], texts=()) == everything(numbers=(1, 2), texts=[])
    assert everything(numbers=[1, 2]) != everything(numbers=(1, 2, 3))
    assert everything(word=1) != everything(word=2)
    assert everything(inners=[Everything.Inner(name="a")]) == everything(
        inners=(Everything.Inner(name="a"),)
    )
    assert everything() != "something else"
    assert everything(unknown_tagged_fields={9: b""}) != everything()


def test_messages_are_not_hashable():
    with pytest.raises(TypeError):
        hash(everything())


def test_messages_can_be_copied():
    message = everything(word=3, texts=["a"])
    assert copy.deepcopy(message) == message
    assert copy.copy(message).word == 3


def test_repr_leaves_out_what_is_at_its_default():
    message = everything(word=3, unknown_tagged_fields={9: b"x"})
    assert repr(message) == (
        "Everything(word=3, inner=Everything.Inner(name='i'), unknown_tagged_fields={9: b'x'})"
    )


def test_requests_have_a_smaller_budget_than_responses():
    class SomeResponse(Message, versions=(0, 0), flexible=None):
        names: Array[String]

    assert Small.BUDGET == REQUEST_BUDGET
    assert SomeResponse.BUDGET == RESPONSE_BUDGET


# ---------------------------------------------------------------------- encoding


def test_bytes_of_a_plain_version():
    assert Small(names=["a", ""]).encode(0) == bytes.fromhex("00000002 000161 0000")


def test_bytes_of_a_flexible_version():
    assert Small(names=["a", ""]).encode(1) == bytes.fromhex("03 0261 01 00")


def test_a_version_out_of_range_is_refused_by_both_sides():
    with pytest.raises(ValueError, match="Small has versions 0 to 1, not 2"):
        Small(names=[]).encode(2)
    with pytest.raises(InvalidMessageError, match="Small has versions 0 to 1, not -1"):
        Small.decode(b"", -1)


def test_a_value_the_version_cannot_carry_is_refused_unless_ignorable():
    with pytest.raises(ValueError, match=r"Everything\.maybe_inner is .*from version 2 on"):
        everything(maybe_inner=Everything.Inner(name="a")).encode(1)
    with pytest.raises(ValueError, match=r"Everything\.old is 8, .*in versions 0 to 1"):
        everything(old=8).encode(2)
    with pytest.raises(ValueError, match=r"Everything\.inner\.number is 4"):
        Everything(inner=Everything.Inner(name="", number=4)).encode(0)
    with pytest.raises(ValueError, match=r"Everything\.tag_number is 4"):
        everything(tag_number=4).encode(1)
    with pytest.raises(ValueError, match="unknown tagged fields, which version 1 cannot carry"):
        everything(unknown_tagged_fields={9: b""}).encode(1)
    ignored = everything(between="dropped").encode(0)
    assert ignored == everything().encode(0)


def test_an_empty_list_is_the_default_of_an_array():
    assert everything(tag_texts=[]).encode(1) == everything().encode(1)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"word": 2**31}, r"\.word must be int32, not 2147483648"),
        ({"word": "3"}, r"\.word must be int32, not '3'"),
        ({"word": None}, r"\.word must not be None in version 4"),
        ({"tiny": -129}, r"\.tiny must be int8"),
        ({"port": -1}, r"\.port must be uint16"),
        ({"ratio": "x"}, r"\.ratio must be float64"),
        ({"ratio": 10**400}, r"\.ratio must be float64"),
        ({"topic_id": b"short"}, r"\.topic_id must be 16 bytes"),
        ({"text": None}, r"\.text must not be None"),
        ({"text": b"bytes"}, r"\.text must be a string"),
        ({"text": "\ud800"}, r"\.text cannot be written as UTF-8"),
        ({"text": "x" * 32768}, r"\.text is 32768 bytes long; a string has at most 32767"),
        ({"blob": "text"}, r"\.blob must be bytes"),
        ({"blob": 3}, r"\.blob must be bytes"),
        ({"inner": None}, r"\.inner must not be None"),
        ({"inner": 3}, r"\.inner must be Everything\.Inner, not 3"),
        ({"inners": [3]}, r"\.inners\[0\] must be Everything\.Inner, not 3"),
        ({"inners": 3}, r"\.inners must be a list or tuple, not 3"),
        ({"inners": None}, r"\.inners must not be None"),
        ({"numbers": [1, "2"]}, r"\.numbers\[1\] must be int32"),
        ({"texts": ["a", None]}, r"\.texts\[1\] must not be None"),
        ({"ids": [b"short"]}, r"\.ids\[0\] must be 16 bytes"),
        ({"maybe_inner": 4}, r"\.maybe_inner must be Everything\.Inner"),
        ({"tag_struct": 4}, r"\.tag_struct must be Everything\.Extra"),
        ({"tag_number": "x"}, r"\.tag_number must be int64"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values, text):
    message = everything()
    for name, value in values.items():
        setattr(message, name, value)
    for version in (4, 1):
        if version == 1 and next(iter(values)).startswith(("tag", "maybe_inner")):
            continue
        with pytest.raises(ValueError, match="Everything" + text.replace("version 4", "version")):
            message.encode(version)
        with pytest.raises(ValueError, match="Everything"):
            message.encode_parts(version)


def test_null_is_refused_in_versions_that_do_not_allow_it():
    message = everything(maybe_numbers=None)
    assert Everything.decode(message.encode(1), 1).maybe_numbers is None
    with pytest.raises(ValueError, match=r"maybe_numbers must not be None in version 0"):
        message.encode(0)


def test_a_bug_of_ours_is_not_dressed_up_as_the_callers_mistake(monkeypatch):
    def broken(message):
        raise TypeError("a bug")

    monkeypatch.setitem(Small._encoders, 0, broken)
    with pytest.raises(TypeError, match="a bug"):
        Small(names=[]).encode(0)


# ---------------------------------------------------------------------- record batches


def carrier(*records) -> Carrier:
    return Carrier(
        name="c",
        parts=[
            Carrier.Part(index=n, key=bytes(16), notes=b"n", ids=[bytes(16)], records=each)
            for n, each in enumerate(records)
        ],
    )


@pytest.mark.parametrize("version", [0, 1])
def test_large_record_batches_are_passed_on_without_a_copy(version):
    large, small = bytes(ZERO_COPY_MIN_BYTES), b"small"
    view = memoryview(bytearray(large))
    message = carrier(small, large, None, view, b"")
    parts = message.encode_parts(version)
    assert parts[1] is large
    assert parts[3] is view
    assert len(parts) == 5
    assert b"".join(parts) == message.encode(version)


def test_a_large_batch_at_the_very_end_needs_no_empty_part():
    class Tail(Message, versions=(0, 0), flexible=None):
        records: Records

    large = bytes(ZERO_COPY_MIN_BYTES)
    assert Tail(records=large).encode_parts(0) == [len(large).to_bytes(4, "big"), large]
    assert Tail(records=b"abc").encode_parts(0) == [b"\0\0\0\3abc"]


def test_a_range_of_a_file_may_stand_for_record_batches():
    class Range:
        def __len__(self) -> int:
            return ZERO_COPY_MIN_BYTES

    part = Range()
    assert any(each is part for each in list[object](carrier(part).encode_parts(1)))


@pytest.mark.parametrize("version", [0, 1])
def test_decoded_record_batches_are_views_of_the_frame_and_the_rest_is_not(version):
    data = bytearray(carrier(b"records", None).encode(version))
    read = Carrier.decode(data, version)
    records = read.parts[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert read.parts[1].records is None
    assert type(read.parts[0].key) is bytes
    assert type(read.parts[0].notes) is bytes
    assert type(read.parts[0].ids[0]) is bytes
    assert read == carrier(b"records", None)


# ---------------------------------------------------------------------- tagged fields


def test_tagged_fields_at_their_default_take_no_bytes():
    bare = everything().encode(4)
    assert bare.endswith(b"\0")
    assert everything(tag_struct=Everything.Extra()).encode(4) == bare
    assert everything(tag_texts=(), tag_flag=True).encode(4) == bare


def test_tagged_fields_survive_the_trip():
    message = everything(
        tag_number=5,
        tag_struct=Everything.Extra(left=1, right="r"),
        tag_texts=["a", "b"],
        tag_flag=False,
        tag_maybe=None,
        unknown_tagged_fields={1: b"one", 70000: b"many" * 60},
    )
    data = message.encode(4)
    assert Everything.decode(data, 4) == message
    assert Everything.decode(data, 4).encode(4) == data


def test_unknown_tagged_fields_are_kept_wherever_they_stand():
    inner = Everything.Inner(name="i", unknown_tagged_fields={0: b"zero"})
    message = Everything(inner=inner, inners=[inner])
    read = Everything.decode(message.encode(4), 4)
    assert read == message
    assert read.inners[0].unknown_tagged_fields == {0: b"zero"}


def tags(section: str) -> bytes:
    """A Small v1 without names, and this tag section."""
    return b"\x01" + bytes.fromhex(section)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("01 00 05 00", "tagged field 0 does not have the size"),
        ("01 00", "ends too early"),
        ("ffffffff0f", "more elements than the budget"),
        ("ffffffffff01", "more than 32 bits"),
        ("01 00 ffffffff1f", "more than 32 bits"),
    ],
)
def test_broken_tag_sections_are_refused(section, text):
    with pytest.raises(InvalidMessageError, match=text):
        Small.decode(tags(section), 1)


def test_tagged_fields_may_come_in_any_order_and_the_last_of_two_counts():
    read = Small.decode(tags("03 05 01 aa 01 01 bb 05 01 cc"), 1)
    assert read.unknown_tagged_fields == {1: b"\xbb", 5: b"\xcc"}
    assert read.encode(1) == tags("02 01 01 bb 05 01 cc")
    twice = "02 00 08" + "00" * 7 + "01 00 08" + "00" * 7 + "02"
    data = everything().encode(4)[:-1] + bytes.fromhex(twice)
    assert Everything.decode(data, 4) == Everything.decode(
        everything().encode(4)[:-1] + bytes.fromhex("01 00 08" + "00" * 7 + "02"), 4
    )


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("01 00 07" + "00" * 7, "too early|does not have the size"),
        ("01 00 09" + "00" * 9, "does not have the size"),
        ("ffffffff0f", "more elements than the budget"),
    ],
)
def test_a_known_tagged_field_must_have_its_size(section, text):
    data = everything().encode(4)[:-1] + bytes.fromhex(section)
    with pytest.raises(InvalidMessageError, match=text):
        Everything.decode(data, 4)


# ---------------------------------------------------------------------- strict decoding


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_every_cut_is_refused(version):
    message = everything(text="text", inners=[Everything.Inner(name="x")], numbers=[1, 2, 3])
    data = message.encode(version)
    for end in range(len(data)):
        with pytest.raises(InvalidMessageError):
            Everything.decode(data[:end], version)
    with pytest.raises(InvalidMessageError, match="1 bytes left over"):
        Everything.decode(data + b"\0", version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_prefix_cut_inside_its_last_text_is_refused(version):
    data = Small(names=["abc"]).encode(version).removesuffix(b"\0")
    with pytest.raises(InvalidMessageError, match="ends too early"):
        Small.decode_prefix(data[:-1], version)


def test_a_prefix_tells_where_it_ended():
    data = Small(names=["a"]).encode(1)
    assert Small.decode_prefix(b"xx" + data + b"yy", 1, 2) == (
        Small(names=["a"]),
        2 + len(data),
    )


@pytest.mark.parametrize(
    ("version", "data", "text"),
    [
        (0, "ffffffff", "names is null"),
        (0, "fffffffe", "names is of length -2"),
        (0, "7fffffff", "announces more elements than bytes are left|budget"),
        (0, "00000001 ffff", "names is null"),
        (0, "00000001 fff0", "names is of length -16"),
        (0, "00000001 0005 61", "ends too early"),
        (1, "00", "names is null"),
        (1, "ffffffff0f", "budget"),
        (1, "808080808001", "more than 32 bits"),
        (1, "02 00 00", "names is null"),
        (1, "02 818002 00", "a string of 32768 bytes"),
        (1, "02 05 61 00", "ends too early"),
        (1, "0a 01", "announces more elements than bytes are left"),
    ],
)
def test_nonsense_is_refused_by_name(version, data, text):
    with pytest.raises(InvalidMessageError, match=text):
        Small.decode(bytes.fromhex(data), version)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("fffe 00000000 00000000", "name is of length -2"),
        ("0000 fffffffe 00000000", "blob is of length -2"),
        ("0000 00000000 80000000", "numbers is of length -2147483648"),
    ],
)
def test_of_negative_lengths_only_minus_one_is_null(data, text):
    class Maybe(Message, versions=(0, 0), flexible=None):
        name: String | None
        blob: Bytes | None
        numbers: Array[Int32] | None

    null = Maybe(name=None, blob=None, numbers=None)
    assert Maybe.decode(bytes.fromhex("ffff ffffffff ffffffff"), 0) == null
    with pytest.raises(InvalidMessageError, match=text):
        Maybe.decode(bytes.fromhex(data), 0)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("00000001 0005 636166e921", "caf\ufffd!"),
        ("00000001 0003 eda080", "\ufffd\ufffd\ufffd"),  # a lone surrogate
    ],
)
def test_text_that_is_no_utf_8_is_replaced_as_java_does(data, name):
    assert Small.decode(bytes.fromhex(data), 0).names == [name]


def test_null_and_other_markers_of_a_struct_are_told_apart():
    class Holder(Message, versions=(0, 0), flexible=0):
        class Held(Struct):
            number: Int8

        held: Held | None

    assert Holder.decode(b"\x01\x05\x00\x00", 0).held == Holder.Held(number=5)
    assert Holder.decode(b"\xff\x00", 0).held is None
    with pytest.raises(InvalidMessageError, match="held starts with 3"):
        Holder.decode(b"\x03\x05\x00\x00", 0)


def test_a_uuid_array_cannot_announce_more_than_there_is():
    class Ids(Message, versions=(0, 0), flexible=None):
        ids: Array[Uuid]

    assert Ids.decode(b"\0\0\0\1" + bytes(16), 0).ids == [bytes(16)]
    with pytest.raises(InvalidMessageError, match="more elements than bytes are left"):
        Ids.decode(b"\0\0\0\2" + bytes(16), 0)


def test_the_element_budget_bounds_a_message():
    names = Small(names=[""] * 50)
    for version in (0, 1):
        data = names.encode(version)
        assert Small.decode(data, version, budget=50) == names
        with pytest.raises(InvalidMessageError, match="budget"):
            Small.decode(data, version, budget=49)


@pytest.mark.parametrize("version", [0, 1])
def test_all_arrays_of_a_message_share_one_budget(version):
    class Nested(Message, versions=(0, 1), flexible=1):
        class Row(Struct):
            names: Array[String]
            numbers: Array[Int32]

        rows: Array[Row]

    rows = [Nested.Row(names=["a", "b"], numbers=[1, 2, 3])] * 4
    data = Nested(rows=rows).encode(version)
    assert Nested.decode(data, version, budget=24) == Nested(rows=rows)
    with pytest.raises(InvalidMessageError, match="budget"):
        Nested.decode(data, version, budget=23)


@pytest.mark.slow
def test_memory_is_bounded_by_what_was_received_not_by_what_was_announced():
    # An array that says it has two thousand million elements, in eight bytes and in a megabyte.
    numbers = everything().encode(0)
    tracemalloc.start()
    try:
        for size in (0, 1 << 20):
            with pytest.raises(InvalidMessageError):
                Small.decode(bytes.fromhex("7fffffff") + bytes(size), 0)
            with pytest.raises(InvalidMessageError):
                Small.decode(bytes.fromhex("ffffffff07") + bytes(size), 1)
        with pytest.raises(InvalidMessageError):
            Everything.decode(numbers[:-24] + bytes.fromhex("7fffffff") + bytes(20), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_arrays_longer_than_one_byte_can_count():
    many = everything(numbers=list(range(1000)), maybe_numbers=list(range(200)), texts=["x"] * 200)
    for version in (0, 4):
        assert Everything.decode(many.encode(version), version) == many


def test_ever_new_counts_are_not_kept_for_ever():
    class Counts(Message, versions=(0, 1), flexible=1):
        numbers: Array[Int16]

    for count in range(700):
        for version in (0, 1):
            message = Counts(numbers=list(range(count)))
            assert Counts.decode(message.encode(version), version) == message


def test_all_kinds_of_buffers_are_read():
    data = everything(text="é").encode(4)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert Everything.decode(buffer, 4) == everything(text="é")


@given(st.text(st.characters(codec="utf-8")), st.binary(max_size=300), st.lists(st.integers(0, 9)))
def test_any_text_and_bytes_survive(text, blob, numbers):
    message = everything(text=text, maybe=text, blob=blob, maybe_blob=blob, numbers=numbers)
    for version in range(5):
        assert Everything.decode(message.encode(version), version) == message


def test_a_field_that_newer_versions_dropped_is_in_its_last_version():
    message = Everything(inner=Everything.Inner(name="x"), old=9)
    for version in (0, 1):
        assert Everything.decode(message.encode(version), version).old == 9
    (field,) = (each for each in fields_of(Everything) if each.name == "old")
    assert [field.exists_in(version) for version in range(4)] == [True, True, False, False]
