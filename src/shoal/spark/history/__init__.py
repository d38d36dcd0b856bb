"""What happened to consumer groups, from the records of ``__consumer_offsets`` (extra: spark).

Records as ``format("shoal")``, Spark's own Kafka source, a log directory or the recorder give them
go in; tables come out, in batches and streams alike::

    records = spark.read.format("shoal").option("subscribe", "__consumer_offsets")....load()
    rebalances(records).where("not certain").show()

What is done with the records needs no Spark and stands in ``shoal.fleet``; here it is spread over
DataFrames. The functions are imported when first used, so that importing this costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.spark.history.frames import (
        assignments,
        commits,
        generations,
        group_lag,
        lag,
        members,
        moves,
        rebalances,
        rehearsals,
        unreadable,
    )
    from shoal.spark.history.recording import record, recorded

__all__ = [
    "assignments",
    "commits",
    "generations",
    "group_lag",
    "lag",
    "members",
    "moves",
    "rebalances",
    "record",
    "recorded",
    "rehearsals",
    "unreadable",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from shoal.spark.history import frames, recording

        return getattr(recording if name.startswith("record") else frames, name)
    raise AttributeError(f"module 'shoal.spark.history' has no attribute {name!r}")
