"""The recorder as a Spark job, for clusters whose commits are too many for one process, and for
directories that only Spark can reach.

    DIRECTORY/records/day=2026-11-15/batch=42/…    as the recorder without Spark writes them
    DIRECTORY/ends/day=2026-11-15/…
    DIRECTORY/_checkpoint                          Spark's own progress

Rule: a micro-batch owns its directories and replaces them as a whole, so one that Spark repeats
after a failure leaves its records there once. The checkpoint lies beside the data it is about.
Small files of earlier micro-batches are merged (``shoal.fleet.recording_files``) if they lie on
the driver's disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from shoal.client.admin import Admin
from shoal.errors import ConfigError
from shoal.fleet import recording_files
from shoal.fleet.recorder import CHECKPOINT, POSITIONS
from shoal.fleet.sources import ENDS_DIRECTORY, RECORDS_DIRECTORY, sample_ends
from shoal.fleet.tables import DDL, RECORDS, TOPIC

if TYPE_CHECKING:
    import pyarrow as pa
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
        _merge(batch_id, directory)

    writer = (
        records.writeStream.queryName("shoal-fleet-record")
        .option("checkpointLocation", f"{directory}/{CHECKPOINT}")
        .foreachBatch(keep)
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every).start()


def _keep(micro_batch: DataFrame, batch_id: int, directory: str) -> None:
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
    with Admin.from_properties(properties) as admin:
        ends: pa.Table = sample_ends(admin)
    if ends.num_rows:
        days = f.date_format(f.to_utc_timestamp("at", f.current_timezone()), "yyyy-MM-dd")
        frame = spark.createDataFrame(ends).withColumn("day", days).coalesce(1)
        frame.write.mode("append").partitionBy("day").parquet(f"{directory}/{ENDS_DIRECTORY}")


def _merge(batch_id: int, directory: str) -> None:
    """Merge small files, where they are on this machine. Spark may still repeat ``batch_id``."""
    local = _local(directory)
    if local is None:
        return
    for day in sorted(one.name.removeprefix("day=") for one in local.glob("*/day=*")):
        recording_files.merge_day(local, RECORDS_DIRECTORY, day, last_batch=batch_id - 1)
        recording_files.merge_day(local, ENDS_DIRECTORY, day)


def _local(directory: str) -> Path | None:
    scheme, colon, rest = directory.partition(":")
    if not colon or "/" in scheme:
        return Path(directory)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def recorded(spark: SparkSession, directory: str) -> tuple[DataFrame, DataFrame]:
    """Records and samples of a recording, whichever recorder made it.

    The frames show the files there are now. If a recorder merges some of them before the frames
    are used, Spark misses them and says so; call this again.
    """
    records = spark.read.schema(f"{DDL['records']}, day string, batch bigint")
    ends = spark.read.schema(f"{DDL['ends']}, day string")
    local = _local(directory)
    with nullcontext() if local is None else recording_files.kept(local):
        while True:
            hidden = _hidden(local)
            frames = (
                _without(hidden, records.parquet(f"{directory}/{RECORDS_DIRECTORY}")),
                _without(hidden, ends.parquet(f"{directory}/{ENDS_DIRECTORY}")),
            )
            # Spark has looked what is there; if a merge went on meanwhile, it must look again.
            if hidden == _hidden(local):
                return frames


def _hidden(local: Path | None) -> frozenset[str]:
    return frozenset() if local is None else recording_files.hidden(local)


def _without(hidden: frozenset[str], frame: DataFrame) -> DataFrame:
    for path in sorted(hidden):
        frame = frame.where(~f.col("_metadata.file_path").endswith(f"/{path}"))
    return frame


def _exists(spark: SparkSession, path: str) -> bool:
    """Whether a file is there, on whatever file system Spark sees it."""
    try:
        spark.read.text(path)
    except AnalysisException:
        return False
    return True
