"""Events of many groups → rebalances and moves. The same function runs in a report, a Spark batch
and a Spark stream.

An event is a commit (its place, partition and offset) or a group record as it was written. A run
over a part of the log leaves a *carry*: the events that the next part needs to be understood, which
are the last two generations of each group and the last two commits of each partition. While
a rebalance waits for the commits that end it, the generations that explain it are carried, too.

Rule: state is events. Whatever is carried on is fed in again like everything else, so there is
no second way to know a group, and what a stream keeps in its checkpoint is plain Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.fleet.causes import Rebalance, explain, handed_on
from shoal.fleet.decode import decode_commits
from shoal.fleet.fold import GroupFold, RecordedGeneration
from shoal.fleet.group_records import GroupRecordRow, Place, group_rows, read_groups, refused_table
from shoal.fleet.tables import names, schema
from shoal.types import TopicPartition
from shoal.wire.offsets_topic import UnknownKey, decode_key, decode_value

Ints = npt.NDArray[np.int64]
KEPT: Final = 2
"""How many generations of a group and commits of a partition explain what comes next."""
AWAITED_MAX: Final = 4
AWAITED_US: Final = 600 * 1_000_000
"""So many of the last rebalances of a group, and for so long, may wait for the commits that say how
long their partitions stood still."""

_NEVER: Final = np.iinfo(np.int64).max


class Taken(NamedTuple):
    """What a batch of records holds: commits, events of both kinds, and what nobody can read."""

    commits: pa.RecordBatch
    events: pa.Table
    unreadable: pa.RecordBatch


def take(records: pa.RecordBatch) -> Taken:
    """Decode a batch of records, once."""
    decoded = decode_commits(records)
    others = group_rows(records)
    found, refused = read_groups(others)
    wanted = {(one.place.partition, one.place.offset): one.group for one in found}
    commits = pa.Table.from_batches([decoded.commits])
    slim = pa.table(
        {
            name: commits.column(name)
            if name in commits.column_names
            else pa.nulls(commits.num_rows, schema("events").field(name).type)
            for name in names("events")
        }
    ).cast(schema("events"))
    return Taken(
        decoded.commits,
        pa.concat_tables([slim, _raw(others, wanted)]),
        pa.concat_batches([decoded.unreadable, refused_table(refused)]),
    )


def events_of(records: pa.RecordBatch) -> pa.Table:
    """What an analysis needs of raw records: much less than they are."""
    return take(records).events


def _raw(records: pa.RecordBatch, wanted: dict[tuple[int, int], str]) -> pa.Table:
    """The group records among ``records`` with the group each belongs to."""
    if not wanted:
        return schema("events").empty_table()
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    places = zip(
        table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
    )
    groups = [wanted.get(place) for place in places]
    rows = np.flatnonzero([group is not None for group in groups])
    part = table.take(pa.array(rows))
    count = len(rows)
    return pa.table(
        {
            "group": pa.array([groups[row] for row in rows.tolist()], pa.string()),
            "topic": pa.nulls(count, pa.string()),
            "partition": pa.nulls(count, pa.int32()),
            "offset": pa.nulls(count, pa.int64()),
            "key": part.column("key"),
            "value": part.column("value"),
            "log_partition": part.column("partition"),
            "log_offset": part.column("offset"),
            "log_time": part.column("timestamp"),
        }
    ).cast(schema("events"))


@dataclass
class Analysis:
    """What happened, and what to feed in again with the events that follow."""

    rebalances: list[Rebalance]
    latest: dict[str, RecordedGeneration]
    """The last generation of each group that has one."""
    carry: pa.Table
    commit_gaps_us: dict[str, int]
    """The usual time between two commits of a partition, of groups that committed often enough."""
    revised: list[Rebalance] = field(default_factory=list)
    """Rebalances that were told before, with what these events add: commits, members that came
    to the end of an epoch. What an earlier analysis knew of them may be missing."""


def analyse(
    events: pa.Table,
    carried: pa.Table | None = None,
    topics: Mapping[bytes, str] | None = None,
) -> Analysis:
    """Explain every rebalance among ``events``, which follow ``carried``.

    Args:
        topics: names by id, for groups of the new protocol: their records have ids only.
    """
    fresh = pa.array(np.ones(events.num_rows, np.bool_))
    both = events.append_column("is_new", fresh)
    if carried is not None and carried.num_rows:
        old = carried.append_column("is_new", pa.array(np.zeros(carried.num_rows, np.bool_)))
        both = pa.concat_tables([old, both])
    both = both.sort_by([(name, "ascending") for name in ("group", "log_partition", "log_offset")])
    both = both.combine_chunks()
    rows = _Rows(both)
    found: list[Rebalance] = []
    latest: dict[str, RecordedGeneration] = {}
    keep: list[Ints] = []
    gaps: dict[str, int] = {}
    revised: list[Rebalance] = []
    for begin, end in rows.groups():
        one = _Group(rows, begin, end, topics or {})
        if len(one.records):
            found += one.rebalances()
            revised += one.revised
            keep.append(one.kept())
            gap = one.commit_gap()
            if gap is not None:
                gaps[one.fold.group] = gap
            if one.last is not None and not one.fold.is_deleted:
                latest[one.last.group] = one.last
    keep.append(rows.last_commits())
    index = np.sort(np.concatenate(keep))
    carry = both.take(pa.array(index)).drop_columns(["is_new"])
    return Analysis(found, latest, carry, gaps, revised)


class _Rows:
    """The sorted events as arrays."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.group, self.names = _codes(table.column("group"))
        self.time_us = _numbers(table.column("log_time").cast(pa.int64()))
        self.newest_us = int(self.time_us.max(initial=0))
        self.is_new = np.asarray(table.column("is_new"), dtype=np.bool_)
        self.is_record = np.asarray(table.column("key").is_valid(), dtype=np.bool_)
        topics = table.column("topic").combine_chunks().dictionary_encode()
        if isinstance(topics, pa.ChunkedArray):
            topics = topics.combine_chunks()
        self.topic_code = {name: code for code, name in enumerate(topics.dictionary.to_pylist())}
        # A topic and a partition as one number, to compare many at once.
        codes = _numbers(topics.indices.fill_null(-1))
        self.tp = (codes << 32) + _numbers(table.column("partition").fill_null(0))
        self.is_commit = ~self.is_record & np.asarray(
            table.column("offset").is_valid(), dtype=np.bool_
        )
        self.events = self._read()

    def _read(self) -> dict[int, tuple[bytes, GroupRecordRow]]:
        """The group records, by row, with the bytes of their keys."""
        rows = np.flatnonzero(self.is_record)
        columns = ("key", "value", "log_partition", "log_offset")
        part = self.table.select(columns).take(pa.array(rows))
        cells = (part.column(name).to_pylist() for name in columns)
        times = self.time_us[rows].tolist()
        found = {}
        for row, key, value, partition, offset, time_us in zip(
            rows.tolist(), *cells, times, strict=True
        ):
            name = decode_key(key)
            assert not isinstance(name, UnknownKey), "events hold only what can be read"
            place = Place(partition, offset, time_us)
            found[row] = (key, GroupRecordRow(name, decode_value(name, value), place))
        return found

    def groups(self) -> Iterator[tuple[int, int]]:
        """Where each group begins and ends."""
        begins = np.flatnonzero(np.diff(self.group, prepend=-1)).tolist()
        yield from pairwise([*begins, len(self.group)])

    def last_commits(self) -> Ints:
        """The rows of the last two commits of every partition of every group."""
        rows = np.flatnonzero(self.is_commit)
        order = np.lexsort((rows, self.tp[rows], self.group[rows]))
        rows = rows[order]
        edge = np.diff(self.group[rows], append=-1) != 0
        edge |= np.diff(self.tp[rows], append=-1) != 0
        last = np.flatnonzero(edge)
        before = last[last > 0] - 1
        before = before[~edge[before]]
        return np.asarray(rows[np.union1d(last, before)], np.int64)


