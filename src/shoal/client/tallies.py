"""What the parts of a client count while they work, for ``metrics()``.

Meanings are those of Kafka's Java clients; where ours differs, it is said at the place. Times are
in milliseconds.

Rule: one call per request, answer, batch or poll, and nothing in it that waits or allocates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from shoal.client.metrics import MetricListing
from shoal.client.positions import AssignedPartition, Positions
from shoal.client.sensors import HourlySensor, Sensor, TimeWindows, elapsed_s
from shoal.records.batch import HEADER_SIZE
from shoal.types import TopicPartition

Clock = Callable[[], float]

_FETCHES: Final = "consumer-fetch-manager-metrics"
_GROUP: Final = "consumer-coordinator-metrics"
_CONSUMER: Final = "consumer-metrics"
_PRODUCER: Final = "producer-metrics"
_TOPIC: Final = "producer-topic-metrics"


class Traffic:
    """Connections of one client, and what goes over them. On the engine's loop."""

    __slots__ = (
        *("answers", "asked", "closed", "opened", "proven", "proven_again"),
        *("refused", "refused_again"),
    )

    def __init__(self) -> None:
        self.opened = Sensor()
        self.closed = Sensor()
        self.asked = Sensor()
        """Bytes of each request."""
        self.answers = Sensor()
        """Bytes of each answer."""
        self.proven = Sensor()
        self.refused = Sensor()
        self.proven_again = Sensor()
        self.refused_again = Sensor()

    def tell(self, listing: MetricListing, group: str, connections: int) -> None:
        listing.put(group, "connection-count", connections)
        listing.events(group, "connection-creation", self.opened)
        listing.events(group, "connection-close", self.closed)
        listing.events(group, "request", self.asked)
        listing.extent(group, "request-size", self.asked)
        listing.amount(group, "outgoing-byte", self.asked)
        listing.events(group, "response", self.answers)
        listing.amount(group, "incoming-byte", self.answers)
        listing.events(group, "successful-authentication", self.proven)
        listing.events(group, "failed-authentication", self.refused)
        listing.events(group, "successful-reauthentication", self.proven_again)
        listing.events(group, "failed-reauthentication", self.refused_again)


# --- consumers ---


class _TopicFetches:
    """What fetches brought of one topic."""

    __slots__ = ("records", "sizes")

    def __init__(self) -> None:
        self.sizes = Sensor()
        self.records = Sensor()


class FetchTally:
    """Answers to fetches, as they come. On the engine's loop."""

    def __init__(self) -> None:
        self.latency = Sensor()
        self.throttle = Sensor()
        self.sizes = Sensor()
        self.records = Sensor()
        self._topics: dict[str, _TopicFetches] = {}

    def answered(self, latency_ms: float, throttle_ms: float, now: float) -> None:
        self.latency.record(latency_ms, now)
        self.throttle.record(throttle_ms, now)

    def fetched(self, brought: dict[str, tuple[int, int]], now: float) -> None:
        """An answer brought so many bytes, and so many records, of each topic."""
        for topic, (size, records) in brought.items():
            known = self._topics.get(topic)
            if known is None:
                known = self._topics[topic] = _TopicFetches()
            known.sizes.record(size, now)
            known.records.record(records, now)
        self.sizes.record(sum(size for size, _ in brought.values()), now)
        self.records.record(sum(records for _, records in brought.values()), now)

    def tell(self, listing: MetricListing) -> None:
        listing.extent(_FETCHES, "fetch-latency", self.latency)
        listing.events(_FETCHES, "fetch", self.latency)
        listing.extent(_FETCHES, "fetch-throttle-time", self.throttle)
        listing.extent(_FETCHES, "fetch-size", self.sizes)
        listing.average(_FETCHES, "records-per-request", self.records)
        for topic, one in list(self._topics.items()):
            tags = {"topic": topic}
            listing.extent(_FETCHES, "fetch-size", one.sizes, tags)
            listing.average(_FETCHES, "records-per-request", one.records, tags)


