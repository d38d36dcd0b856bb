"""The schema a read has."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.spark.columns import schema_ddl, wanted_columns
from shoal.spark.options import parse_source

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_the_columns_are_those_of_sparks_own_source_and_say_which_are_never_null() -> None:
    assert schema_ddl(parse_source(BASE, "batch")) == (
        "key binary, value binary, topic string NOT NULL, partition int NOT NULL, "
        "offset bigint NOT NULL, timestamp timestamp NOT NULL, timestampType int NOT NULL"
    )


def test_headers_come_when_asked_for() -> None:
    ddl = schema_ddl(parse_source({**BASE, "includeHeaders": "true"}, "batch"))
    assert ddl.endswith("headers array<struct<key:string,value:binary>>")


@pytest.mark.parametrize(
    "schema", ["id int, price decimal(10,2), tags array<string>", "struct<id:int>"]
)
def test_typed_values_are_structs(schema: str) -> None:
    options = {**BASE, "valueFormat": "json", "valueSchema": schema}
    ddl = schema_ddl(parse_source(options, "batch"))
    assert "value struct<id:int" in ddl
    if "price" in schema:
        assert "price:decimal(10,2),tags:array<string>>" in ddl


def test_a_field_without_a_type_is_named() -> None:
    options = {**BASE, "valueFormat": "json", "valueSchema": "id"}
    with pytest.raises(ConfigError, match="no type for 'id'"):
        schema_ddl(parse_source(options, "batch"))


@pytest.mark.spark
def test_columns_that_do_not_exist_or_are_of_another_type_are_named() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    options = parse_source(BASE, "batch")

    def wanted(name: str, kind: str) -> list[str]:
        schema = types.StructType([types.StructField(name, getattr(types, kind)())])
        return list(wanted_columns(schema, options))

    assert wanted("offset", "LongType") == ["offset"]
    with pytest.raises(ConfigError, match=r"no column 'headers' .set option includeHeaders"):
        wanted("headers", "StringType")
    with pytest.raises(ConfigError, match="column 'offset' is bigint, not string; cast it after"):
        wanted("offset", "StringType")
    with pytest.raises(ConfigError, match=r"'value' is binary, not string; .*valueFormat"):
        wanted("value", "StringType")


@pytest.mark.spark
def test_a_field_of_a_document_cannot_be_said_to_be_there() -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StructType

    options = parse_source({**BASE, "valueFormat": "json", "valueSchema": "a int"}, "batch")
    inner = StructType().add("b", IntegerType(), nullable=False)
    schema = StructType().add("value", StructType().add("a", ArrayType(inner)))
    with pytest.raises(ConfigError, match=r"the field value\.a\.b says NOT NULL"):
        wanted_columns(schema, options)


def test_a_type_that_json_is_not_read_as_is_named_when_the_read_is_planned() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import (
        DecimalType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructType,
        VariantType,
    )

    options = parse_source({**BASE, "valueFormat": "json", "valueSchema": "a int"}, "batch")
    for kind in (VariantType(), MapType(LongType(), IntegerType())):
        schema = StructType().add("value", StructType().add("a", kind))
        with pytest.raises(ConfigError, match=rf"value\.a is {kind.simpleString()}, which JSON"):
            wanted_columns(schema, options)
    good = MapType(StringType(), StructType().add("b", DecimalType(9, 2)))
    assert wanted_columns(StructType().add("value", StructType().add("a", good)), options)
