"""An hour of a topic, without reading all of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def between(
    spark: SparkSession,
    start: datetime | int,
    end: datetime | int,
    *,
    bootstrap_servers: str,
    subscribe: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of topics whose timestamps lie in ``[start, end)``.

    Brokers find the first record at or after a time by their index, so only what lies between two
    such records is read. A record that was written late, behind the first one of after ``end``, is
    not among them.

    Args:
        start: A datetime with a time zone, or milliseconds since 1970.
        end: The same; not included.
        bootstrap_servers: The cluster, ``host:port`` with commas between.
        subscribe: The topics, with commas between.
        options: Further options of ``format("shoal")``.

    Raises:
        ConfigError: something is not a time, a time has no zone, or the end is before the start.
    """
    from pyspark.sql import functions as f

    start_ms, end_ms = _millis("start", start), _millis("end", end)
    if end_ms < start_ms:
        raise ConfigError(f"end={end} is before start={start}")
    frame = (
        spark.read.format("shoal")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", subscribe)
        .option("startingTimestamp", start_ms)
        .option("endingTimestamp", end_ms)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .options(**dict(options or {}))
        .load()
    )
    # Between the two lie records of other times too, where producers' clocks differ.
    time = f.col("timestamp")
    return frame.where(
        (time >= f.timestamp_millis(f.lit(start_ms))) & (time < f.timestamp_millis(f.lit(end_ms)))
    )


def _millis(name: str, moment: datetime | int) -> int:
    if isinstance(moment, int):
        return moment
    if not isinstance(moment, datetime):
        raise ConfigError(
            f"{name}={moment!r} is not a time; give a datetime with a time zone, or milliseconds "
            "since 1970"
        )
    if moment.tzinfo is None:
        raise ConfigError(f"{name}={moment} says no time zone; give one, tzinfo=UTC for example")
    epoch = datetime.fromtimestamp(0, moment.tzinfo)
    return (moment - epoch) // timedelta(milliseconds=1)
