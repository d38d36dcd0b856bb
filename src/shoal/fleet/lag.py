"""Commits and samples of end offsets → how far each group was behind, at each sample.

A sample says where a partition ended at a moment. What was committed at that moment is the last
commit before it, so the lag in records is exact. The lag in seconds is how long ago the partition
ended where the group stands now: found in the samples, on a straight line between two of them. A
group that stands before the first sample is behind *at least* since then, and ``at_least`` says so.

A partition whose end goes back was recreated; its samples before that say nothing about it.

Rule: all groups and partitions at once, by sorting and binary search; no loop over either.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shoal.fleet.tables import schema

Ints = npt.NDArray[np.int64]
_US: Final = 1_000_000


def lag_table(commits: pa.Table, ends: pa.Table) -> pa.Table:
    """One row for each sample and each group that had committed in its partition by then."""
    if not commits.num_rows or not ends.num_rows:
        return schema("lag").empty_table()
    topic_of, groups = _Topics(commits, ends), _dictionary(commits.column("group"))
    samples = _Samples(topic_of.ends, _times(ends.column("at")), _ints(ends.column("end_offset")))
    series = _Series(commits, groups, topic_of.commits)
    row, sample = series.at(samples)
    committed = series.offset[row]
    present = committed >= 0
    row, sample, committed = row[present], sample[present], committed[present]
    end = samples.end[sample]
    seconds, at_least = samples.behind(sample, committed)
    at = pa.array(samples.time_us[sample], pa.int64()).cast(pa.timestamp("us", "UTC"))
    columns = [
        groups.dictionary.take(pa.array(series.group[row])),
        topic_of.names.take(pa.array(samples.topic(sample))),
        pa.array(samples.partition(sample), pa.int32()),
        at,
        pa.array(committed),
        pa.array(end),
        pa.array(np.maximum(end - committed, 0)),
        pa.array(seconds),
        pa.array(at_least),
    ]
    return pa.Table.from_arrays(columns, schema=schema("lag"))


class _Topics:
    """Topics and partitions of both tables as numbers: topic in the high half, partition low."""

    def __init__(self, commits: pa.Table, ends: pa.Table) -> None:
        both = pa.chunked_array(
            [*commits.column("topic").chunks, *ends.column("topic").chunks], pa.string()
        )
        encoded = _dictionary(both)
        self.names = encoded.dictionary
        codes = _ints(encoded.indices) << 32
        count = commits.num_rows
        self.commits = codes[:count] + _ints(commits.column("partition"))
        self.ends = codes[count:] + _ints(ends.column("partition"))


class _Samples:
    """Samples, sorted by partition and time."""

    def __init__(self, tp: Ints, time_us: Ints, end: Ints) -> None:
        order = np.lexsort((time_us, tp))
        self.tp, self.time_us, self.end = tp[order], time_us[order], end[order]
        is_new_tp = np.diff(self.tp, prepend=-1) != 0
        went_back = np.diff(self.end, prepend=0) < 0
        self.life: Ints = np.cumsum(is_new_tp | went_back)
        """A number for each partition and each time it was recreated."""

    def topic(self, sample: Ints) -> Ints:
        return self.tp[sample] >> 32

    def partition(self, sample: Ints) -> Ints:
        return self.tp[sample] & 0xFFFFFFFF

    def behind(self, sample: Ints, committed: Ints) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """How many seconds before ``sample`` its partition ended at ``committed``.

        The second array says where it is at least so long, and null hides in neither: zero is
        a group that has read everything.
        """
        life = self.life[sample]
        # The first sample of this life which ends after what was committed.
        ends, wanted, width = _ranked(self.end, committed)
        after = np.searchsorted(self.life * width + ends, life * width + wanted, "right")
        after = np.minimum(after, len(self.end) - 1)
        before = np.maximum(after - 1, 0)
        is_current = committed >= self.end[sample]
        unseen = (self.life[before] != life) | (after == 0)
        first = np.searchsorted(self.life, life, "left")
        step = np.where(unseen, 1, np.maximum(self.end[after] - self.end[before], 1))
        share = np.where(unseen, 0, (committed - self.end[before]) / step)
        # Differences first: a time in microseconds does not fit into a float.
        passed = share * (self.time_us[after] - self.time_us[before])
        since = self.time_us[np.where(unseen, first, before)]
        seconds = np.where(is_current, 0.0, (self.time_us[sample] - since - passed) / _US)
        return seconds, unseen & ~is_current


class _Series:
    """Commits, sorted by group, partition and place in the log."""

    def __init__(self, commits: pa.Table, groups: pa.DictionaryArray, tp: Ints) -> None:
        group = _ints(groups.indices)
        place = _ints(commits.column("log_offset"))
        order = np.lexsort((place, tp, group))
        self.group, self.tp = group[order], tp[order]
        # A deleted offset is a commit of nothing.
        self.offset = _ints(commits.column("offset").fill_null(-1))[order]
        self.time_us = _times(commits.column("log_time"))[order]

    def at(self, samples: _Samples) -> tuple[Ints, Ints]:
        """For every sample of every series its last commit: rows of both."""
        is_first = np.diff(self.group, prepend=-1) != 0
        is_first |= np.diff(self.tp, prepend=-1) != 0
        begins = np.flatnonzero(is_first)
        number = np.cumsum(is_first) - 1
        low = np.searchsorted(samples.tp, self.tp[begins], "left")
        high = np.searchsorted(samples.tp, self.tp[begins], "right")
        counts = high - low
        series = np.repeat(np.arange(len(begins)), counts)
        starts = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        sample = starts + np.arange(int(counts.sum()))
        times, wanted, span = _ranked(self.time_us, samples.time_us[sample])
        # Brokers' clocks may step back; a commit counts from the latest time before it.
        keys = np.maximum.accumulate(number * span + times)
        wanted = series * span + wanted
        row = np.searchsorted(keys, wanted, "right") - 1
        fits = (row >= 0) & (number[np.maximum(row, 0)] == series)
        return np.asarray(row[fits]), np.asarray(sample[fits])


def _ranked(left: Ints, right: Ints) -> tuple[Ints, Ints, int]:
    """Both as ranks among all their values, so that a number and a rank fit into one integer."""
    values, ranks = np.unique(np.concatenate([left, right]), return_inverse=True)
    ranks = ranks.astype(np.int64)
    return ranks[: len(left)], ranks[len(left) :], len(values) + 1


def _dictionary(column: Any) -> pa.DictionaryArray:
    encoded = pa.chunked_array(column).combine_chunks().dictionary_encode()
    return encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded


def _ints(column: Any) -> Ints:
    return np.asarray(column, dtype=np.int64)


def _times(column: Any) -> Ints:
    return _ints(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))


def last_of_series(commits: pa.Table, horizon_us: int) -> pa.Table:
    """What samples after ``horizon_us`` need: each series' last commit by then, and all since."""
    if not commits.num_rows:
        return commits
    groups = _dictionary(commits.column("group"))
    topics = _dictionary(commits.column("topic"))
    tp = (_ints(topics.indices) << 32) + _ints(commits.column("partition"))
    group, place = _ints(groups.indices), _ints(commits.column("log_offset"))
    time_us = _times(commits.column("log_time"))
    rows = np.flatnonzero(time_us <= horizon_us)
    rows = rows[np.lexsort((place[rows], tp[rows], group[rows]))]
    is_last = np.diff(group[rows], append=-1) != 0
    is_last |= np.diff(tp[rows], append=-1) != 0
    kept = np.concatenate([rows[is_last], np.flatnonzero(time_us > horizon_us)])
    return commits.take(pa.array(np.sort(kept)))
