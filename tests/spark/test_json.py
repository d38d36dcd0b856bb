"""Typed values are those of Spark's own ``from_json``, on the fast way and on the slow one."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.json_documents import EVERYTHING, PLAIN, documents
from tests.spark.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ZONE = "America/New_York"
WITH_TEXT = ", _corrupt_record string"


def kind_of(ddl: str) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return pa.struct(list(to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")))


def from_json(spark: SparkSession, values: list[bytes], ddl: str) -> list[Any]:
    """What Spark makes of the values."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    table = pa.table(
        {"place": pa.array(range(len(values))), "value": pa.array(values, pa.binary())}
    )
    text = f.col("value").cast("string")
    column = f.from_json(text, ddl, {"timeZone": ZONE}).alias("row")
    shown = spark.createDataFrame(table).select("place", column).orderBy("place").toArrow()
    return [row for chunk in shown.column("row").chunks for row in rows_of(chunk)]


def rows_of(array: pa.Array) -> list[Any]:
    """An array as plain values that can be compared: no zones, no limits of years, NaN is NaN."""
    import pyarrow as pa
    import pyarrow.types as types

    kind = array.type
    if types.is_timestamp(kind):
        return list(array.cast(pa.int64()).to_pylist())
    if types.is_date32(kind):
        return list(array.cast(pa.int32()).to_pylist())
    if types.is_floating(kind):
        return [
            "NaN" if one is not None and math.isnan(one) else repr(one) for one in array.to_pylist()
        ]
    if types.is_string(kind):  # Spark keeps bytes that are no text
        data = array.view(pa.binary()).to_pylist()
        return [None if one is None else one.decode(errors="replace") for one in data]
    valid = array.is_valid().to_pylist()
    if types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [rows_of(array.field(index)) for index in range(kind.num_fields)]
        cells = zip(valid, *columns, strict=True)
        return [dict(zip(names, row, strict=True)) if good else None for good, *row in cells]
    if types.is_map(kind):
        inner = list(zip(rows_of(array.keys), rows_of(array.items), strict=True))
    elif types.is_list(kind):
        inner = rows_of(array.values)
    else:
        return list(array.to_pylist())
    offsets = array.offsets.to_pylist()
    edges = zip(valid, offsets, offsets[1:], strict=False)
    return [inner[start:end] if good else None for good, start, end in edges]


@pytest.fixture(params=["c", "python"], ids=["in-c", "by-arrow"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both that read by columns, in turn."""
    from shoal.spark import json_kernel

    if json_kernel.native() is None:
        pytest.skip("the C that reads JSON was not built")
    monkeypatch.setenv("SHOAL_KERNEL", request.param)
    return str(request.param)


def compare(spark: SparkSession, count: int, seed: int, ddl: str) -> None:
    """Both ways, value by value, and which of them are malformed."""
    import pyarrow as pa

    from shoal.spark.json_arrow import UnprovenError
    from shoal.spark.json_columns import JsonColumn

    values = list(documents(count, seed))
    expected = from_json(spark, values, ddl + WITH_TEXT)
    column = JsonColumn(kind_of(ddl + WITH_TEXT), ZONE)
    shown, malformed = column.convert(pa.array(values, pa.binary()))
    shown.validate(full=True)
    for value, ours, theirs in zip(values, rows_of(shown), expected, strict=True):
        assert ours == theirs, value
    assert [index for index, _ in malformed] == [
        index
        for index, row in enumerate(expected)
        if row is not None and row["_corrupt_record"] is not None
    ]
    alone = 0
    for value, theirs in zip(values, expected, strict=True):
        try:
            at_once, left = column.at_once(pa.array([value], pa.binary()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnprovenError):
            continue
        if not left:
            assert rows_of(at_once) == [theirs], value
            alone += 1
    if ddl == PLAIN:
        assert alone > count / 3  # or the fast way was not tested


@pytest.mark.parametrize("ddl", [PLAIN, EVERYTHING], ids=["columns", "every-type"])
def test_generated_values_are_those_of_from_json(
    spark: SparkSession, reader: str, ddl: str
) -> None:
    compare(spark, 4000, 1, ddl)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 7))
def test_a_hundred_thousand_values_are_those_of_from_json(
    spark: SparkSession, reader: str, seed: int
) -> None:
    compare(spark, 20_000, seed, PLAIN)


def test_a_value_is_one_row_whatever_its_neighbours_are(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()
    values = [b"null", b'{"a":1}{"a":2}', b'{"a":3}', b'{"a":4}', b"", b'{"a":5}}{"r":{"a":6}']
    topics.write(topic, [(None, value, ()) for value in values])
    typed = {"subscribe": topic, "valueFormat": "json", "valueSchema": "a long"}
    rows = topics.read(spark, **typed, mode="PERMISSIVE").collect()
    assert [row.value and row.value.a for row in rows] == [None, 1, 3, 4, None, 5]
    assert [row.value is None for row in rows] == [False, False, False, False, True, False]


def test_decimals_text_and_times_are_exact_beside_a_bad_row(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()
    good = {"m": "M", "s": "é", "w": "2024-07-01 12:00:00"}
    text = json.dumps(good).replace('"M"', "1234567890.123456789012345678").encode()
    invalid = b'{"s":"\xff"}'
    topics.write(topic, [(None, value, ()) for value in (text, invalid, b"poison", text)])
    schema = "m decimal(38,18), s string, w timestamp"
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        for options in ({"valueSchema": schema}, {"valueSchema": f"{schema}, g map<string,int>"}):
            frame = topics.read(
                spark, subscribe=topic, valueFormat="json", mode="PERMISSIVE", **options
            )
            seen = frame.selectExpr("string(value.m) m", "value.s", "unix_seconds(value.w) w")
            rows = [tuple(row) for row in seen.collect()]
            exact = ("1234567890.123456789012345678", "é", 1719849600)
            assert rows == [exact, (None, "\ufffd", None), (None, None, None), exact]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_stream_reads_times_in_the_zone_of_its_session(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()
    topics.write(topic, [(None, b'{"w":"2024-07-01 12:00:00"}', ())])
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    frame = topics.stream(
        other,
        subscribe=topic,
        startingOffsets="earliest",
        valueFormat="json",
        valueSchema="w timestamp",
    ).selectExpr("unix_seconds(value.w) w")
    query = frame.writeStream.format("memory").queryName("zoned").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [row.w for row in other.table("zoned").collect()] == [1719802800]


@pytest.mark.parametrize(("text", "word"), [("not json", "not"), ("nullx", "nullx"), ("tr", "tr")])
def test_a_word_that_is_no_value_is_named_in_the_reason(text: str, word: str) -> None:
    """It is what a dead letter says of a text that nobody meant as JSON."""
    from shoal.spark.json_tokens import MalformedError, Tokens

    with pytest.raises(MalformedError, match=f"^'{word}' is not a JSON value, at character"):
        Tokens(text).next()