class _Readings:
    """Half a minute of one partition: parts, records and bytes read, lag and lead."""

    __slots__ = (
        *("began", "lag_max", "lag_sum", "lags", "last", "lead_min", "lead_sum", "leads"),
        *("records", "size"),
    )

    def __init__(self, now: float) -> None:
        self.began = self.last = now
        self.records = self.size = self.lags = self.leads = 0
        self.lag_sum = self.lead_sum = 0
        self.lag_max = -1
        self.lead_min = math.inf


class PartitionTally:
    """What the user has read of one partition. In the user's thread."""

    __slots__ = ("records", "size", "windows")

    def __init__(self) -> None:
        self.windows = TimeWindows(_Readings)
        self.records = 0
        self.size = 0


class ConsumedTally:
    """Records on their way to the user. In the user's thread.

    Bytes are those of whole record batches, as they were fetched; Java counts the records out of
    them, decompressed. They count when the last record of an answer was read.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._partitions: dict[TopicPartition, PartitionTally] = {}

    def took(self, state: AssignedPartition, records: int) -> None:
        """The user has so many more records of a partition, whose position is behind them."""
        now = self._clock()
        tally = state.tally or self._tally_of(state)
        tally.records += records
        sample = tally.windows.at(now)
        sample.last = now
        sample.records += records
        position, end, start = state.position or 0, state.end_offset, state.log_start_offset
        if end is not None:
            lag = end - position if end > position else 0
            sample.lags += 1
            sample.lag_sum += lag
            if lag > sample.lag_max:
                sample.lag_max = lag
        if start is not None:
            lead = position - start
            sample.leads += 1
            sample.lead_sum += lead
            if lead < sample.lead_min:
                sample.lead_min = lead

    def finished(self, state: AssignedPartition, size: int) -> None:
        """What one answer held of a partition, so many bytes, is read to its end."""
        now = self._clock()
        tally = state.tally or self._tally_of(state)
        tally.size += size
        sample = tally.windows.at(now)
        sample.last = now
        sample.size += size

    def _tally_of(self, state: AssignedPartition) -> PartitionTally:
        tally = self._partitions.get(state.tp)
        if tally is None:
            tally = self._partitions[state.tp] = PartitionTally()
        state.tally = tally
        return tally

    def tell(self, listing: MetricListing, positions: Positions) -> None:
        tallies = dict(self._partitions.items())
        by_topic: dict[str, list[PartitionTally]] = {}
        for tp, tally in tallies.items():
            by_topic.setdefault(tp.topic, []).append(tally)
        _tell_amounts(listing, list(tallies.values()), None)
        for topic, ones in by_topic.items():
            _tell_amounts(listing, ones, {"topic": topic})
        assigned = list(positions)
        lags, leads = [], []
        for state in assigned:
            known = tallies.get(state.tp)
            samples = [] if known is None else known.windows.recent(listing.now)
            lags += [one.lag_max for one in samples if one.lags]
            leads += [one.lead_min for one in samples if one.leads]
            _tell_partition(listing, state, samples)
        listing.put(_FETCHES, "records-lag-max", max(lags, default=math.nan))
        listing.put(_FETCHES, "records-lead-min", min(leads, default=math.nan))


def _tell_amounts(
    listing: MetricListing, tallies: list[PartitionTally], tags: dict[str, str] | None
) -> None:
    samples = [one for tally in tallies for one in tally.windows.recent(listing.now)]
    seconds = elapsed_s(samples, listing.now)
    records, sizes = sum(one.records for one in samples), sum(one.size for one in samples)
    listing.put(_FETCHES, "records-consumed-rate", records / seconds, tags)
    listing.put(_FETCHES, "records-consumed-total", sum(one.records for one in tallies), tags)
    listing.put(_FETCHES, "bytes-consumed-rate", sizes / seconds, tags)
    listing.put(_FETCHES, "bytes-consumed-total", sum(one.size for one in tallies), tags)


def _tell_partition(
    listing: MetricListing, state: AssignedPartition, samples: list[_Readings]
) -> None:
    """Lag and lead as they are now, and what they were when records were read lately."""
    tags = {"topic": state.tp.topic, "partition": str(state.tp.partition)}
    listing.put(
        _FETCHES,
        "preferred-read-replica",
        -1 if state.read_from is None else state.read_from,
        tags,
    )
    position, end, start = state.position, state.end_offset, state.log_start_offset
    if position is not None and end is not None:
        listing.put(_FETCHES, "records-lag", max(0, end - position), tags)
    if position is not None and start is not None:
        listing.put(_FETCHES, "records-lead", position - start, tags)
    if lags := sum(one.lags for one in samples):
        listing.put(_FETCHES, "records-lag-avg", sum(s.lag_sum for s in samples) / lags, tags)
        listing.put(_FETCHES, "records-lag-max", max(s.lag_max for s in samples), tags)
    if leads := sum(one.leads for one in samples):
        listing.put(_FETCHES, "records-lead-avg", sum(s.lead_sum for s in samples) / leads, tags)
        listing.put(_FETCHES, "records-lead-min", min(s.lead_min for s in samples), tags)


class _Polls:
    """Half a minute of polls."""

    __slots__ = ("began", "count", "gap_max", "gap_sum", "idle_count", "idle_sum", "last")

    def __init__(self, now: float) -> None:
        self.began = self.last = now
        self.count = self.idle_count = 0
        self.gap_sum = self.gap_max = self.idle_sum = 0.0


class PollTally:
    """Calls of ``poll``. In the user's thread."""

    __slots__ = ("_windows", "commit_sync_ns", "committed_ns", "last_at")

    def __init__(self) -> None:
        self._windows = TimeWindows(_Polls)
        self.last_at: float | None = None
        """When the last poll began."""
        self.commit_sync_ns = 0
        self.committed_ns = 0

    def polled(self, began: float, ended: float) -> None:
        """One poll has returned."""
        last, self.last_at = self.last_at, began
        gap = 0.0 if last is None else began - last
        sample = self._windows.at(ended)
        sample.last = ended
        sample.count += 1
        sample.gap_sum += gap
        if gap > sample.gap_max:
            sample.gap_max = gap
        whole = ended - began + gap
        if whole > 0:
            sample.idle_count += 1
            sample.idle_sum += (ended - began) / whole

    def tell(self, listing: MetricListing) -> None:
        samples = self._windows.recent(listing.now)
        count = sum(one.count for one in samples)
        idles = sum(one.idle_count for one in samples)
        average = 1000 * sum(one.gap_sum for one in samples) / count if count else math.nan
        largest = max((1000 * one.gap_max for one in samples), default=math.nan)
        idle = sum(one.idle_sum for one in samples) / idles if idles else math.nan
        listing.put(_CONSUMER, "time-between-poll-avg", average)
        listing.put(_CONSUMER, "time-between-poll-max", largest)
        listing.put(_CONSUMER, "poll-idle-ratio-avg", idle)
        listing.seconds_ago(_CONSUMER, "last-poll", self.last_at)
        listing.put(_CONSUMER, "commit-sync-time-ns-total", self.commit_sync_ns)
        listing.put(_CONSUMER, "committed-time-ns-total", self.committed_ns)


