"""The recorder as a Spark job, for clusters whose commits are too many for one process, and for
directories that only Spark can reach.

    DIRECTORY/records/day=2026-11-15/batch=42/…    as the recorder without Spark writes them
    DIRECTORY/ends/day=2026-11-15/…
    DIRECTORY/_checkpoint                          Spark's own progress

Rule: a micro-batch owns its directories and replaces them as a whole, so one that Spark repeats
after a failure leaves its records there once. The checkpoint lies beside the data it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from shoal.errors import ConfigError
from shoal.spark.history.recorder import CHECKPOINT, POSITIONS
from shoal.spark.history.sources import ENDS_DIRECTORY, RECORDS_DIRECTORY, sample_ends
from shoal.spark.history.tables import DDL, RECORDS, TOPIC

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PREFIX: Final = "kafka."
# The first micro-batch is the whole topic; in parts, it does not have to fit into one task.
_DEFAULTS: Final = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2000000"}


def record(
    spark: SparkSession,
    directory: str,
    options: Mapping[str, str],
    *,
    every: str | None = "30 seconds",
) -> StreamingQuery:
    """Start a stream that keeps all records of ``__consumer_offsets`` and samples of end offsets.

    Stopped or killed at any moment and started again with the same directory, it goes on and
    neither loses nor repeats a record.

    Args:
        directory: a local path, or any that Spark can write (``hdfs://…``, ``s3a://…``).
        options: those of ``format("shoal")``, at least ``kafka.bootstrap.servers``.
        every: how often to look; ``None``: keep what is there now, then stop.

    Raises:
        ConfigError: the directory is kept by a recorder without Spark.
    """
    if _exists(spark, f"{directory}/{POSITIONS}"):
        raise ConfigError(f"{directory} is kept by `shoal fleet record`; choose another directory")
    records = (
        spark.readStream.format("shoal")
        .schema(RECORDS)
        .options(**{**_DEFAULTS, **options, "subscribe": TOPIC})
        .load()
    )
    properties = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }

    def keep(micro_batch: DataFrame, batch_id: int) -> None:
        _keep(micro_batch, batch_id, directory)
        _sample(spark, properties, directory)

    writer = (
        records.writeStream.queryName("shoal-fleet-record")
        .option("checkpointLocation", f"{directory}/{CHECKPOINT}")
        .foreachBatch(keep)
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def _keep(micro_batch: DataFrame, batch_id: int, directory: str) -> None:
    from pyspark.sql import functions as f

    days = f.date_format(f.to_utc_timestamp("timestamp", f.current_timezone()), "yyyy-MM-dd")
    (
        micro_batch.withColumn("day", days)
        .withColumn("batch", f.lit(batch_id))
        .repartition(1)
        .sortWithinPartitions("partition", "offset")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .option("compression", "zstd")
        .partitionBy("day", "batch")
        .parquet(f"{directory}/{RECORDS_DIRECTORY}")
    )


def _sample(spark: SparkSession, properties: Mapping[str, str], directory: str) -> None:
    from pyspark.sql import functions as f

    from shoal.client.admin import Admin

    with Admin.from_properties(properties) as admin:
        ends: pa.Table = sample_ends(admin)
    if ends.num_rows:
        days = f.date_format(f.to_utc_timestamp("at", f.current_timezone()), "yyyy-MM-dd")
        frame = spark.createDataFrame(ends).withColumn("day", days).coalesce(1)
        frame.write.mode("append").partitionBy("day").parquet(f"{directory}/{ENDS_DIRECTORY}")


def recorded(spark: SparkSession, directory: str) -> tuple[DataFrame, DataFrame]:
    """Records and samples of a recording, whichever recorder made it."""
    records = spark.read.schema(f"{DDL['records']}, day string, batch bigint")
    ends = spark.read.schema(f"{DDL['ends']}, day string")
    return (
        records.parquet(f"{directory}/{RECORDS_DIRECTORY}"),
        ends.parquet(f"{directory}/{ENDS_DIRECTORY}"),
    )


def _exists(spark: SparkSession, path: str) -> bool:
    """Whether a file is there, on whatever file system Spark sees it."""
    from pyspark.errors import AnalysisException

    try:
        spark.read.text(path)
    except AnalysisException:
        return False
    return True
