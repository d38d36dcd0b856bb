"""Fetching ahead: one request under way per broker, until enough is buffered.

``kick`` looks at every partition of the assignment, groups those that may be fetched by the
broker to read from, and starts a round for each broker that has none under way. It is called
whenever something may have changed: an answer came, a chunk was used up, a position was set, the
metadata or the assignment changed.

A round may wait at the broker for half a second because nothing new is there. A partition that
becomes fetchable meanwhile (a seek, a resume, a buffer run dry) must not wait with it: it is
fetched once in a lane of its own, outside the session, and joins the others in their next round.
A round for which the broker has something is back soon; that one is waited for.

Rule: an answer only ever touches the partition states it was asked for, and only if their lap is
still the same. Errors which the user must see are kept until the next poll raises them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.client.broker_links import Lane
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.connection import BrokerConnection, Versioned
from shoal.client.deadlines import RetryBackoff
from shoal.client.fetch_buffer import Buffer, FetchedChunk, extent
from shoal.client.fetch_session import FetchSession, SessionRequest
from shoal.client.leases import Lease
from shoal.client.offsets import isolation
from shoal.client.positions import EARLIEST, LATEST, AssignedPartition, Positions
from shoal.client.reactions import RequestReaction, reaction
from shoal.client.tallies import FetchTally
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    CorruptDataError,
    ErrorCode,
    InvalidFrameError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    RetriableError,
    error_for,
)
from shoal.types import TopicPartition
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_FIRST_WITH_TOPIC_IDS: Final = 13
# After a catch-up that found nothing: until then the common round is likely to be back.
_PAUSE_S: Final = 0.05
_SESSIONLESS: Final = (0, -1)
_FAILURES: Final = (ConnectionFailedError, RequestTimeoutError, InvalidFrameError, BrokerError)
# So many full answers of a partition may wait to be read.
_AHEAD: Final = 4


class Wanted(NamedTuple):
    """What a fetch says of one partition; compared to see what changed in a session."""

    topic_id: bytes | None
    leader_epoch: int
    offset: int
    max_bytes: int


def _is_another(old: Wanted, new: Wanted) -> bool:
    """Whether the topic was recreated: the broker knows the old one by its id."""
    return old.topic_id is not None and old.topic_id != new.topic_id


class _Round:
    """One request under way: what was asked, of which laps, and in which lane."""

    __slots__ = ("is_brief", "lane", "lease", "node_id", "states", "wanted")

    def __init__(self, node_id: int, lane: Lane) -> None:
        self.node_id = node_id
        self.lane = lane
        self.lease: Lease | None = None  # of the memory the answer lies in
        self.is_brief = False
        """Whether the broker has something for it, so that it will not wait there."""
        self.wanted: dict[TopicPartition, Wanted] = {}
        self.states: dict[TopicPartition, tuple[AssignedPartition, int]] = {}

    @property
    def is_catching_up(self) -> bool:
        return self.lane is Lane.CATCH_UP

    def covers(self, state: AssignedPartition) -> bool:
        return self.states.get(state.tp) == (state, state.lap)


class Fetcher:
    """Keeps a buffer filled. Lives on the engine's loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: Positions,
        buffer: Buffer,
        doubts: Callable[[AssignedPartition], bool],
        on_data: Callable[[], None],
        tally: FetchTally | None = None,
    ) -> None:
        self._cluster = cluster
        self._tally = tally or FetchTally()
        self._doubts = doubts
        self._config = config
        self._positions = positions
        self._buffer = buffer
        self._on_data = on_data
        self._sessions: dict[int, FetchSession[Wanted]] = {}
        self._under_way: dict[tuple[int, Lane], tuple[_Round, asyncio.Task[None]]] = {}
        self._next_kick: asyncio.TimerHandle | None = None
        self._backoffs: dict[int, RetryBackoff] = {}
        self._errors: dict[TopicPartition, tuple[int, Exception]] = {}
        self._is_closed = False
        self._is_committed = config.isolation_level == "read_committed"
        self.wants_room = False
        """Whether something was not fetched because enough is buffered: tell us of room."""

    def kick(self) -> None:
        """Start a fetch wherever one is possible and none is under way."""
        if self._is_closed:
            return
        for round_ in self._rounds():
            self._start(round_)

    def _start(self, round_: _Round) -> None:
        task = asyncio.get_running_loop().create_task(self._fetch(round_))
        self._under_way[round_.node_id, round_.lane] = (round_, task)

    def _kick_at(self, when: float) -> None:
        """Look again then, or earlier if that is planned already."""
        if self._next_kick is not None:
            if self._next_kick.when() <= when and not self._next_kick.cancelled():
                return
            self._next_kick.cancel()
        self._next_kick = asyncio.get_running_loop().call_at(when, self._planned_kick)

    def _planned_kick(self) -> None:
        self._next_kick = None
        self.kick()

    @property
    def has_error(self) -> bool:
        return bool(self._errors)

    def take_error(self) -> Exception | None:
        """An error for the user, once; one of a position that was left meanwhile is dropped."""
        while self._errors:
            tp, (lap, error) = self._errors.popitem()
            state = self._positions.get(tp)
            if state is not None and state.lap == lap:
                return error
        return None

    async def close(self) -> None:
        """Stop fetching. Brokers forget the sessions when the connections close."""
        self._is_closed = True
        if self._next_kick is not None:
            self._next_kick.cancel()
        tasks = [task for _, task in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what to ask ---

    def _rounds(self) -> list[_Round]:
        """The rounds that can begin now."""
        config = self._config
        # What is paused does not count: it may wait for long, and must not keep the others out.
        waiting = sum(s.buffered_bytes for s in self._positions if not s.is_paused)
        room = config.fetch_buffer_bytes - waiting
        self.wants_room = room <= 0
        if room <= 0:
            return []
        now = asyncio.get_running_loop().time()
        # Enough that the next answer is there when the last is used up, and no more: what waits
        # long has left the processor's caches when it is read.
        share = max(
            config.max_partition_fetch_bytes,
            min(
                _AHEAD * config.max_partition_fetch_bytes,
                config.fetch_buffer_bytes // max(1, len(self._positions)),
            ),
        )
        rounds: dict[int, _Round] = {}
        for state in self._positions:
            if state.position is None or state.is_paused or state.is_held:
                continue
            if state.buffered_bytes >= share:
                self.wants_room = True
                continue
            if state.retry_at > now:
                self._kick_at(state.retry_at)
                continue
            if self._doubts(state):
                continue
            node_id = self._node_for(state)
            if node_id is None or self._is_covered(node_id, state):
                continue
            if self._is_back_soon(node_id):
                continue
            round_ = rounds.setdefault(node_id, self._idle_lane(node_id))
            round_.wanted[state.tp] = self._wanted(state)
            round_.states[state.tp] = (state, state.lap)
            round_.is_brief |= state.fetch_offset < (state.end_offset or 0)
        return [
            round_
            for round_ in rounds.values()
            if (round_.node_id, round_.lane) not in self._under_way
        ]

    def _is_covered(self, node_id: int, state: AssignedPartition) -> bool:
        for lane in (Lane.FETCH, Lane.CATCH_UP):
            under_way = self._under_way.get((node_id, lane))
            if under_way is not None and under_way[0].covers(state):
                return True
        return False

    def _is_back_soon(self, node_id: int) -> bool:
        """Whether a common round is under way that is worth waiting for.

        Else two partitions that came apart once would be asked for in turns ever after, in twice
        as many answers of half the size.
        """
        under_way = self._under_way.get((node_id, Lane.FETCH))
        return under_way is not None and under_way[0].is_brief and self._config.fetch_min_bytes <= 1

    def _idle_lane(self, node_id: int) -> _Round:
        is_busy = (node_id, Lane.FETCH) in self._under_way
        return _Round(node_id, Lane.CATCH_UP if is_busy else Lane.FETCH)

    def _node_for(self, state: AssignedPartition) -> int | None:
        leader = self._cluster.metadata.leader_of(state.tp)
        if leader is None or leader.leader_id is None:
            self._cluster.mark_stale()
            return None
        if state.read_from is not None and state.read_from in leader.replicas:
            if asyncio.get_running_loop().time() < state.read_from_until:
                return state.read_from
            state.read_from = None
        return leader.leader_id

    def _wanted(self, state: AssignedPartition) -> Wanted:
        topic = self._cluster.metadata.topics[state.tp.topic]
        epoch = topic.partitions[state.tp.partition].leader_epoch
        return Wanted(
            topic.topic_id,
            -1 if epoch is None else epoch,
            state.fetch_offset,
            self._config.max_partition_fetch_bytes,
        )

    # --- one round ---

    async def _fetch(self, first: _Round) -> None:
        """Round after round, as long as there is something to fetch."""
        round_: _Round | None = first
        while round_ is not None:
            try:
                await self._fetch_once(round_)
            except Exception as error:
                # A bug of ours. The next poll raises it: a partition that stands still without a
                # word is worse than one that says why.
                logger.exception("fetching from broker %d failed", round_.node_id)
                self._keep(round_, error)
                await asyncio.sleep(self._backoff(round_.node_id).next_s())
            round_ = self._next_round(round_)

    def _next_round(self, last: _Round) -> _Round | None:
        """What can begin now: elsewhere in tasks of its own, in the same place right here."""
        place = (last.node_id, last.lane)
        _, task = self._under_way.pop(place)
        following: _Round | None = None
        for round_ in () if self._is_closed else self._rounds():
            if (round_.node_id, round_.lane) == place:
                following = round_
                self._under_way[place] = (round_, task)
            else:
                self._start(round_)
        return following

    async def _fetch_once(self, round_: _Round) -> None:
        node_id = round_.node_id
        pause_s = 0.0
        try:
            answer = await self._ask(round_)
            got_data = self._handle(round_, answer)
            self._backoff(node_id).reset()
            if round_.is_catching_up and not got_data:
                self._rest(round_, _PAUSE_S)
        except _FAILURES as error:
            if not round_.is_catching_up:
                self._session(node_id).reset()
            self._cluster.mark_stale()
            pause_s = self._backoff(node_id).next_s()
            if isinstance(error, BrokerError) and not isinstance(error, RetriableError):
                self._keep(round_, error)
            else:
                logger.warning("fetch from broker %d failed: %s", node_id, error)
            self._leave_replica(node_id, round_)
        if round_.lease is not None:
            round_.lease.release()
        if pause_s:
            await asyncio.sleep(pause_s)

    def _rest(self, round_: _Round, pause_s: float) -> None:
        """Nothing was there: leave these partitions to the common round for a while."""
        until = asyncio.get_running_loop().time() + pause_s
        for state, _ in round_.states.values():
            state.retry_at = max(state.retry_at, until)

    async def _ask(self, round_: _Round) -> Any:
        connection = await self._cluster.link(round_.node_id, round_.lane).connection()
        version = fetch_version(connection, round_.wanted)
        if round_.is_catching_up:
            session = SessionRequest(*_SESSIONLESS, round_.wanted, {})
            wait_ms = 0
        else:
            session = self._session(round_.node_id).next_request(round_.wanted)
            wait_ms = self._config.fetch_max_wait_ms
        request = Versioned(ApiKey.FETCH, lambda _: self._request(session, wait_ms), up_to=version)
        timeout_s = (wait_ms + self._config.request_timeout_ms) / 1000
        round_.lease = connection.lease()
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await connection.send(request, timeout_s=timeout_s, lease=round_.lease)
        now = loop.time()
        self._tally.answered(1000 * (now - began), answer.throttle_time_ms, now)
        return answer

    def _request(self, session: SessionRequest[Wanted], wait_ms: int) -> FetchRequest:
        config = self._config
        request = fetch_request(session)
        request.max_wait_ms = wait_ms
        request.min_bytes = config.fetch_min_bytes
        request.max_bytes = min(config.fetch_max_bytes, config.fetch_buffer_bytes)
        request.isolation_level = isolation(config.isolation_level)
        request.rack_id = config.client_rack or ""
        return request

    def _session(self, node_id: int) -> FetchSession[Wanted]:
        return self._sessions.setdefault(node_id, FetchSession(_is_another))

    def _backoff(self, node_id: int) -> RetryBackoff:
        backoff = self._backoffs.get(node_id)
        if backoff is None:
            config = self._config
            backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
            self._backoffs[node_id] = backoff
        return backoff

    # --- what came back ---

    def _handle(self, round_: _Round, answer: Any) -> bool:
        """Take an answer in; whether it brought anything."""
        session = self._session(round_.node_id)
        if answer.error_code:
            session.reset()
            outcome = reaction("Fetch", answer.error_code)
            if outcome is RequestReaction.NEW_SESSION:
                return True  # not data, but the next request has better chances: no pause
            if outcome is RequestReaction.RAISE:
                raise error_for(answer.error_code)
            raise RetriableError(ErrorCode.of(answer.error_code))
        if not round_.is_catching_up:
            session.answered(answer.session_id)
        names = {
            wanted.topic_id: tp.topic for tp, wanted in round_.wanted.items() if wanted.topic_id
        }
        got_data = False
        brought: dict[str, tuple[int, int]] = {}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                state, lap = round_.states.get(tp, (None, 0))
                if state is None or state.lap != lap or self._positions.get(tp) is not state:
                    continue  # a seek or a rebalance came between
                if partition.error_code:
                    self._on_error(state, partition.error_code)
                else:
                    got_data |= self._on_partition(state, partition, round_.lease, brought)
        if brought:
            self._tally.fetched(brought, asyncio.get_running_loop().time())
        if got_data or self._errors:
            # After the next request has left: whoever wakes now competes with us for Python's lock.
            asyncio.get_running_loop().call_soon(self._on_data)
        return got_data

    def _on_partition(
        self,
        state: AssignedPartition,
        partition: Any,
        lease: Lease | None,
        brought: dict[str, tuple[int, int]],
    ) -> bool:
        end = partition.last_stable_offset if self._is_committed else partition.high_watermark
        if end >= 0:
            state.end_offset = end
        if partition.log_start_offset >= 0:
            state.log_start_offset = partition.log_start_offset
        if partition.preferred_read_replica >= 0:
            state.read_from = partition.preferred_read_replica
            age_s = self._config.metadata_max_age_ms / 1000
            state.read_from_until = asyncio.get_running_loop().time() + age_s
            return True  # nothing came, but the next request goes elsewhere: no pause
        data = partition.records
        if not data:
            return False
        view, fault = memoryview(data), None
        try:
            end, epochs, records = extent(view, state.fetch_offset)
        except CorruptDataError as error:
            # First what lies before it: the next fetch begins with the bad one.
            view, fault = view[: error.position], error
            end, epochs, records = extent(view, state.fetch_offset)
        if end == state.fetch_offset:
            # Brokers send the first batch whole, however large it is: its length must be wrong.
            whole = f"not one whole batch in {len(view)} bytes"
            self._on_corrupt(state, fault or CorruptDataError(whole))
            return False
        state.fetch_offset = end
        state.fetch_epoch = epochs[-1][1] if epochs else None
        aborted = [
            (one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()
        ]
        self._buffer.add(FetchedChunk(state, view, end, epochs, lease, aborted))
        size, count = brought.get(state.tp.topic, (0, 0))
        brought[state.tp.topic] = (size + len(view), count + records)
        return True

    def _on_corrupt(self, state: AssignedPartition, error: CorruptDataError) -> None:
        state.retry_at = asyncio.get_running_loop().time() + 1.0
        if state.position == state.fetch_offset:  # else there is something to be read before it
            where = f"in {state.tp} at offset {state.fetch_offset}; seek past it to go on"
            self._errors[state.tp] = (state.lap, type(error)(f"{error.reason} ({where})"))

    def _on_error(self, state: AssignedPartition, code: int) -> None:
        outcome = reaction("Fetch", code)
        now = asyncio.get_running_loop().time()
        state.retry_at = now + self._config.retry_backoff_ms / 1000
        if outcome is RequestReaction.RESET_POSITION:
            self._out_of_range(state)
        elif outcome is RequestReaction.REFRESH:
            state.read_from = None
            self._cluster.mark_stale()
        elif outcome is RequestReaction.SKIP:
            logger.warning("fetch of %s answered %s", state.tp, ErrorCode.of(code).name)
        elif outcome is RequestReaction.RAISE:
            self._errors[state.tp] = (state.lap, error_for(code, str(state.tp)))

    def _out_of_range(self, state: AssignedPartition) -> None:
        if state.read_from is not None:
            state.read_from = None  # the replica is behind or ahead: ask the leader first
            return
        if state.position != state.fetch_offset:
            return  # what was fetched before is still to be read: the reset comes after it
        policy = self._config.auto_offset_reset
        if policy == "none":
            self._errors[state.tp] = (state.lap, OffsetOutOfRangeError([state.tp]))
            return
        logger.warning(
            "%s: offset %s is outside the log; reset to %s", state.tp, state.fetch_offset, policy
        )
        state.reset(EARLIEST if policy == "earliest" else LATEST)
        self._on_data()  # the poll finds the new position

    def _keep(self, round_: _Round, error: Exception) -> None:
        for tp, (_, lap) in round_.states.items():
            self._errors[tp] = (lap, error)
        self._on_data()

    def _leave_replica(self, node_id: int, round_: _Round) -> None:
        """A follower that cannot be reached is no longer preferred."""
        for state, _ in round_.states.values():
            if state.read_from == node_id:
                state.read_from = None


def fetch_version(connection: BrokerConnection, wanted: dict[TopicPartition, Wanted]) -> int:
    """Topic ids are used only if all are known: a request has ids or names, not both."""
    if all(one.topic_id is not None for one in wanted.values()):
        return connection.version_of(ApiKey.FETCH)
    return connection.version_of(ApiKey.FETCH, up_to=_FIRST_WITH_TOPIC_IDS - 1)


def fetch_request(session: SessionRequest[Wanted]) -> FetchRequest:
    """A consumer's request for the partitions of ``session``; limits are for the caller to set."""
    topics: dict[str, FetchRequest.Topic] = {}
    for tp, one in session.send.items():
        partition = FetchRequest.Partition(
            partition=tp.partition,
            current_leader_epoch=one.leader_epoch,
            fetch_offset=one.offset,
            partition_max_bytes=one.max_bytes,
        )
        topic = topics.get(tp.topic)
        if topic is None:
            topics[tp.topic] = FetchRequest.Topic(
                topic=tp.topic, topic_id=one.topic_id or ZERO_UUID, partitions=[partition]
            )
        else:
            topic.partitions.append(partition)  # type: ignore[attr-defined]  # a list, made above
    forgotten: dict[tuple[str, bytes], list[int]] = {}
    for tp, one in session.forget.items():
        forgotten.setdefault((tp.topic, one.topic_id or ZERO_UUID), []).append(tp.partition)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
            for (name, topic_id), numbers in forgotten.items()
        ],
    )