class GroupTally:
    """Heartbeats, rebalances and commits of one member. On the engine's loop."""

    def __init__(self) -> None:
        self.heartbeats = Sensor()
        self.joins = Sensor()
        self.syncs = Sensor()
        self.rebalances = HourlySensor()
        self.latency = Sensor()
        """Of rebalances, from the first join or the news of an assignment until it is ours."""
        self.failed = HourlySensor()
        self.commits = Sensor()
        self.callbacks = {kind: Sensor() for kind in ("assigned", "revoked", "lost")}
        self._heartbeat_at: float | None = None
        self._rebalance_at: float | None = None
        self._rebalance_began: float | None = None
        self._speaks_classic = False

    def sends(self, api: str, now: float, *, is_join: bool) -> None:
        """A request to the coordinator leaves."""
        if api.endswith("Heartbeat"):
            self._heartbeat_at = now
        if is_join:
            self.rebalance_begins(now)

    def answered(self, api: str, latency_ms: float, *, is_error: bool, now: float) -> None:
        """It was answered; a join or sync that was refused is a rebalance that failed.

        The first join of a member that has no id yet is refused too, and counts, as in Java.
        """
        if api.endswith("Heartbeat"):
            self.heartbeats.record(latency_ms, now)
        elif api in ("JoinGroup", "SyncGroup"):
            self._speaks_classic = True
            if is_error:
                self.failed.record(now)
            else:
                (self.joins if api == "JoinGroup" else self.syncs).record(latency_ms, now)

    def rebalance_begins(self, now: float) -> None:
        """Unless one is under way: it is one and the same until partitions are assigned."""
        if self._rebalance_began is None:
            self._rebalance_began = now

    def rebalance_ends(self, now: float) -> None:
        if self._rebalance_began is not None:
            self.latency.record(1000 * (now - self._rebalance_began), now)
            self.rebalances.record(now)
            self._rebalance_began = None
            self._rebalance_at = now

    def rebalance_is_off(self) -> None:
        """The member leaves the group: nothing will be assigned any more."""
        self._rebalance_began = None

    def tell(self, listing: MetricListing, assigned: int) -> None:
        listing.put(_GROUP, "assigned-partitions", assigned)
        listing.events(_GROUP, "heartbeat", self.heartbeats)
        listing.put(_GROUP, "heartbeat-response-time-max", self.heartbeats.largest(listing.now))
        listing.seconds_ago(_GROUP, "last-heartbeat", self._heartbeat_at)
        if self._speaks_classic:
            for name, sensor in (("join", self.joins), ("sync", self.syncs)):
                listing.events(_GROUP, name, sensor)
                listing.extent(_GROUP, f"{name}-time", sensor)
        listing.extent(_GROUP, "rebalance-latency", self.latency)
        listing.put(_GROUP, "rebalance-latency-total", self.latency.total)
        listing.events_per_hour(_GROUP, "rebalance", self.rebalances)
        listing.events_per_hour(_GROUP, "failed-rebalance", self.failed)
        listing.seconds_ago(_GROUP, "last-rebalance", self._rebalance_at)
        for kind, sensor in self.callbacks.items():
            listing.extent(_GROUP, f"partition-{kind}-latency", sensor)
        listing.extent(_GROUP, "commit-latency", self.commits)
        listing.events(_GROUP, "commit", self.commits)


