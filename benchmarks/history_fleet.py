"""Thousands of groups through the history in one Spark batch.

5,000 groups of four members on 20 partitions each, five generations and ten commits of every
partition: a million records. Wall time of whole jobs on a local session, second run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Report, Row, json_argument
from shoal.fleet.tables import schema
from shoal.types import TopicPartition
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from shoal.wire.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)

START_MS = 1_700_000_000_000
MEMBERS = 4
SAMPLES = 10


def commit_keys(groups: int, partitions: int) -> list[bytes]:
    return [
        encode_key(OffsetCommitKey(group=group_name(g), topic=topic_name(g), partition=p))
        for g in range(groups)
        for p in range(partitions)
    ]


def group_name(number: int) -> str:
    return f"team-{number // 10}-service-{number}"


def topic_name(number: int) -> str:
    return f"team-{number // 10}.orders.v{number % 10}"


def batch_of(keys: list[bytes], values: list[bytes], at_ms: np.ndarray) -> pa.RecordBatch:
    """Records in one partition of the topic, in this order."""
    count = len(keys)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(np.zeros(count), pa.int32()),
        pa.array(np.arange(count), pa.int64()),
        pa.array(at_ms * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema("records"))


def commit_batch(groups: int, partitions: int, count: int, metadata: str = "") -> pa.RecordBatch:
    """``count`` commits, spread over all partitions of all groups."""
    keys = commit_keys(groups, partitions)
    values = [
        encode_value(
            OffsetCommitValue(
                offset=number, leader_epoch=3, metadata=metadata, commit_timestamp=START_MS + number
            )
        )
        for number in range(min(count, 50_000))
    ]
    repeated = [values[n % len(values)] for n in range(count)]
    return batch_of(
        [keys[n % len(keys)] for n in range(count)], repeated, START_MS + np.arange(count)
    )


@dataclass(frozen=True)
class Fleet:
    """Groups that rebalance ``generations`` times and commit ``commits`` times in all."""

    groups: int
    partitions: int
    generations: int
    commits: int

    def records(self) -> pa.RecordBatch:
        keys, values, times = [], [], []
        names = commit_keys(self.groups, self.partitions)
        each = max(1, self.commits // self.generations)
        at_ms = START_MS
        for generation in range(1, self.generations + 1):
            made = [self._generation(g, generation, at_ms) for g in range(self.groups)]
            keys += [encode_key(GroupMetadataKey(group=group_name(g))) for g in range(self.groups)]
            values += made
            times += [at_ms] * self.groups
            for _ in range(each):
                at_ms += 5_000
                value = OffsetCommitValue(
                    offset=(at_ms - START_MS) // 10, metadata="", commit_timestamp=at_ms
                )
                keys += names
                values += [encode_value(value)] * len(names)
                times += [at_ms] * len(names)
        return batch_of(keys, values, np.array(times, np.int64))

    def group_records(self) -> pa.RecordBatch:
        """Only those of groups, without the commits."""
        pairs = [
            (
                encode_key(GroupMetadataKey(group=group_name(g))),
                self._generation(g, n, START_MS + n),
            )
            for n in range(1, self.generations + 1)
            for g in range(self.groups)
        ]
        keys, values = map(list, zip(*pairs, strict=True))
        return batch_of(keys, values, START_MS + np.arange(len(keys)))

    def _generation(self, group: int, number: int, at_ms: int) -> bytes:
        """Four members, one of whom is another in each generation."""
        topic = topic_name(group)
        shares = np.array_split(np.arange(self.partitions), MEMBERS)
        members = [
            GroupMetadataValue.MemberMetadata(
                member_id=f"{group_name(group)}-{who}-01234567-89ab-cdef-0123-456789abcdef",
                group_instance_id=None,
                client_id=group_name(group),
                client_host="/10.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=ConsumerProtocolSubscription([topic]).encode(),
                assignment=ConsumerProtocolAssignment(
                    [TopicPartition(topic, int(p)) for p in share]
                ).encode(),
            )
            for who, share in zip(range(number, number + MEMBERS), shares, strict=True)
        ]
        return encode_value(
            GroupMetadataValue(
                protocol_type="consumer",
                generation=number,
                protocol="cooperative-sticky",
                leader=members[0].member_id,
                current_state_timestamp=at_ms - 200,
                members=members,
            )
        )

    @property
    def lag_rows(self) -> int:
        return self.groups * self.partitions * SAMPLES

    def ends(self) -> pa.Table:
        """Ten samples of every partition, after the first commits."""
        topics = [topic_name(g) for g in range(self.groups) for _ in range(self.partitions)]
        numbers = list(range(self.partitions)) * self.groups
        parts = []
        for sample in range(SAMPLES):
            at_ms = START_MS + 6_000 + sample * 4_000
            columns = [
                pa.array(topics),
                pa.array(numbers, pa.int32()),
                pa.array(np.full(len(topics), (at_ms - START_MS) // 9), pa.int64()),
                pa.array(np.full(len(topics), at_ms * 1000), pa.timestamp("us", "UTC")),
            ]
            parts.append(pa.Table.from_arrays(columns, schema=schema("ends")))
        return pa.concat_tables(parts)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    from shoal.spark import history, session

    fleet = Fleet(groups=5_000, partitions=20, generations=5, commits=10)
    report = Report("history_fleet", ("pyspark", "pyarrow", "numpy"))
    with tempfile.TemporaryDirectory() as scratch:
        count = _write(fleet, Path(scratch))
        spark = session("history-fleet", quiet=True)
        try:
            records = spark.read.parquet(f"{scratch}/records")
            ends = spark.read.parquet(f"{scratch}/ends")
            jobs: dict[str, Callable[[], int]] = {
                "commits": lambda: history.commits(records).count(),
                "rebalances": lambda: history.rebalances(records).count(),
                "lag": lambda: history.lag(records, ends).count(),
            }
            expected = {
                "commits": fleet.groups * fleet.partitions * fleet.commits,
                "rebalances": fleet.groups * fleet.generations,
                "lag": fleet.lag_rows,
            }
            for name, job in jobs.items():
                assert job() == expected[name]
                before = time.perf_counter()
                job()
                taken = time.perf_counter() - before
                what = f"{name} of {fleet.groups:,} groups, {count:,} records, in Spark"
                report.add(Row(what, "s", taken, higher_is_better=False))
                report.add(Row(f"{name}: records read", "records/s", count / taken))
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def _write(fleet: Fleet, directory: Path) -> int:
    """The fleet's records and samples as Parquet, in eight files each."""
    records = pa.Table.from_batches([fleet.records()])
    for name, table in (("records", records), ("ends", fleet.ends())):
        (directory / name).mkdir()
        part = -(-table.num_rows // 8)
        for number in range(8):
            pq.write_table(table.slice(number * part, part), directory / name / f"{number}.parquet")
    return records.num_rows


if __name__ == "__main__":
    main(sys.argv[1:])
