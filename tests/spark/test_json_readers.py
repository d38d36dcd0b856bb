"""JSON read by columns, in C and by Arrow's parser, beside the slow and clear way; no JVM."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.spark import json_kernel
from shoal.spark.json_arrow import ArrowReader, UnprovenError
from shoal.spark.json_columns import JsonColumn
from shoal.spark.json_kernel import DocumentReader
from tests.spark.json_documents import documents

NEEDS_C = pytest.mark.skipif(json_kernel.native() is None, reason="the C was not built")

PLACE = pa.struct([("city", pa.string()), ("zip", pa.int32())])
STOPS = pa.list_(pa.struct([("k", pa.string()), ("z", pa.float64()), ("v", pa.list_(pa.int8()))]))
KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("b", pa.int8()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(20, 5)),
        ("o", pa.bool_()),
        ("t", pa.string()),
        ("n", PLACE),
        ("v", pa.list_(pa.int32())),
        ("u", STOPS),
    ]
)


def column(monkeypatch: pytest.MonkeyPatch, name: str, kind: pa.DataType = KIND) -> JsonColumn:
    monkeypatch.setenv("SHOAL_KERNEL", name)
    return JsonColumn(kind, "UTC")


def alone(fields: dict[str, pa.DataType], *values: bytes | None) -> tuple[list[Any], list[int]]:
    """What the C reads of these values, and what it leaves."""
    reader = DocumentReader(json_kernel.native(), pa.struct(list(fields.items())))
    array, left = reader.read(pa.array(values, pa.binary()))
    array.validate(full=True)
    return array.to_pylist(), left


@NEEDS_C
@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_in_c_is_what_the_slow_way_reads(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    values = [value for value in documents(1500, seed) if is_utf8(value)]
    fast = column(monkeypatch, "c")
    array, left = fast.at_once(pa.array(values, pa.binary()))
    array.validate(full=True)
    rows = [row for row in range(len(values)) if row not in set(left)]
    assert len(rows) > len(values) / 3
    read = fast.one_by_one(pa.array([values[row] for row in rows], pa.binary()), rows, [])
    for row, mine, slow in zip(rows, array.take(pa.array(rows)), read, strict=True):
        assert repr(mine.as_py()) == repr(slow.as_py()), values[row]
    assert array.take(pa.array(left, pa.int64())).null_count == len(left)


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@NEEDS_C
def test_every_beginning_and_every_other_byte_of_a_document_is_read_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = (
        b'{"a":-12,"d":0.5e-3,"o":true,"t":"\\u00e9\\ud83d\\ude00\\n","n":{"city":null,"zip":7},'
        b'"v":[1,null,3],"u":[{"k":"x","v":[]},{"z":1}],"x":[{"y":[1,"2",false]}],"m":1.25} '
    )
    values = [whole[:size] for size in range(len(whole) + 1)]
    for at in range(len(whole)):
        values += [whole[:at] + other + whole[at + 1 :] for other in (b"", b'"', b"0", b",", b"\\")]
    run = pa.array(values, pa.binary())
    fast = column(monkeypatch, "c")
    shown, malformed = fast.convert(run)
    expected: list[Any] = []
    slow = fast.one_by_one(run, range(len(run)), expected)
    assert malformed == expected
    for value, mine, theirs in zip(values, shown, slow, strict=True):
        assert repr(mine.as_py()) == repr(theirs.as_py()), value


@NEEDS_C
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_the_nearest_there_are(numbers: list[float]) -> None:
    rows, left = alone({"d": pa.float64()}, *(b'{"d":%s}' % repr(n).encode() for n in numbers))
    assert [repr(row["d"]) for row in rows] == [repr(number) for number in numbers]
    assert left == []


@NEEDS_C
@given(st.integers(-(10**25), 10**25), st.integers(-40, 40))
def test_numbers_with_many_digits_are_the_nearest_there_are(digits: int, exponent: int) -> None:
    text = f"{digits}.5e{exponent}"
    rows, left = alone(
        {"d": pa.float64(), "f": pa.float32()}, f'{{"d":{text},"f":{text}}}'.encode()
    )
    if left:  # only what a single cannot hold
        assert abs(float(text)) > 3.4e38
        return
    assert rows[0]["d"] == float(text)
    assert rows[0]["f"] == pa.scalar(text).cast(pa.float32()).as_py()


@NEEDS_C
def test_zeros_keep_their_signs_only_behind_a_point_and_endless_numbers_are_left() -> None:
    texts = ["0", "-0", "0.0", "-0.0", "-0e0", "0e9"]
    fields = {"d": pa.float64(), "f": pa.float32()}
    rows, left = alone(fields, *(f'{{"d":{text},"f":{text}}}'.encode() for text in texts))
    assert left == []
    for name in fields:
        assert [repr(row[name]) for row in rows] == ["0.0", "0.0", "0.0", "-0.0", "-0.0", "0.0"]
    endless = ("1e309", "-1e999", "1" * 301, "1e" + "9" * 30, "1e-" + "9" * 30)
    assert alone({"d": pa.float64()}, *(f'{{"d":{text}}}'.encode() for text in endless))[1] == [
        *range(len(endless))
    ]
    assert alone({"f": pa.float32()}, b'{"f":1e39}', b'{"f":-3.5e38}')[1] == [0, 1]


@NEEDS_C
def test_nothing_stands_behind_a_null() -> None:
    kinds = {"a": pa.int64(), "d": pa.float64(), "f": pa.float32(), "m": pa.decimal128(9, 2)}
    reader = DocumentReader(json_kernel.native(), pa.struct(list(kinds.items())))
    for value in (b"1", b"null"):  # the second may find the memory of the first
        document = b'{"a":%s,"d":%s,"f":%s,"m":%s}' % (value, value, value, value)
        array, _ = reader.read(pa.array([document] * 1000, pa.binary()))
    for index in range(len(kinds)):
        assert not any(array.field(index).buffers()[1].to_pybytes())


@NEEDS_C
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_whole_numbers_end_where_their_type_does(bits: int) -> None:
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    most = 2 ** (bits - 1)
    fitting = [0, 1, -1, most - 1, -most]
    beyond = [most, -most - 1, 10 * most, 2**64, 2**64 + 1, -(2**64), 10**30]
    values = [b'{"a":%d}' % number for number in (*fitting, *beyond)]
    rows, left = alone({"a": kind}, *values, b'{"a":-0}', b'{"a":1.0}', b'{"a":1e0}', b'{"a":"1"}')
    count = len(values)
    assert [row["a"] for row in rows[: len(fitting)]] == fitting
    assert rows[count] == {"a": 0}
    assert left == [*range(len(fitting), count), count + 1, count + 2, count + 3]


@NEEDS_C
@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**17)))
def test_decimals_keep_every_digit(number: Decimal) -> None:
    text = f'{{"m":{number:f}}}'.encode()
    rows, left = alone({"m": pa.decimal128(20, 5)}, text)
    assert (left == [0]) == (abs(number) >= 10**15)
    if not left:
        assert rows[0]["m"] == number


@NEEDS_C
def test_decimals_that_do_not_fit_are_left() -> None:
    most = "9" * 38
    fields = {"m": pa.decimal128(38, 0)}
    texts = [most, f"-{most}", f"1{'0' * 38}", f"{most}0", "0.5", "1e2", "00", "-", "-0"]
    rows, left = alone(fields, *(f'{{"m":{text}}}'.encode() for text in texts))
    assert [rows[0], rows[1], rows[8]] == [
        {"m": Decimal(most)},
        {"m": Decimal(f"-{most}")},
        {"m": Decimal(0)},
    ]
    assert left == [2, 3, 4, 5, 6, 7]
    assert alone({"m": pa.decimal128(38, 38)}, b'{"m":1}', b'{"m":0.1}')[1] == [0]


@NEEDS_C
@given(st.lists(st.text(), min_size=1), st.booleans())
def test_text_is_what_was_written(texts: list[str], is_ascii: bool) -> None:
    values = [json.dumps({"t": text}, ensure_ascii=is_ascii) for text in texts]
    halves = [row for row, text in enumerate(texts) if re.search("[\ud800-\udfff]", text)]
    rows, left = alone({"t": pa.string()}, *(v.encode("utf-8", "replace") for v in values))
    if is_ascii:
        assert left == halves
    for row in set(range(len(texts))) - set(halves):
        assert rows[row] == {"t": texts[row]}


@NEEDS_C
def test_characters_of_every_size_are_read_from_escapes() -> None:
    texts = ["\x00\x7f", "\x80\u07ff", "\u0800\uffff", "\U00010000\U0010ffff", "\ud7ff\ue000"]
    values = (json.dumps({"t": text}).encode() for text in texts)
    assert alone({"t": pa.string()}, *values) == ([{"t": text} for text in texts], [])


@NEEDS_C
@pytest.mark.parametrize(
    "text",
    [
        rb"\x41",
        rb"\u12g4",
        rb"\u12",
        rb"\ud83d",
        rb"\ud83d\u0041",
        rb"\ude00",
        rb"\ud83dxx\ude00",
        b"\x1f",
        b"\n",
        b"a\0b",
        b"\\",
    ],
)
def test_text_that_is_not_sound_is_left(text: bytes) -> None:
    for before in (b"", b"1234567", b"123456789"):
        assert alone({"t": pa.string()}, b'{"t":"%s%s"}' % (before, text))[1] == [0]


@NEEDS_C
def test_names_may_come_in_any_order_and_once() -> None:
    fields = {"a": pa.int64(), "b": pa.int64(), "ab": pa.int64()}
    values = (
        b'{"b":2,"a":1}',
        b'{"ab":3}',
        b'{"A":9,"abc":9,"":9,"b":2}',
        b"{}",
        b' {\t"a"\r:\n1 , "b" : 2 } ',
    )
    rows, left = alone(fields, *values)
    assert left == []
    assert [[*row.values()] for row in rows] == [
        [1, 2, None],
        [None, None, 3],
        [None, 2, None],
        [None] * 3,
        [1, 2, None],
    ]
    wrong = (
        b'{"a":1,"a":1}',
        b'{"\\u0061":1}',
        b'{"a":1,}',
        b'{"a":1 "b":2}',
        b'{,"a":1}',
        b"{a:1}",
    )
    more = (b'{"a":1}{', b'{"a":1}x', b"", b" ", b"null", b"[]", b'"a"', b"{'a':1}", b'{"a"}')
    assert alone(fields, *wrong, *more)[1] == [*range(len(wrong) + len(more))]


@NEEDS_C
def test_what_nobody_asked_for_is_sound_all_the_same() -> None:
    good = (b'[1,-2.5e+7,"\\"",{"a":[[]]},true,false,null]', b'{"b":{"c":{}}}', b'"x"', b"[[[]]]")
    assert alone({"a": pa.int64()}, *(b'{"x":%s}' % value for value in good))[1] == []
    bad = (
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"{]",
        b"[}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b"nul",
    )
    worse = (
        b"NaN",
        b"Infinity",
        b'{"a" 1}',
        b"{1:1}",
        b"tru",
        b"falsy",
        b"0x1",
        b"[" * 100 + b"]" * 100,
    )
    assert alone({"a": pa.int64()}, *(b'{"x":%s}' % value for value in (*bad, *worse)))[1] == [
        *range(len(bad) + len(worse))
    ]


@NEEDS_C
def test_a_row_that_is_left_leaves_nothing_behind() -> None:
    fields = {"u": STOPS, "n": PLACE, "t": pa.string()}
    good = b'{"t":"x","u":[{"k":"y","v":[1,2]},{"v":null}],"n":{"city":"z"}}'
    bad = b'{"t":"left","u":[{"k":"left","v":[3,4,5]},{"v":[6]}],"n":{"city":"left","zip":"8"}}'
    rows, left = alone(fields, good, bad, None, good, bad)
    assert left == [1, 4]
    assert [row is None for row in rows] == [False, True, True, False, True]
    assert rows[0] == rows[3]
    assert rows[0]["u"] == [{"k": "y", "z": None, "v": [1, 2]}, {"k": None, "z": None, "v": None}]


@NEEDS_C
def test_lists_may_be_long_and_deep() -> None:
    listed = pa.list_(pa.struct([("k", pa.string())]))
    fields = {"v": listed, "w": pa.list_(pa.list_(pa.list_(pa.bool_())))}
    reader = DocumentReader(json_kernel.native(), pa.struct(list(fields.items())))
    for size in (3, 1000, 5):  # the room that was made for many goes on being enough for few
        texts = [{"k": f"text {number}"} for number in range(size)]
        document = {"v": texts, "w": [[[True] * size, []], None, [None] * size]}
        array, left = reader.read(pa.array([json.dumps(document)] * 7, pa.binary()))
        array.validate(full=True)
        assert left == []
        assert array.to_pylist() == [document] * 7


@NEEDS_C
def test_a_part_of_a_column_is_read_from_where_it_begins() -> None:
    values = [None if n % 3 == 0 else b'{"a":%d}' % n for n in range(40)]
    reader = DocumentReader(json_kernel.native(), pa.struct([("a", pa.int64())]))
    array, left = reader.read(pa.array(values, pa.binary()).slice(11, 20))
    assert left == []
    assert array.to_pylist() == [None if n % 3 == 0 else {"a": n} for n in range(11, 31)]
    assert reader.read(pa.nulls(3, pa.binary()))[0].to_pylist() == [None] * 3


@pytest.mark.parametrize("name", ["c", "python"])
def test_rows_that_are_left_come_back_in_their_places(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "c" and json_kernel.native() is None:
        pytest.skip("the C was not built")
    values: list[bytes | None] = [b'{"a":%d}' % n for n in range(60)]
    odd = {3: b"{'a':103}", 4: b"bad", 20: b'{"a":"x"}', 21: None, 59: b'{"a":5,"a":159}'}
    for row, value in odd.items():
        values[row] = value
    shown, malformed = column(monkeypatch, name).convert(pa.array(values, pa.binary()))
    expected = {**{n: n for n in range(60)}, 3: 103, 4: None, 20: None, 59: 159}
    assert [row and row["a"] for row in shown.to_pylist()] == [
        None if n == 21 else expected[n] for n in range(60)
    ]
    assert shown.is_null().to_pylist() == [n == 21 for n in range(60)]
    assert [row for row, _ in malformed] == [4, 20]


@pytest.mark.parametrize(("name", "slow_most", "again_most"), [("c", 1, 0), ("python", 16, 18_000)])
def test_one_bad_row_does_not_make_the_others_slow(
    monkeypatch: pytest.MonkeyPatch, name: str, slow_most: int, again_most: int
) -> None:
    if name == "c" and json_kernel.native() is None:
        pytest.skip("the C was not built")
    read = column(monkeypatch, name, pa.struct([("n", pa.int32())]))
    values = [b'{"n":%d}' % n for n in range(50_000)]
    values[31_234] = b"poison"
    fast: list[int] = []
    slow: list[int] = []
    for counts, owner, method in ((fast, read._reader, "read"), (slow, read, "one_by_one")):
        monkeypatch.setattr(owner, method, _counting(getattr(owner, method), counts))
    ((row, _),) = read.convert(pa.array(values, pa.binary()))[1]
    assert row == 31_234
    assert sum(slow) <= slow_most  # all rows of its run once went the slow way
    assert sum(fast) <= len(values) + again_most


def test_many_columns_are_read_from_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = pa.struct([(f"c{n}", pa.string()) for n in range(2000)])
    read = column(monkeypatch, "auto", pa.struct([("a", pa.list_(inner)), ("b", pa.string())]))
    runs: list[int] = []
    monkeypatch.setattr(read._reader, "read", _counting(read._reader.read, runs))  # type: ignore[union-attr]  # there is one
    shown, _ = read.convert(pa.array([b'{"b":"x"}'] * 1200, pa.binary()))
    assert len(shown) == sum(runs) == 1200
    assert max(runs) == 499


def _counting(method: Any, counts: list[int]) -> Any:
    def counted(values: pa.Array, *rest: Any) -> Any:
        counts.append(len(values))
        return method(values, *rest)

    return counted


@pytest.mark.parametrize("word", ["NaN", "Infinity", "Inf", "-Inf"])
def test_arrow_is_not_asked_about_a_number_without_an_end(word: str) -> None:
    """Its parser takes it where Spark may not; a letter it begins with refuses nothing."""
    reader = ArrowReader(pa.struct([("a", pa.float64()), ("b", pa.string())]))
    harmless = b'{"a":1,"b":"In a New Name: Na, In, N, I"}'
    assert len(reader.read(pa.array([harmless], pa.binary()))[0]) == 1
    for before in ([], [harmless]):
        values = [*before, b'{"a":%s}' % word.encode()]
        with pytest.raises(UnprovenError, match="numbers without an end"):
            reader.read(pa.array(values, pa.binary()))


@pytest.mark.parametrize("value", [b'{"a":-0}', b'{"v":[{"z":-0}]}'])
def test_arrow_is_not_believed_about_a_zero_with_a_sign(value: bytes) -> None:
    listed = pa.list_(pa.struct([("z", pa.float64())]))
    reader = ArrowReader(pa.struct([("a", pa.float64()), ("v", listed)]))
    with pytest.raises(UnprovenError, match="whole zero"):
        reader.read(pa.array([value], pa.binary()))


def test_who_asks_for_python_gets_arrows_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_KERNEL", "python")
    assert json_kernel.native() is None


@NEEDS_C
def test_a_library_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_kernel, "VERSION", 99)
    json_kernel._load.cache_clear()
    try:
        with pytest.raises(ConfigError, match="is not version 99; build it again"):
            json_kernel.native()
    finally:
        json_kernel._load.cache_clear()


def test_without_the_library_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_kernel, "_FILE", "/nowhere/_json_kernel.so")
    assert json_kernel.native() is None
