"""Counts a trace. All of it is after time zero, when the group had settled.

Rule: everything here follows from the trace alone, so a number can be checked against the picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from shoal.lab.trace import Holding, SentMessage, Trace

WINDOW_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a rebalance cost."""

    time_to_stable_ms: int | None
    """From the first event until nothing changed any more; None: somebody still waits."""
    stopped_partition_s: float
    """Seconds without a reader, added up over partitions."""
    stopped_partitions: int
    """How many partitions stood still at some time."""
    fenced_partition_s: float
    """Seconds of reading that could not be committed, added up over partitions."""
    moved_partitions: int
    """How often a partition went to another member."""
    two_owners: int
    """Moments (a partition, a time) with two members whose commits would both be accepted."""
    two_owners_partition_s: float
    records_processed: int
    records_twice: int
    records_lost: int
    commits: int
    """Offsets of partitions that members committed, from the start."""
    commits_lost: int
    """Of these, how many were stored nowhere: refused, or lost on the way."""
    commits_repeated: int
    """Of these, how often one was stored again, because its answer was lost."""
    commits_refused: int
    commits_backwards: int
    """Accepted commits that moved an offset back: what lies between is read again."""
    requests: int
    """Messages to the registry or coordinator."""
    replies: int
    notifications: int
    """Messages nobody had asked for."""
    worst_window_messages: int
    """To and from the registry or coordinator in the worst 100 ms: the herd."""
    worst_second_requests: int
    """The highest load on the registry or coordinator: requests in one second."""
    syncs: int
    """How often a member let its server catch up before it read."""
    between_servers: int
    """Messages between the servers of the registry, from the start."""
    stale_decisions: int
    """How often a member decided on a list of members that was not the current one."""
    leaders_moved: int
    """How often another broker became the leader of a partition."""
    takeover_ms: int | None
    """The longest time without a registry or coordinator; None: it never was gone."""
    members: int
    uncovered_partitions: int
    """Partitions nobody read at the end."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(trace: Trace) -> Metrics:
    """Count one run."""
    gaps = [(gap.tp, max(gap.begin_ms, 0), gap.end_ms) for gap in trace.gaps if gap.end_ms > 0]
    fenced = [span for span in trace.spans if span.holding is Holding.FENCED and span.end_ms > 0]
    doubles = [double for double in trace.doubles if double.end_ms > 0]
    messages = [each for each in trace.messages if each.sent_ms >= 0]
    answers: list[SentMessage] = []
    requests: list[SentMessage] = []
    for each in messages:
        (answers if each.is_pushed or each.what.endswith(" reply") else requests).append(each)
    pushed = sum(each.times for each in answers if each.is_pushed)
    takeovers = [back - gone for gone, back in trace.takeovers if gone >= 0]
    return Metrics(
        time_to_stable_ms=_time_to_stable(trace),
        stopped_partition_s=sum(end - begin for _, begin, end in gaps) / 1_000,
        stopped_partitions=len({tp for tp, _, _ in gaps}),
        fenced_partition_s=sum(s.end_ms - max(s.begin_ms, 0) for s in fenced) / 1_000,
        moved_partitions=sum(move.at_ms >= 0 for move in trace.moves),
        two_owners=len(doubles),
        two_owners_partition_s=sum(d.end_ms - max(d.begin_ms, 0) for d in doubles) / 1_000,
        records_processed=trace.records_processed,
        records_twice=trace.records_twice,
        records_lost=trace.records_lost,
        commits=trace.commits,
        commits_lost=trace.commits_lost,
        commits_repeated=trace.commits_repeated,
        commits_refused=trace.commits_refused,
        commits_backwards=trace.commits_backwards,
        requests=sum(each.times for each in requests),
        replies=sum(each.times for each in answers) - pushed,
        notifications=pushed,
        worst_window_messages=_worst(
            [
                *((m.arrives_ms, m.times) for m in requests),
                *((m.sent_ms, m.times) for m in answers),
            ],
            WINDOW_MS,
        ),
        worst_second_requests=_worst([(m.arrives_ms, m.times) for m in requests], 1_000),
        syncs=sum(each.what == "Sync" for each in requests),
        between_servers=trace.between_servers,
        stale_decisions=trace.stale_decisions,
        leaders_moved=trace.leaders_moved,
        takeover_ms=max(takeovers, default=None),
        members=len(trace.members),
        uncovered_partitions=trace.uncovered,
    )


def _time_to_stable(trace: Trace) -> int | None:
    """Until the last time a reader changed. Spans end and begin exactly then."""
    if not trace.events:
        return 0
    first_ms = trace.events[0][0]
    if trace.uncovered or any(double.end_ms == trace.end_ms for double in trace.doubles):
        return None
    changes = [span.begin_ms for span in trace.spans]
    changes += [span.end_ms for span in trace.spans if span.end_ms < trace.end_ms]
    return max(0, max((at for at in changes if at >= first_ms), default=first_ms) - first_ms)


def _worst(messages: Iterable[tuple[int, int]], window_ms: int) -> int:
    """The most that fell into any window of this length."""
    ordered = sorted(messages)
    worst = total = start = 0
    for at_ms, count in ordered:
        total += count
        while ordered[start][0] <= at_ms - window_ms:
            total -= ordered[start][1]
            start += 1
        if total > worst:
            worst = total
    return worst


def messages_of(trace: Trace, begin_ms: int, end_ms: int) -> list[SentMessage]:
    """What was sent in [begin, end)."""
    return [each for each in trace.messages if begin_ms <= each.sent_ms < end_ms]
