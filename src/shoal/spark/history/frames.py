"""The history as DataFrame → DataFrame functions, for batches and streams.

Rule: what is decided about a group is decided in the Arrow functions beside this file; here they
are only put into Spark's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupStateTimeout

from shoal.fleet import analysis, decode, group_records
from shoal.fleet.lag import lag_table
from shoal.fleet.rehearse import BrokerOffer, rehearsal_table, rehearse_events
from shoal.fleet.tables import DDL, names, schema
from shoal.spark.history import packing, streaming

if TYPE_CHECKING:
    import pandas as pd

Step = Callable[[dict[str, list[bytes]], bytes | None], streaming.StreamStep]
BUCKETS: Final = 16
REHEARSAL_BUCKETS: Final = 64
"""More than for other tables: a replay takes longer than its bytes tell, and so all cores end
at about the same time."""


def commits(records: DataFrame) -> DataFrame:
    """Every committed offset; ``offset`` is null where one was deleted."""
    return _mapped(records, "commits", _commits)


def generations(records: DataFrame) -> DataFrame:
    """Every generation of every group."""
    return _mapped(records, "generations", _generations)


def members(records: DataFrame) -> DataFrame:
    """Every member of every generation."""
    return _mapped(records, "members", _members)


def assignments(records: DataFrame) -> DataFrame:
    """Every partition of every member of every generation."""
    return _mapped(records, "assignments", _assignments)


def unreadable(records: DataFrame) -> DataFrame:
    """Records that cannot be read, with the reason; the other tables leave them out."""
    return _mapped(records, "unreadable", _unreadable)


def rebalances(records: DataFrame, *, buckets: int = BUCKETS) -> DataFrame:
    """Every rebalance: why, who came and went, how much moved, how long, how even it is now.

    In a stream ``pause_ms`` is null: it ends with a commit that is not there yet.

    Args:
        records: of ``__consumer_offsets``.
        buckets: how many parts the groups are divided into; each is held in memory at once, and a
            stream keeps to the number it began with.
    """
    packed = _packed(records, "records", partial(_pack_events, buckets=buckets))
    return _stepped(packed, "rebalances", streaming.rebalance_step)


def moves(records: DataFrame, *, buckets: int = BUCKETS) -> DataFrame:
    """Every partition that has another owner after a rebalance; see ``rebalances``."""
    packed = _packed(records, "records", partial(_pack_events, buckets=buckets))
    return _stepped(packed, "moves", streaming.move_step)


def lag(records: DataFrame, ends: DataFrame, *, buckets: int = BUCKETS) -> DataFrame:
    """How far each group was behind in each partition, at each sample of its end.

    Both must be batches or both streams. A stream gives a sample out ten seconds after it was
    taken, when nothing committed before it is still on its way.

    Args:
        records: of ``__consumer_offsets``.
        ends: samples, with the columns of ``tables.DDL["ends"]``; the recorder takes them.
        buckets: how many parts the partitions are divided into; see ``rebalances``.
    """
    done = _packed(records, "records", partial(_pack_commits, buckets=buckets))
    seen = _packed(ends, "ends", partial(_pack_ends, buckets=buckets))
    return _stepped(done.union(seen), "lag", streaming.lag_step)


def group_lag(lags: DataFrame) -> DataFrame:
    """Lag of whole groups at each sample: records summed, seconds of the latest partition."""
    return lags.groupBy("group", "at").agg(
        f.sum("lag").alias("lag"),
        f.max("seconds").alias("seconds"),
        f.max("at_least").alias("at_least"),
        f.count("*").alias("partitions"),
    )


def rehearsals(
    records: DataFrame,
    lags: DataFrame | None = None,
    *,
    offer: BrokerOffer | None = None,
    buckets: int = REHEARSAL_BUCKETS,
) -> DataFrame:
    """What every group's past would have cost under other schemes, see ``fleet.rehearse``.

    Args:
        records: of ``__consumer_offsets``; a batch.
        lags: as ``lag`` gives them; without, nobody knows how fast groups catch up.
        offer: what is known of the brokers.
        buckets: how many parts the groups are divided into; see ``rebalances``.

    Raises:
        ValueError: a stream; its past is not over.
    """
    if records.isStreaming or (lags is not None and lags.isStreaming):
        raise ValueError("rehearsals need the whole past: read records and lags as batches")
    packed = _packed(records, "records", partial(_pack_events, buckets=buckets))
    if lags is not None:
        packed = packed.union(_packed(lags, "lag", partial(_pack_lags, buckets=buckets)))
    # Not a partial: Spark looks for annotations, and a lambda has none.
    return packed.groupBy("bucket").applyInArrow(
        lambda cells: _rehearsed(offer, cells), DDL["rehearsals"]
    )


def _rehearsed(offer: BrokerOffer | None, cells: pa.Table) -> pa.Table:
    payloads = _by_kind(cells.column("kind").to_pylist(), cells.column("payload").to_pylist())
    events = packing.from_bytes(payloads.get("events", ()), "events")
    lags = packing.from_bytes(payloads.get("lag", ()), "lag")
    parts = rehearse_events(events, lags, offer=offer)
    return rehearsal_table(row for part in parts for row in part)


def _mapped(
    records: DataFrame, table: str, function: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> DataFrame:
    return records.select(*names("records")).mapInArrow(partial(_each, function), DDL[table])


def _each(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield function(batch)


def _commits(batch: pa.RecordBatch) -> pa.RecordBatch:
    return decode.decode_commits(batch).commits


def _generations(batch: pa.RecordBatch) -> pa.RecordBatch:
    return group_records.generation_table(group_records.read_groups(batch)[0])


def _members(batch: pa.RecordBatch) -> pa.RecordBatch:
    return group_records.member_table(group_records.read_groups(batch)[0])


def _assignments(batch: pa.RecordBatch) -> pa.RecordBatch:
    return group_records.assignment_table(group_records.read_groups(batch)[0])


def _unreadable(batch: pa.RecordBatch) -> pa.RecordBatch:
    return analysis.take(batch).unreadable


def _packed(
    frame: DataFrame, table: str, function: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> DataFrame:
    return frame.select(*names(table)).mapInArrow(partial(_each, function), packing.PACKED)


def _pack_events(batch: pa.RecordBatch, *, buckets: int) -> pa.RecordBatch:
    return packing.pack(analysis.events_of(batch), "events", ("group",), buckets)


def _pack_commits(batch: pa.RecordBatch, *, buckets: int) -> pa.RecordBatch:
    table = pa.Table.from_batches([_commits(batch)])
    return packing.pack(table, "commits", ("topic", "partition"), buckets)


def _pack_lags(batch: pa.RecordBatch, *, buckets: int) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch]).cast(schema("lag"))
    return packing.pack(table, "lag", ("group",), buckets)


def _pack_ends(batch: pa.RecordBatch, *, buckets: int) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch]).cast(schema("ends"))
    return packing.pack(table, "ends", ("topic", "partition"), buckets)


def _stepped(packed: DataFrame, table: str, step: Step) -> DataFrame:
    by_bucket = packed.groupBy("bucket")
    if not packed.isStreaming:
        # Not a partial: Spark looks for annotations, and a lambda has none.
        return by_bucket.applyInArrow(lambda cells: _whole(table, cells), DDL[table])

    out = by_bucket.applyInPandasWithState(
        partial(_with_state, step),
        outputStructType="payload binary",
        stateStructType="carry binary",
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    return out.mapInArrow(partial(_unpack, table), DDL[table])


def _whole(table: str, cells: pa.Table) -> pa.Table:
    """A bucket in a batch: everything is there, so nothing has to settle or be carried on."""
    payloads = _by_kind(cells.column("kind").to_pylist(), cells.column("payload").to_pylist())
    if table == "lag":
        done = packing.from_bytes(payloads.get("commits", ()), "commits")
        return lag_table(done, packing.from_bytes(payloads.get("ends", ()), "ends"))
    found = analysis.analyse(packing.from_bytes(payloads.get("events", ()), "events")).rebalances
    tables = {"rebalances": analysis.rebalance_table, "moves": analysis.move_table}
    return tables[table](found)


def _with_state(
    step: Step, _: tuple[Any, ...], parts: Iterable[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    import pandas as pd

    payloads: dict[str, list[bytes]] = {}
    for part in parts:
        for kind, cells in _by_kind(part["kind"], part["payload"]).items():
            payloads.setdefault(kind, []).extend(cells)
    done = step(payloads, bytes(state.get[0]) if state.exists else None)
    state.update((done.carry,))
    yield pd.DataFrame({"payload": [packing.to_bytes(done.rows)] if done.rows.num_rows else []})


def _by_kind(kinds: Iterable[str], payloads: Iterable[bytes]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for kind, payload in zip(kinds, payloads, strict=True):
        found.setdefault(kind, []).append(bytes(payload))
    return found


def _unpack(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return packing.unpacked(batches, table)
