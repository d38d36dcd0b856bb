"""The columns of every table of the history, once for Arrow and Spark alike.

    commits      a committed (or deleted) offset    lag          per sample and partition
    generations  a generation of a group            rebalances   per change of generation
    members      a member of a generation           moves        per partition that moved
    assignments  a partition of a member            ends         samples of end offsets
    rehearsals   per group and scheme: its history replayed, now and then

``log_partition``, ``log_offset`` and ``log_time`` are the place of the record in
``__consumer_offsets``: sorted by them, a group's rows are in the order in which they happened.

Rule: a table is declared here and nowhere else; its Spark schema is made from its Arrow types.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "__consumer_offsets"
INTERNAL: Final = (TOPIC, "__transaction_state", "__shoal_sink")
"""Topics of brokers and of Spark sinks: no pattern means them, and nobody is behind in them."""
RECORDS: Final = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
"""What the functions read of a record: columns that every source of topics has."""

_PLACE: Final = "log_partition int, log_offset bigint, log_time timestamp"

DDL: Final = {
    "records": RECORDS,
    "commits": "group string, topic string, partition int, offset bigint, leader_epoch int,"
    " metadata string, commit_time timestamp, expire_time timestamp, topic_id binary, " + _PLACE,
    "generations": "group string, generation int, protocol string, protocol_type string,"
    " assignor string, leader string, members int, assigned boolean, state_time timestamp,"
    " deleted boolean, " + _PLACE,
    "members": "group string, generation int, member_id string, instance_id string,"
    " client_id string, client_host string, session_timeout_ms int, rebalance_timeout_ms int,"
    " topics array<string>, deleted boolean, " + _PLACE,
    "assignments": "group string, generation int, member_id string, topic string,"
    " topic_id binary, partition int, " + _PLACE,
    "unreadable": "reason string, key binary, value binary, " + _PLACE,
    # What one shuffle by group needs: commits without their values, group records as they are.
    "events": "group string, topic string, partition int, offset bigint, key binary,"
    " value binary, " + _PLACE,
    "ends": "topic string, partition int, end_offset bigint, at timestamp",
    "lag": "group string, topic string, partition int, at timestamp, committed bigint,"
    " end_offset bigint, lag bigint, seconds double, at_least boolean",
    "rebalances": "group string, generation int, protocol string, at timestamp, cause string,"
    " certain boolean, joined array<string>, left array<string>, expired array<string>,"
    " gone array<string>, restarted array<string>, members int, partitions int, moved int,"
    " unassigned int, largest int, smallest int, idle int, imbalance double, duration_ms bigint,"
    " pause_ms bigint, missed int, assignor string",
    "rehearsals": "group string, protocol string, assignor string, scheme string, verdict string,"
    " eligible boolean, blocked_by array<string>, advice string, saves double, stopped_now double,"
    " stopped_then double, longest_now double, longest_then double, moved_now bigint,"
    " moved_then bigint, rebalances_now bigint, rebalances_then bigint, catch_up_now double,"
    " catch_up_then double, changes int, members int, partitions int, observed_s double,"
    " confidence string, evidence array<string>, client_ids array<string>",
    "moves": "group string, generation int, at timestamp, topic string, partition int,"
    " from_member string, to_member string",
}


@cache
def schema(table: str) -> pa.Schema:
    """The Arrow schema of a table."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
        "array<string>": pa.list_(pa.string()),
    }
    fields = (column.strip().split(" ") for column in DDL[table].split(","))
    return pa.schema([(name, types[kind]) for name, kind in fields])


def names(table: str) -> list[str]:
    """The column names of a table."""
    return [column.strip().split(" ")[0] for column in DDL[table].split(",")]
