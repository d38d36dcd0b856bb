"""A fleet's future: recorded changes of thousands of groups, replayed through every scheme.

3,000 groups of 2 to 20 members on 6 to 120 partitions, all classic (two thirds range, the others
cooperative-sticky) with 100 changes each: members go and come back. Wall time of the whole Spark
job on two cores, records in Parquet to the table of rehearsals; and what a change costs of CPU in
one process without Spark, which other load on the machine hardly changes. ``--groups N`` makes it
smaller; the goal of the job is for all of them.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Report, Row, json_argument
from shoal.fleet.analysis import take
from shoal.fleet.rehearse import rehearse_events
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

GROUPS, CHANGES = 3_000, 100
FILES = 16
START_MS = 1_700_000_000_000
GOAL_S = 600

Record = tuple[bytes, bytes, int, int, int]


@dataclass
class RecordedGroup:
    """One group and what it goes through, minute after minute."""

    number: int
    changes: int = CHANGES

    def records(self, first_offset: int) -> Iterator[Record]:
        """Generations, and a commit of every member before each of them."""
        chance = random.Random(self.number)
        name, topic = f"team-{self.number // 10}-service-{self.number}", f"topic-{self.number}"
        members = chance.randint(2, 20)
        partitions = chance.randint(1, 6) * max(members, 6)
        assignor = "cooperative-sticky" if self.number % 3 == 0 else "range"
        ids = [f"{name}-{place}.0" for place in range(members)]
        offset = first_offset
        away: str | None = None
        for generation in range(1, self.changes + 2):
            at_ms = START_MS + generation * 60_000
            if generation > 1:
                for number in range(0, partitions, -(-partitions // len(ids))):
                    yield (*_commit(name, topic, number, at_ms - 1_000), 0, offset, at_ms - 1_000)
                    offset += 1
                away, ids = _next(chance, ids, away)
            yield (
                encode_key(GroupMetadataKey(group=name)),
                _generation(ids, topic, partitions, generation, assignor, at_ms),
                0,
                offset,
                at_ms,
            )
            offset += 1


def _next(chance: random.Random, ids: list[str], away: str | None) -> tuple[str | None, list[str]]:
    """Who is away comes back under a new id; else somebody goes."""
    if away is not None:
        client, _, life = away.rpartition(".")
        return None, [*ids, f"{client}.{int(life) + 1}"]
    gone = chance.choice(ids)
    return gone, [one for one in ids if one != gone]


def _commit(group: str, topic: str, number: int, at_ms: int) -> tuple[bytes, bytes]:
    key = OffsetCommitKey(group=group, topic=topic, partition=number)
    value = OffsetCommitValue(offset=(at_ms - START_MS) // 10, metadata="", commit_timestamp=at_ms)
    return encode_key(key), encode_value(value)


def _generation(
    ids: Sequence[str], topic: str, partitions: int, generation: int, assignor: str, at_ms: int
) -> bytes:
    size, more = divmod(partitions, len(ids))
    members, begin = [], 0
    for index, member_id in enumerate(sorted(ids)):
        end = begin + size + (index < more)
        share = [TopicPartition(topic, number) for number in range(begin, end)]
        begin = end
        members.append(
            GroupMetadataValue.MemberMetadata(
                member_id=f"{member_id}-01234567-89ab-cdef-0123-456789abcdef",
                group_instance_id=None,
                client_id=member_id.rpartition(".")[0],
                client_host="/10.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=ConsumerProtocolSubscription([topic]).encode(),
                assignment=ConsumerProtocolAssignment(share).encode(),
            )
        )
    return encode_value(
        GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol=assignor,
            leader=members[0].member_id,
            current_state_timestamp=at_ms - 200,
            members=members,
        )
    )


def write(directory: Path, groups: int) -> int:
    """The records of all groups, in as many files as a recording of some days has."""
    directory.mkdir()
    total = 0
    for file in range(FILES):
        rows: list[Record] = []
        for number in range(file, groups, FILES):
            rows += RecordedGroup(number).records(total + len(rows))
        keys, values, partitions, offsets, times = map(list, zip(*rows, strict=True))
        columns = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([at * 1000 for at in times], pa.timestamp("us", "UTC")),
        ]
        table = pa.Table.from_arrays(columns, schema=schema("records"))
        pq.write_table(table, directory / f"{file:02}.parquet", compression="zstd")
        total += len(rows)
    return total


def _cpu_per_change(file: Path) -> Row:
    """Of the groups in one file, decoding included."""
    begin = time.process_time()
    batches = pq.read_table(file).to_batches(max_chunksize=50_000)
    events = pa.concat_tables([take(batch).events for batch in batches])
    rows = [row for part in rehearse_events(events) for row in part]
    taken = time.process_time() - begin
    changes = sum(row.changes for row in rows) / 5
    # Two cores for ten minutes, divided by the changes of the whole fleet.
    goal = f"<= {2 * GOAL_S * 1000 / (GROUPS * CHANGES):g}"
    what = f"one change in 4 schemes, {len(rows) // 5} groups, without Spark"
    return Row(what, "ms of CPU", taken / changes * 1000, goal=goal, higher_is_better=False)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    from shoal.spark import history, session

    groups = GROUPS
    if "--groups" in arguments:
        groups = int(arguments[arguments.index("--groups") + 1])
    report = Report("fleet_what_if", ("pyspark", "pyarrow", "numpy"))
    with tempfile.TemporaryDirectory() as scratch:
        count = write(Path(scratch) / "records", groups)
        report.add(_cpu_per_change(Path(scratch) / "records" / "00.parquet"))
        spark = session("fleet-what-if", cores=2, quiet=True)
        try:
            records = spark.read.parquet(f"{scratch}/records")
            before = time.perf_counter()
            found = history.rehearsals(records).toArrow()
            taken = time.perf_counter() - before
        finally:
            spark.stop()
    assert found.num_rows == 5 * groups
    replayed = sum(found.column("changes").to_pylist()) // 5
    assert replayed == groups * CHANGES, replayed
    what = f"{groups:,} groups, {replayed:,} changes, 4 schemes, {count:,} records, in Spark"
    goal = f"<= {GOAL_S}" if groups >= GROUPS else ""
    report.add(Row(what, "s", taken, goal=goal, higher_is_better=False))
    report.add(Row("changes replayed in a scheme", "changes/s", replayed * 4 / taken))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