# --- producers ---


class _TopicSends:
    """What was sent to one topic."""

    __slots__ = ("compression", "errors", "retries", "sent", "sizes")

    def __init__(self) -> None:
        self.sent = Sensor()
        self.sizes = Sensor()
        self.compression = Sensor()
        self.retries = Sensor()
        self.errors = Sensor()


class SentBatch:
    """What a produce request says of one batch."""

    __slots__ = ("queue_ms", "records", "size", "topic", "unpacked")

    def __init__(
        self, topic: str, records: int, size: int, unpacked: int | None, queue_ms: float
    ) -> None:
        self.topic = topic
        self.records = records
        self.size = size
        self.unpacked = unpacked
        """Its size without compression, about; ``None``: nobody knows."""
        self.queue_ms = queue_ms


CALLS: Final[tuple[str, ...]] = (
    "txn-init",
    "txn-begin",
    "txn-send-offsets",
    "txn-commit",
    "txn-abort",
)


class SendTally:
    """Batches on their way to brokers. On the engine's loop, but for the waits of senders."""

    def __init__(self) -> None:
        self.sizes = Sensor()
        self.compression = Sensor()
        self.queued = Sensor()
        self.latency = Sensor()
        self.throttle = Sensor()
        self.sent = Sensor()
        self.retries = Sensor()
        self.errors = Sensor()
        self.splits = Sensor()
        self.record_sizes = Sensor()
        self.waits = Sensor()
        """Of senders for room, in nanoseconds; recorded under the accumulator's lock."""
        self.exhausted = Sensor()
        self.waiting = 0
        self.spent_ns: dict[str, int] = dict.fromkeys((*CALLS, "flush", "metadata-wait"), 0)
        self._topics: dict[str, _TopicSends] = {}

    def _topic(self, name: str) -> _TopicSends:
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = _TopicSends()
        return known

    def sends(self, batches: Collection[SentBatch], now: float) -> None:
        """A produce request leaves."""
        for batch in batches:
            topic = self._topic(batch.topic)
            topic.sent.record(batch.records, now)
            topic.sizes.record(batch.size, now)
            self.sizes.record(batch.size, now)
            self.queued.record(batch.queue_ms, now)
            if batch.unpacked is not None:
                ratio = batch.size / batch.unpacked
                topic.compression.record(ratio, now)
                self.compression.record(ratio, now)
                size = (batch.unpacked - HEADER_SIZE) / max(1, batch.records)
                self.record_sizes.record(size, now)
        self.sent.record(sum(batch.records for batch in batches), now)

    @contextmanager
    def timing(self, call: str) -> Iterator[None]:
        """How long a call of the user's takes, added up."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spent_ns[call] += time.perf_counter_ns() - began

    def answered(self, latency_ms: float, throttle_ms: float, now: float) -> None:
        self.latency.record(latency_ms, now)
        self.throttle.record(throttle_ms, now)

    def retried(self, topic: str, records: int, now: float) -> None:
        self.retries.record(records, now)
        self._topic(topic).retries.record(records, now)

    def failed(self, topic: str, records: int, now: float) -> None:
        self.errors.record(records, now)
        self._topic(topic).errors.record(records, now)

    def tell(self, listing: MetricListing) -> None:
        listing.extent(_PRODUCER, "batch-size", self.sizes)
        listing.average(_PRODUCER, "compression-rate", self.compression)
        listing.extent(_PRODUCER, "record-queue-time", self.queued)
        listing.extent(_PRODUCER, "request-latency", self.latency)
        listing.extent(_PRODUCER, "produce-throttle-time", self.throttle)
        listing.amount(_PRODUCER, "record-send", self.sent)
        listing.average(_PRODUCER, "records-per-request", self.sent)
        listing.amount(_PRODUCER, "record-retry", self.retries)
        listing.amount(_PRODUCER, "record-error", self.errors)
        listing.events(_PRODUCER, "batch-split", self.splits)
        listing.average(_PRODUCER, "record-size", self.record_sizes)
        listing.put(_PRODUCER, "bufferpool-wait-ratio", self.waits.rate(listing.now) / 1e9)
        listing.put(_PRODUCER, "bufferpool-wait-time-ns-total", self.waits.total)
        listing.events(_PRODUCER, "buffer-exhausted", self.exhausted)
        listing.put(_PRODUCER, "waiting-threads", self.waiting)
        for call, spent in self.spent_ns.items():
            listing.put(_PRODUCER, f"{call}-time-ns-total", spent)
        for name, one in list(self._topics.items()):
            tags = {"topic": name}
            listing.amount(_TOPIC, "record-send", one.sent, tags)
            listing.amount(_TOPIC, "byte", one.sizes, tags)
            listing.put(_TOPIC, "compression-rate", one.compression.average(listing.now), tags)
            listing.amount(_TOPIC, "record-retry", one.retries, tags)
            listing.amount(_TOPIC, "record-error", one.errors, tags)
