"""The data source ``format("shoal")``: options and schema in, readers and writers out."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from shoal.errors import ConfigError
from shoal.spark import places
from shoal.spark.columns import schema_ddl, wanted_columns
from shoal.spark.options import Mode, SourceOptions, parse_source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shoal.spark.reader import BatchReader, RefusedStream, StreamReader
    from shoal.spark.writer import BatchWriter, StreamWriter


class ShoalDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
    """Kafka topics as a Spark table and stream; see docs/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> str:
        # Spark asks for the schema before it says whether this is a batch or a stream; the
        # columns do not depend on that, and the readers check the options for their mode.
        ddl = schema_ddl(self._options_of_either_mode())
        places.freeze_once(gc.freeze)
        return ddl

    def reader(self, schema: StructType) -> BatchReader:
        from shoal.spark.reader import BatchReader

        options = self._parse("batch")
        return BatchReader(options, list(wanted_columns(schema, options)), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:  # noqa: N802 - Spark's name
        from shoal.spark.reader import RefusedStream, StreamReader

        try:
            options = self._parse("stream")
            places.freeze_once(gc.freeze)
            return StreamReader(options, list(wanted_columns(schema, options)), schema)
        except ConfigError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from shoal.spark.writer import BatchWriter

        return BatchWriter.create(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark names it
        from shoal.spark.writer import StreamWriter

        return StreamWriter.create(dict(self.options), schema, overwrite=overwrite)

    def _parse(self, mode: Mode) -> SourceOptions:
        return parse_source(dict(self.options), mode)

    def _options_of_either_mode(self) -> SourceOptions:
        given = {name.lower(): value for name, value in dict(self.options).items()}
        ending = any(name.startswith("ending") for name in given)
        return self._parse("batch" if ending else "stream")