def _codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if hasattr(encoded, "chunks") else encoded
    return _numbers(encoded.indices), encoded.dictionary.to_pylist()


def _numbers(column: Any) -> Ints:
    return np.asarray(column, dtype=np.int64)


class _Step(NamedTuple):
    """A generation that the record in ``row`` made whole, and what is needed to explain it."""

    row: int
    before: RecordedGeneration | None
    now: RecordedGeneration
    withheld: frozenset[TopicPartition]


@dataclass
class _Group:
    """One group's share of the rows; implements ``causes.Commits``."""

    rows: _Rows
    begin: int
    end: int
    topics: Mapping[bytes, str]
    fold: GroupFold = field(init=False)
    records: Ints = field(init=False)
    last: RecordedGeneration | None = None
    revised: list[Rebalance] = field(default_factory=list)
    _steps: list[_Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        part = slice(self.begin, self.end)
        self.records = self.begin + np.flatnonzero(self.rows.is_record[part])
        commits = self.begin + np.flatnonzero(self.rows.is_commit[part])
        self._tps, self._tp = np.unique(self.rows.tp[commits], return_inverse=True)
        self._time_us = self.rows.time_us[commits]
        self.fold = GroupFold(self.rows.names[self.rows.group[self.begin]], self.topics)

    def rebalances(self) -> list[Rebalance]:
        """Those that a new record completed."""
        found = []
        withheld: frozenset[TopicPartition] = frozenset()
        for row in self.records.tolist():
            now = self.fold.feed(self.rows.events[row][1])
            if self.fold.is_deleted:
                self.last = None
            if now is None:
                continue
            rebalance = explain(self.last, now, self, withheld)
            if self.rows.is_new[row]:
                found.append(rebalance)
            elif self.last is not None:
                self.revised.append(rebalance)
            self._steps.append(_Step(row, self.last, now, withheld))
            self.last, withheld = now, rebalance.withheld
        self.revised = [self._with_reached(one) for one in self.revised]
        return [self._with_reached(one) for one in found]

    def _with_reached(self, one: Rebalance) -> Rebalance:
        reached = self.fold.reached.get(one.now.generation)
        return (
            one
            if not reached or one.now.protocol == "classic"
            else replace(one, reached_us=reached)
        )

    def kept(self) -> Ints:
        """The newest record of each key up to the first generation that is needed, and all after
        it."""
        if self.fold.is_deleted:
            return np.empty(0, np.int64)
        edge = self._steps[self._first_needed()].row if self._steps else -1
        events = self.rows.events
        newest = {events[row][0]: row for row in self.records.tolist() if row <= edge}
        alive = [row for row in newest.values() if events[row][1].value is not None]
        return np.asarray(alive + [row for row in self.records.tolist() if row > edge], np.int64)

    def _first_needed(self) -> int:
        """Of the generations, to explain the next rebalance and those that wait for commits."""
        count = len(self._steps)
        recent = range(max(0, count - AWAITED_MAX), count)
        waits = next((number for number in recent if self._is_awaited(self._steps[number])), count)
        # What a rebalance finds withheld, the generation before it took from the one before that.
        return max(0, waits - KEPT)

    def _is_awaited(self, one: _Step) -> bool:
        """Whether a partition that somebody has again was committed before, and not yet since."""
        if one.before is None or self.rows.newest_us - one.now.at_us > AWAITED_US:
            return False
        places = self._places(handed_on(one.before, one.now, one.withheld))
        last, first = self._around(places, one.now.at_us)
        return bool(np.any((last >= 0) & (first == _NEVER)))

    def last_two(self, tps: Iterable[TopicPartition], at_us: int) -> tuple[int | None, int | None]:
        times = self._time_us[self._of(self._places(tps)) & (self._time_us <= at_us)]
        if not len(times):
            return None, None
        last = int(times.max())
        earlier = times[times < last]
        return last, int(earlier.max()) if len(earlier) else None

    def gaps(self, tps: Iterable[TopicPartition], at_us: int) -> dict[TopicPartition, int]:
        places = self._places(tps)
        last, first = self._around(places, at_us)
        known = (last >= 0) & (first < _NEVER)
        gaps, is_known = (first - last).tolist(), known.tolist()
        return {tp: gaps[place] for tp, place in places.items() if is_known[place]}

    def _around(self, places: Mapping[TopicPartition, int], at_us: int) -> tuple[Ints, Ints]:
        """When each of these was last committed before a moment and first after it, by its place;
        -1 and ``_NEVER`` if it was not."""
        ours = self._of(places)
        count = len(self._tps)
        last, first = np.full(count, -1, np.int64), np.full(count, _NEVER, np.int64)
        before, after = ours & (self._time_us <= at_us), ours & (self._time_us > at_us)
        np.maximum.at(last, self._tp[before], self._time_us[before])
        np.minimum.at(first, self._tp[after], self._time_us[after])
        return last, first

    def commit_gap(self) -> int | None:
        """The usual time between two commits of one partition."""
        order = np.lexsort((self._time_us, self._tp))
        same = np.diff(self._tp[order]) == 0
        gaps = np.diff(self._time_us[order])[same]
        return int(np.median(gaps)) if len(gaps) else None

    def _places(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these partitions stand among those with commits."""
        codes = self.rows.topic_code
        known = [tp for tp in tps if tp.topic in codes]
        wanted = [(codes[tp.topic] << 32) + tp.partition for tp in known]
        place = np.searchsorted(self._tps, wanted)
        # Behind the last is nobody's place.
        is_there = np.append(self._tps, -1)[place] == wanted
        found = zip(known, place.tolist(), is_there.tolist(), strict=True)
        return {tp: number for tp, number, there in found if there}

    def _of(self, places: Mapping[TopicPartition, int]) -> npt.NDArray[np.bool_]:
        """Which commits are of these partitions."""
        is_wanted = np.zeros(len(self._tps) + 1, np.bool_)
        is_wanted[np.fromiter(places.values(), np.int64, len(places))] = True
        return np.asarray(is_wanted[self._tp])


def rebalance_table(rebalances: Sequence[Rebalance]) -> pa.Table:
    """One row for each rebalance."""
    return pa.Table.from_pylist([_rebalance_row(one) for one in rebalances], schema("rebalances"))


def _rebalance_row(one: Rebalance) -> dict[str, Any]:
    now = one.now
    sizes = [len(member.partitions) for member in now.members.values()]
    partitions = len(now.owners)
    return {
        "group": now.group,
        "generation": now.generation,
        "protocol": now.protocol,
        "at": now.at_us,
        "cause": one.cause,
        "certain": one.certain,
        "joined": one.joined,
        "left": one.departures.left,
        "expired": one.departures.expired,
        "gone": one.departures.gone,
        "restarted": one.restarted,
        "members": len(sizes),
        "partitions": partitions,
        "moved": one.moved,
        "unassigned": len(one.withheld),
        "largest": max(sizes, default=0),
        "smallest": min(sizes, default=0),
        "idle": sizes.count(0),
        "imbalance": max(sizes) * len(sizes) / partitions if partitions else None,
        "duration_ms": None if one.duration_us is None else one.duration_us // 1000,
        "pause_ms": None if one.pause_us is None else one.pause_us // 1000,
        "missed": one.missed,
        "assignor": now.assignor,
    }


def move_table(rebalances: Sequence[Rebalance]) -> pa.Table:
    """One row for each partition that has another owner after a rebalance."""
    rows = [
        {
            "group": one.now.group,
            "generation": one.now.generation,
            "at": one.now.at_us,
            "topic": move.topic_partition.topic,
            "partition": move.topic_partition.partition,
            "from_member": move.giver,
            "to_member": move.taker,
        }
        for one in rebalances
        for move in one.moves
    ]
    return pa.Table.from_pylist(rows, schema("moves"))
