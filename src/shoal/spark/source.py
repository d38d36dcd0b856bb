"""The data source ``format("shoal")``: options and schema in, readers and writers out.

A table of a catalog is a special case. Spark 4.3 shows its options to a Python source once, when
``CREATE TABLE`` asks for the schema, and never again: readers and writers of the table get none.
So the schema remembers them, in the comment of its first column; secrets are left out.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from shoal.errors import ConfigError
from shoal.spark import process_cache
from shoal.spark.columns import schema_ddl, wanted_columns
from shoal.spark.first_line import first_line
from shoal.spark.options import Mode, SourceOptions, parse_source
from shoal.spark.tables import as_comment, from_comment, is_table, of_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shoal.spark.reader import BatchReader, RefusedStream, StreamReader
    from shoal.spark.writer import BatchWriter, StreamWriter


class ShoalDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
    """Kafka topics as a Spark table and stream; see docs/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        return "shoal"

    @first_line
    def schema(self) -> str:
        given = dict(self.options)
        comment = None
        if is_table(given):
            given = of_table(given)
            comment = as_comment(given)
        # Spark asks for the schema before it says whether this is a batch or a stream; the
        # columns do not depend on that, and the readers check the options for their mode.
        is_batch = any(name.lower().startswith("ending") for name in given)
        options = parse_source(given, "batch" if is_batch else "stream")
        ddl = schema_ddl(options, comment=comment)
        process_cache.freeze_once(gc.freeze)
        return ddl

    @first_line
    def reader(self, schema: StructType) -> BatchReader:
        from shoal.spark.reader import BatchReader

        options = self._parse(schema, "batch")
        return BatchReader(options, list(wanted_columns(schema, options)), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:  # noqa: N802 - Spark's name
        from shoal.spark.reader import RefusedStream, StreamReader

        try:
            options = self._parse(schema, "stream")
            process_cache.freeze_once(gc.freeze)
            return StreamReader(options, list(wanted_columns(schema, options)), schema)
        except ConfigError as error:
            return RefusedStream(error)

    @first_line
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from shoal.spark.writer import BatchWriter

        return BatchWriter.create(self._given(schema), schema, overwrite=overwrite)

    @first_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark names it
        from shoal.spark.writer import StreamWriter

        return StreamWriter.create(self._given(schema), schema, overwrite=overwrite)

    def _parse(self, schema: StructType, mode: Mode) -> SourceOptions:
        return parse_source(self._given(schema), mode)

    def _given(self, schema: StructType) -> dict[str, str]:
        return {**from_comment(schema), **self.options}
