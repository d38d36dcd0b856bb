"""The columns of the source: names and types exactly as Spark's own Kafka source has them.

One thing is said that Spark's source leaves open: which columns are never null. Spark then asks
for no nulls there, row by row and twice, which is a fifth of its work on a read of all columns.

Spark checks the first Arrow batch of a task against the schema to the letter; batches are labelled
with the Spark schema the user asked for (``values.typed``), so that ``.schema("value binary,
offset long")`` prunes down to the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import ConfigError
from shoal.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string NOT NULL",
    "partition": "int NOT NULL",
    "offset": "bigint NOT NULL",
    "timestamp": "timestamp NOT NULL",
    "timestampType": "int NOT NULL",
    "headers": "array<struct<key:string,value:binary>>",
}

_READ_FROM_JSON: Final = frozenset(
    [
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "string",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
        "binary",
    ]
)


def schema_ddl(options: SourceOptions, *, comment: str | None = None) -> str:
    """The schema of a read as Spark's DDL text; the comment is the first column's.

    What is written to as well may be null everywhere: rows to be inserted have no offset.
    """
    types = dict(TYPES)
    if options.is_written_to or comment is not None:
        types = {name: kind.removesuffix(" NOT NULL") for name, kind in types.items()}
    if not options.include_headers:
        del types["headers"]
    if options.value_format == "utf8":
        types["value"] = "string"
    elif options.value_format == "json":
        types["value"] = f"struct<{_struct_fields(options.value_schema or '')}>"
    if comment is not None:
        quoted = comment.replace("\\", "\\\\").replace("'", "\\'")
        types["key"] += f" COMMENT '{quoted}'"
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def _struct_fields(ddl: str) -> str:
    """``a int, b string`` as it stands inside ``struct<…>``; already a struct is taken as it is."""
    text = ddl.strip()
    if text.lower().startswith("struct<") and text.endswith(">"):
        return text[len("struct<") : -1]
    fields = []
    for part in _split_top_level(text):
        name, _, kind = part.strip().partition(" ")
        if not kind.strip():
            raise ConfigError(f"option valueSchema has no type for {name!r}; write: {name} string")
        fields.append(f"{name.rstrip(':')}:{kind.strip()}")
    return ",".join(fields)


def _split_top_level(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def wanted_columns(schema: StructType, options: SourceOptions) -> Sequence[str]:
    """The names a read has to give, in the order of the schema.

    Raises:
        ConfigError: a column that does not exist, or is of another type than it says.
    """
    allowed = set(TYPES) - (set() if options.include_headers else {"headers"})
    for field in schema:
        name, kind = field.name, field.dataType.simpleString()
        if name not in allowed:
            advice = " (set option includeHeaders=true)" if name == "headers" else ""
            raise ConfigError(f"the source has no column {name!r}{advice}")
        expected = TYPES[name].removesuffix(" NOT NULL")
        is_typed = name == "value" and options.value_format != "binary"
        if kind != expected and not is_typed:
            advice = " (or set option valueFormat)" if name == "value" else ""
            raise ConfigError(
                f"column {name!r} is {expected}, not {kind}; cast it after reading{advice}"
            )
        if is_typed:
            _check_document(field.dataType, name)
    return list(schema.names)


def _check_document(kind: Any, path: str) -> None:
    """A type of Spark that JSON can be read as.

    Every field may be null, as in ``from_json``: a document may leave out any.

    Raises:
        ConfigError: it is not, and is named.
    """
    name = kind.typeName()
    if name == "struct":
        for field in kind.fields:
            if not field.nullable:
                raise ConfigError(
                    f"the field {path}.{field.name} says NOT NULL, but a document may leave it "
                    "out; take NOT NULL out of the schema"
                )
            _check_document(field.dataType, f"{path}.{field.name}")
    elif name == "array":
        _check_document(kind.elementType, path)
    elif name == "map" and kind.keyType.typeName() == "string":
        _check_document(kind.valueType, path)
    elif name not in _READ_FROM_JSON:
        raise ConfigError(
            f"{path} is {kind.simpleString()}, which JSON is not read as here; read it as string "
            "and convert it in Spark"
        )
