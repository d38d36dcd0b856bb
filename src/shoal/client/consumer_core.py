"""One consumer, below its faces: assignment, positions, fetching, commits, group, in one place.

``Consumer`` and ``AsyncConsumer`` call the coroutines here through the engine and then take
records in their own thread with ``reader``. While all is calm (``calm_s``) that is a whole poll;
otherwise ``prepare`` (callbacks, commits, waiting) comes first.

Rule: every coroutine here is one call of the user's. What must go on between calls (heartbeats,
fetches, lookups) is a task of one of the parts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from shoal.client.arguments import check_offset
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.cluster_queries import ClusterQueries
from shoal.client.commits import CommitCallback, Committer, Offsets
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline
from shoal.client.engine import Arrival, in_caller
from shoal.client.fetch_buffer import Buffer, RecordReader
from shoal.client.fetcher import Fetcher
from shoal.client.listeners import ListenerCaller
from shoal.client.membership import Membership, Wish, classic_member_of, member_of
from shoal.client.metadata import Metadata
from shoal.client.metrics import ClientMetrics, MetricListing
from shoal.client.offsets import EARLIEST, LATEST, fetch_committed
from shoal.client.position_validation import Validator
from shoal.client.positions import Positions
from shoal.client.reactions import RequestReaction, reaction
from shoal.client.security import tls_context
from shoal.client.start_positions import Locator
from shoal.client.tallies import ConsumedTally, FetchTally, GroupTally, PollTally
from shoal.client.wakeup import Wakeups
from shoal.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    RequestTimeoutError,
    ShoalError,
    WakeupError,
    error_for,
)
from shoal.group.member.member_interface import Assigned, CommitVerdict, Lost, Revoked
from shoal.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)

logger = logging.getLogger(__name__)


class ConsumerCore:
    """Everything a consumer is, on the engine's loop."""

    def __init__(self, config: ConsumerConfig, links: Links | None = None) -> None:
        self.config = config
        self.positions = Positions()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.arrived = Arrival()
        """For a blocked thread: something came, or the engine has to be asked."""
        self._cluster = Cluster(
            config,
            links or Links(config, tls_context(config)),
            auto_create_topics=config.allow_auto_create_topics,
        )
        self.queries = ClusterQueries(self._cluster, config)
        self.buffer = Buffer(self.positions, self._on_room)
        self.polls = PollTally()
        self._reads = ConsumedTally(self._loop.time)
        self._fetches = FetchTally()
        self._group_tally = GroupTally()
        self.reader = RecordReader(self.buffer, config, self._reads)
        self._validator = Validator(self._cluster, config, self.positions, self._on_located)
        self._fetcher = Fetcher(
            self._cluster,
            config,
            self.positions,
            self.buffer,
            self._validator.doubts,
            self._on_data,
            self._fetches,
        )
        self._locator = Locator(self._cluster, config, self.positions, self._on_located)
        self._listener = ListenerCaller(None)
        self._processing = ListenerCaller(None)
        self._group: Membership | None = None
        self._committer: Committer | None = None
        if config.group_id is not None:
            is_auto = config.group_protocol == "auto"
            self._group = Membership(
                self._cluster,
                member_of(config),
                config.group_id,
                self._on_change,
                fallback=partial(classic_member_of, config) if is_auto else None,
                tally=self._group_tally,
            )
            self._committer = Committer(
                self._cluster,
                config,
                self.positions,
                self._group,
                self._on_change,
                self._group_tally,
            )
        self._cluster.on_update.append(self._on_metadata)
        self._mode = ""
        # The group must see a user who polls, or waits in a poll, well within the poll interval.
        pace_ms = min(config.heartbeat_interval_ms, config.max_poll_interval_ms / 3)
        self._pace_s = pace_ms / 1000
        self.wakeups = Wakeups(self._on_change)
        self.is_closing = False
        self._refusal: BrokerError | None = None
        self._absent: frozenset[str] = frozenset()
        self._calm_until = 0.0
        self.is_due = False
        """Whether somebody who hands out records one by one should poll before the next."""
        self._due: asyncio.TimerHandle | None = None
        self._kick_is_due = False
        _sessions.add(self)

    # --- what the parts report ---

    def _on_change(self) -> None:
        self._calm_until = 0.0
        self.is_due = True
        self._on_data()

    def _on_data(self) -> None:
        self._changed.set()
        self.arrived.set()

    def _on_located(self) -> None:
        self._fetcher.kick()
        self._on_change()

    def _on_room(self) -> None:
        """A chunk was used up, in the user's thread: fetch more, once per burst."""
        wanted = self._fetcher.wants_room and not self._kick_is_due
        if wanted and not self._loop.is_closed():
            self._kick_is_due = True
            self._loop.call_soon_threadsafe(self._kick)

    def _kick(self) -> None:
        self._kick_is_due = False
        self._fetcher.kick()

    def _on_metadata(self, metadata: Metadata, asked: frozenset[str] | None) -> None:
        if self._group is not None:
            self._group.update_metadata(metadata, asked)
        self._validator.look()
        self._fetcher.kick()
        self._refusal = self._refused(metadata, asked)
        self._warn_of_absent(metadata)
        if self._refusal is not None:
            self._on_change()
        self._changed.set()

    def _refused(self, metadata: Metadata, asked: frozenset[str] | None) -> BrokerError | None:
        """What the cluster says of a topic we read that waiting will not change."""
        wanted = self.subscription() | {state.tp.topic for state in self.positions}
        for name in sorted(wanted & (asked or frozenset())):
            code = metadata.errors.get(name)
            if code is not None and reaction("Metadata", code) is RequestReaction.RAISE:
                advice = "; a pattern is given as re.compile(...)" if name[:1] == "^" else ""
                return error_for(code, f"topic {name!r}{advice}")
        return None

    def _warn_of_absent(self, metadata: Metadata) -> None:
        """Once each: what is to be read and is not there. Polls go on, for it may be made yet."""
        tps = self.positions.partitions()
        absent = {
            f"topic {name!r} does not exist"
            for name in self.subscription() | {tp.topic for tp in tps}
            if metadata.errors.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        absent |= {
            f"{tp} does not exist: topic {tp.topic!r} has partitions 0 to {count - 1}"
            for tp in tps
            if (count := metadata.partition_count(tp.topic)) and tp.partition >= count
        }
        for what in sorted(absent - self._absent):
            logger.warning("%s; it is read as soon as it is made", what)
        self._absent = frozenset(absent)

    # --- polling ---

    @property
    def calm_s(self) -> float:
        """How long polls may go on without a word to the engine. Any thread may ask."""
        return 0.0 if self.wakeups.is_pending else max(0.0, self._calm_until - self._loop.time())

    async def prepare(self, timeout_s: float) -> None:
        """Do a poll's work, and wait until there are records to take or time is up.

        Raises:
            WakeupError: ``wakeup`` was called.
            ShoalError: something the user has to decide about.
        """
        deadline = Deadline(timeout_s)
        if not self._mode:
            raise RuntimeError("subscribe() or assign() before poll()")
        while True:
            self._changed.clear()
            self.wakeups.take()
            self.positions.polled()
            await self._attend()
            if self.buffer.has_ready or deadline.has_passed:
                break
            await self._wait(deadline)
        self.positions.polled()
        self._stay_calm()

    async def _attend(self) -> None:
        """What a poll owes: rebalance steps, commits, callbacks, errors, positions."""
        if self._committer is not None:
            self._committer.auto_commit()
            await self._committer.run_callbacks()
        if self._group is not None and self._mode == "subscribe":
            await self._group.poll(self._call_back, self._commit_for_rebalance)
            held = frozenset(self._group.member.held)
            for state in self.positions:
                state.is_held = state.tp in held
        cut = self._validator.settle()
        refusal, self._refusal = self._refusal, None
        error = refusal or cut or self._locator.take_error() or self._fetcher.take_error()
        if error is not None:
            raise error
        self._locator.start()
        self._fetcher.kick()

    async def _wait(self, deadline: Deadline) -> None:
        pause_s = deadline.limit(self._pace_s)
        if self._committer is not None and self._committer.auto_due_at is not None:
            pause_s = min(pause_s, max(0.0, self._committer.auto_due_at - self._loop.time()))
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _stay_calm(self) -> None:
        """Until when polls may go without us, unless something changes."""
        until = self._loop.time() + self._pace_s / 3
        if self._committer is not None and self._committer.auto_due_at is not None:
            until = min(until, self._committer.auto_due_at)
        self._expect_poll(until)
        if self._group is not None and self._mode == "subscribe":
            member = self._group.member
            if member.wants_poll or member.held:
                until = 0.0
        if self._committer is not None and self._committer.owes_callbacks:
            until = 0.0
        if any(state.position is None for state in self.positions) or self._fetcher.has_error:
            until = 0.0
        if self._validator.has_news or self._refusal is not None:
            until = 0.0
        self._calm_until = until

    def _expect_poll(self, at: float | None) -> None:
        """Slow work on each record must not keep the group and commits waiting for a whole poll."""
        self.is_due = False
        if self._due is not None:
            self._due.cancel()
        self._due = None if at is None else self._loop.call_at(at, self._fall_due)

    def _fall_due(self) -> None:
        self.is_due = True

    async def _call_back(self, step: Revoked | Assigned | Lost) -> None:
        """Run one step of a rebalance: the user's callback, and what changes around it."""
        match step:
            case Assigned(partitions, owned):
                self.positions.own(owned)
                if self._committer is not None:
                    self._committer.restart_auto()
                await self._tell("assigned", partitions)
            case Revoked(partitions) | Lost(partitions):
                try:
                    what = "lost" if isinstance(step, Lost) else "revoked"
                    await getattr(self._processing, what)(partitions)
                    await self._tell(what, partitions)
                except (WakeupError, asyncio.CancelledError):
                    partitions = ()  # it will run again, and until then they are ours
                    raise
                finally:  # whatever else it raises, they are gone
                    self._forget(partitions)

    async def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Call the user's listener, if there is one."""
        began = self._loop.time()
        try:
            await getattr(self._listener, what)(partitions)
        finally:
            if self._listener.is_given:
                now = self._loop.time()
                self._group_tally.callbacks[what].record(1000 * (now - began), now)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self.positions.forget(partitions)
        self.buffer.discard_revoked()

    async def _commit_for_rebalance(self) -> CommitVerdict:
        assert self._committer is not None
        return await self._committer.commit_for_rebalance()

    async def start_processing(self, processing: Any) -> None:
        """``processing`` takes records as bytes, and hears of rebalances before the listener."""
        self._processing = ListenerCaller(processing)
        self.reader.is_raw = True

    async def end_processing(self) -> None:
        self._processing = ListenerCaller(None)
        self.reader.is_raw = False

    # --- subscription ---

    async def subscribe(self, wish: Wish, listener: Any | None) -> None:
        if self._group is None:
            raise ConfigError("subscribe needs a group_id; or use assign")
        if self._mode == "assign":
            raise RuntimeError("this consumer uses assign; unsubscribe() first")
        self._group.subscribe(wish)
        self._mode = "subscribe"
        self._listener = ListenerCaller(listener)

    async def unsubscribe(self) -> None:
        is_over = True
        try:
            if self._mode == "subscribe":
                assert self._group is not None
                await self._group.before_leaving(self.queries.deadline(None))
                step = self._group.perform(self._group.member.unsubscribe(self._group.now_ms))
                await self._group.run(step, self._call_back, self._commit_for_rebalance)
        except (WakeupError, asyncio.CancelledError):
            is_over = False  # nothing was given up: this is to be called again
            raise
        finally:
            if is_over:
                self._mode = ""
                self._forget(self.positions.partitions())
                self._cluster.watch(())
            self._calm_until = 0.0

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        if self._mode == "subscribe":
            raise RuntimeError("this consumer uses subscribe; unsubscribe() first")
        if self._committer is not None:
            self._committer.auto_commit()
        gone = self.positions.partitions() - set(partitions)
        self._forget(gone)
        self.positions.own(partitions)
        self._mode = "assign" if partitions else ""
        topics = {tp.topic for tp in partitions}
        self._cluster.watch(topics)
        if topics - self._cluster.metadata.topics.keys():
            self._cluster.mark_stale()
        self._warn_of_absent(self._cluster.metadata)
        self._calm_until = 0.0
        self._locator.start()

    def subscription(self) -> frozenset[str]:
        if self._group is None or self._mode != "subscribe":
            return frozenset()
        return self._group.member.topics

    async def enforce_rebalance(self, reason: str) -> None:
        if self._group is None or self._mode != "subscribe":
            raise RuntimeError("enforce_rebalance needs a subscription")
        self._group.perform(self._group.member.enforce_rebalance(reason))
        self._on_change()

    def group_metadata(self) -> ConsumerGroupMetadata:
        if self._group is None:
            raise ConfigError("this consumer has no group_id")
        return self._group.member.group_metadata

    # --- positions ---

    async def seek(
        self, tp: TopicPartition, to: int | OffsetAndMetadata, leader_epoch: int | None
    ) -> None:
        if isinstance(to, OffsetAndMetadata):
            offset = to.offset
            leader_epoch = to.leader_epoch if leader_epoch is None else leader_epoch
        else:
            offset = to
        check_offset(tp, offset)
        self.positions[tp].seek(offset, leader_epoch)
        self._moved()

    async def seek_to_end(self, partitions: Collection[TopicPartition], *, beginning: bool) -> None:
        """Of all partitions if none is named; the end is asked for when it is needed."""
        for tp in partitions or self.positions.partitions():
            self.positions[tp].reset(EARLIEST if beginning else LATEST)
        self._moved()

    def _moved(self) -> None:
        self.buffer.discard_revoked()
        self._calm_until = 0.0
        self._locator.start()
        self._fetcher.kick()

    async def position(self, tp: TopicPartition, timeout: float | None) -> int:
        state = self.positions[tp]
        deadline = self.queries.deadline(timeout)
        while state.position is None:
            self._changed.clear()
            error = self._locator.take_error()
            if error is not None:
                raise error
            if deadline.has_passed:
                raise RequestTimeoutError(f"no position for {tp} within {deadline.timeout_s:g} s")
            self._locator.start()
            await self._wait(deadline)
        state.found_at = None  # who asks for it counts on it
        return state.position

    async def pause(self, partitions: Collection[TopicPartition], paused: bool) -> None:
        states = [self.positions[tp] for tp in partitions]
        for state in states:
            state.is_paused = paused
        self._fetcher.kick()
        self._changed.set()

    # --- commits ---

    def _need_committer(self) -> Committer:
        if self._committer is None:
            raise ConfigError("commits need a group_id")
        return self._committer

    async def commit_sync(self, offsets: Offsets | None, timeout: float | None) -> None:
        committer = self._need_committer()
        wanted = self.positions.consumed() if offsets is None else _checked(offsets)
        began = time.perf_counter_ns()
        try:
            await committer.commit_sync(wanted, self.queries.deadline(timeout))
        finally:
            self.polls.commit_sync_ns += time.perf_counter_ns() - began

    async def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        committer = self._need_committer()
        wanted = self.positions.consumed() if offsets is None else _checked(offsets)
        committer.commit_async(wanted, callback)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._need_committer()
        assert self.config.group_id is not None
        began = time.perf_counter_ns()
        try:
            return await fetch_committed(
                self._cluster, self.config.group_id, partitions, self.queries.deadline(timeout)
            )
        finally:
            self.polls.committed_ns += time.perf_counter_ns() - began

    async def lag(self, tp: TopicPartition, timeout: float | None) -> int:
        """From what the last fetch said, without a request if there was one."""
        position = await self.position(tp, timeout)
        known = self.positions[tp].end_offset
        if known is None:
            known = (await self.queries.ends([tp], timeout, beginning=False))[tp]
        return max(0, known - position)

    # --- metrics ---

    def metrics(self) -> ClientMetrics:
        """What was counted so far. Any thread may ask."""
        listing = MetricListing(self.config.client_id, self._loop.time())
        self.polls.tell(listing)
        self._reads.tell(listing, self.positions)
        self._fetches.tell(listing)
        if self._group is not None:
            self._group_tally.tell(listing, len(self.positions))
        self._cluster.tell(listing, "consumer-metrics")
        return listing.metrics

    # --- the end ---

    async def close(self, timeout: float) -> None:
        """Commit, revoke, leave, stop; what raises is raised after everything is closed."""
        deadline = Deadline(timeout)
        self.is_closing = True
        self.wakeups.turn_off()
        self._calm_until = 0.0
        self._expect_poll(None)
        failures: list[BaseException] = []
        steps = (self._final_commit, self._leave, self._settle_commits, self._close_interceptors)
        for step in steps:
            try:
                await step(deadline)
            except Exception as error:  # noqa: BLE001 - the rest must still be closed
                failures.append(error)
        await self._fetcher.close()
        await self._locator.close()
        await self._validator.close()
        if self._group is not None:
            await self._group.close()
        await self._cluster.close()
        if failures:
            raise failures[0]

    async def _final_commit(self, deadline: Deadline) -> None:
        committer = self._committer
        if committer is None:
            return
        if self.config.enable_auto_commit and self._mode:
            limit = Deadline(deadline.limit(self.config.request_timeout_ms / 1000))
            offsets = self.positions.consumed()
            try:
                await committer.commit_finally(offsets, limit)
            except Exception as error:  # noqa: BLE001 - closing goes on, and says so
                _log_close("the final commit failed", error)
        await self._settle_commits(deadline)

    async def _settle_commits(self, deadline: Deadline) -> None:
        """Every callback hears what became of its commit, also of one a listener made just now."""
        committer = self._committer
        if committer is None:
            return
        if not await committer.finish_async(deadline):
            await committer.give_up()
        failure: Exception | None = None
        while committer.owes_callbacks:
            try:
                await committer.run_callbacks()
            except Exception as error:  # noqa: BLE001 - the others must still hear of theirs
                failure = failure or error
        if failure is not None:
            raise failure

    async def _leave(self, deadline: Deadline) -> None:
        if self._group is None:
            return
        await self._group.before_leaving(deadline)
        # Asked for now: the one of before may have given way to one of another protocol.
        step = self._group.perform(self._group.member.close(self._group.now_ms))
        try:
            await self._group.run(step, self._call_back, self._commit_for_rebalance)
        finally:
            limit = deadline.limit(self.config.request_timeout_ms / 1000)
            await self._group.left(Deadline(limit))

    async def _close_interceptors(self, _: Deadline) -> None:
        for interceptor in self.config.interceptors:
            close = getattr(interceptor, "close", None)
            if close is not None:
                try:
                    await in_caller(close)
                except Exception as error:  # noqa: BLE001 - as all errors of interceptors
                    _log_close("an interceptor's close raised", error)


_sessions: WeakSet[ConsumerCore] = WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session.is_due = True  # so that a loop over records asks for more, and hears where it is


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_after_fork)


def _checked(offsets: Offsets) -> Offsets:
    for tp, one in offsets.items():
        check_offset(tp, one.offset)
        if not isinstance(one.metadata, str):
            raise TypeError(f"the metadata of {tp} must be a string, not {one.metadata!r}")
    return offsets


def _log_close(what: str, error: Exception) -> None:
    # What a broker answers needs no traceback: when several members close at once, the commits
    # of some come while the others' leaving is a rebalance.
    is_answer = isinstance(error, ShoalError)
    logger.warning("%s: %s", what, error, exc_info=None if is_answer else error)
