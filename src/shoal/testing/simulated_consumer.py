"""A consumer in a simulation: the real member, and a small shell and user around it.

The user polls, processes, commits, and polls again; between any two of these steps something can
go wrong, because each is an event of its own. The engine (heartbeats, answers, timeouts) goes on
meanwhile, unless the whole process is paused.

Rule: this is a shell as ``group/member.py`` describes it and nothing more. What it must not do
(read what it does not own, commit what was not processed) is checked by the watcher.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shoal.assign.loading import load
from shoal.errors import ErrorCode, FencedInstanceIdError
from shoal.group.member import Member
from shoal.group.membership import (
    Assigned,
    ClusterTopics,
    CommitPositions,
    CommitVerdict,
    Disconnect,
    Failed,
    FindCoordinator,
    Lost,
    MemberConfig,
    Output,
    RefreshMetadata,
    Revoked,
    Send,
)
from shoal.testing.invariants import demand
from shoal.testing.network import Connection
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from shoal.testing.simulator import Simulation

_METADATA_AGE_MS: Final = 5_000
_AUTO_COMMIT_MS: Final = 1_000
_PATIENCE_MS: Final = 5_000
"""For a commit in a callback, and for closing."""
_LOOKUPS_PER_SECOND_MAX: Final = 30
_RECORDS_MAX: Final = 5

Batch = list[tuple[TopicPartition, int, int]]
OnAnswer = Callable[[Any], None]
"""Called with the response, or with ``None`` if the connection was lost."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What one consumer is like."""

    name: str
    config: MemberConfig
    assignors: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    join_version: int
    offset_fetch_version: int
    poll_interval_ms: int


class BreakableAssignor:
    """A built-in assignor which raises when the simulation says so."""

    def __init__(self, inner: Any, is_broken: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_broken = is_broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def assign(self, metadata: Any, subscriptions: Any) -> Any:
        if self._is_broken():
            raise RuntimeError("the assignor was told to fail")
        return self._inner.assign(metadata, subscriptions)


class SimulatedConsumer:
    """One process with one consumer in it."""

    def __init__(self, world: Simulation, settings: ConsumerSettings) -> None:
        self._world = world
        self._clock = world.clock
        self._random: Random = world.random
        self.settings = settings
        self.name = settings.name
        self.label = settings.config.group_instance_id or settings.name
        self.member = Member(
            settings.config,
            assignors=[
                BreakableAssignor(each, world.take_assignor_error)
                for each in load(settings.assignors)
            ],
            chance=world.random.random,
        )
        self.is_alive = True
        self.is_closing = False
        self.positions: dict[TopicPartition, int | None] = {}
        """Of what is owned; ``None`` until the committed offset is known."""
        self.claimed_generation = -1
        self._connection: Connection | None = None
        self._pending: dict[int, OnAnswer] = {}
        self._last_ticket = 0
        self._wake_ms: int | None = None
        self._paused_until_ms = 0
        self.stalled_until_ms = 0
        self._is_fetching_offsets = False
        self._commit_at_ms = 0
        self._must_commit = False
        self._polled_ms = 0
        self._callback: Revoked | Assigned | Lost | None = None
        self._is_suspended = False  # the user waits in poll for a callback to end
        self._expects_failure = False
        self._to_do: list[Callable[[], None]] = []
        self._lookups: deque[int] = deque(maxlen=_LOOKUPS_PER_SECOND_MAX)
        # Faults that wait for their occasion.
        self.next_callback_ms = 0
        self.next_callback_raises = False
        self.next_callback_is_woken = False
        self.subscribe(settings.topics)
        self._clock.after(self._random.randrange(100), self._poll)
        self._clock.after(self._random.randrange(_METADATA_AGE_MS), self._refresh)

    # --- the engine ----------------------------------------------------------------------------

    def _perform(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            kind = type(output)
            if kind is Send:
                self._send(output)  # type: ignore[arg-type]
            elif kind is FindCoordinator:
                self._find()
            elif kind is Disconnect:
                self._disconnect()
            elif kind is RefreshMetadata:
                self._clock.after(self._world.network.delay(), self._give_metadata)
            else:
                self._take_step(output)
        self._schedule_tick()

    def _send(self, order: Send) -> None:
        version = 4
        if type(order.request) is JoinGroupRequest:
            version = self.settings.join_version
            self.claimed_generation = self.member.generation.generation_id
        assert self._connection is not None, "the member knows a coordinator we do not"
        self._connection.ask((order.ticket, version, self.name, order.request))

    def _ask(self, request: Any, version: int, on_answer: OnAnswer) -> None:
        """A request of the shell's own: negative tickets."""
        assert self._connection is not None
        self._last_ticket -= 1
        self._pending[self._last_ticket] = on_answer
        self._connection.ask((self._last_ticket, version, self.name, request))

    def answered(self, connection: Connection, message: Any) -> None:
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._answered_again, (connection, message))
            return
        if connection is not self._connection or not self.is_alive:
            return
        ticket, response = message
        self._world.note(self.name, type(response).__name__)
        if ticket > 0:
            self._perform(self.member.receive(ticket, response, self._clock.now_ms))
        else:
            on_answer = self._pending.pop(ticket, None)
            if on_answer is not None:
                on_answer(response)
                self._schedule_tick()

    def _answered_again(self, message: tuple[Connection, Any]) -> None:
        self.answered(*message)

    def disconnected(self, connection: Connection) -> None:
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._disconnected_again, connection)
        elif connection is self._connection and self.is_alive:
            self._disconnect()
            self._perform(self.member.connection_lost(self._clock.now_ms))

    def _disconnected_again(self, connection: Connection) -> None:
        self.disconnected(connection)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._pending:
            pending, self._pending = self._pending, {}
            self._clock.after(0, self._fail, list(pending.values()))

    def _fail(self, pending: list[OnAnswer]) -> None:
        """Nobody will answer these: their connection is gone."""
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._fail, pending)
        elif self.is_alive:
            for on_answer in pending:
                on_answer(None)
            self._schedule_tick()

    def _find(self) -> None:
        now_ms = self._clock.now_ms
        lookups = self._lookups
        is_full = len(lookups) == _LOOKUPS_PER_SECOND_MAX
        demand(not is_full or lookups[0] <= now_ms - 1_000, "C12", f"{self.name} hammers")
        lookups.append(now_ms)
        delay_ms = self._world.network.delay() + self._world.network.delay()
        self._clock.after(delay_ms, self._found)

    def _found(self, _: None) -> None:
        if not self.is_alive:
            return
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._found)
            return
        now_ms = self._clock.now_ms
        node = self._world.cluster.find()
        if node is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._perform(self.member.coordinator_not_found(code, now_ms))
            return
        self._connection = self._world.network.connect(self, node)
        node.connections.append(self._connection)
        self._perform(self.member.coordinator_found(now_ms))

    def _refresh(self, _: None) -> None:
        """Metadata has an age, and is asked for again."""
        if self.is_alive:
            self._give_metadata(None)
            self._clock.after(_METADATA_AGE_MS, self._refresh)

    def _give_metadata(self, _: None) -> None:
        if not self.is_alive:
            return
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._give_metadata)
            return
        asked = self.member.wanted_topics
        counts = self._world.topics.counts
        known = {t: n for t, n in counts.items() if asked is None or t in asked}
        answer = ClusterTopics(known, asked=asked)
        self._perform(self.member.update_metadata(answer, self._clock.now_ms))

    def _schedule_tick(self) -> None:
        deadline = self.member.next_deadline()
        if deadline is not None and (self._wake_ms is None or deadline < self._wake_ms):
            self._wake_ms = deadline
            self._clock.at(deadline, self._tick, deadline)

    def _tick(self, wake_ms: int) -> None:
        if wake_ms != self._wake_ms or not self.is_alive:
            return
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._tick, wake_ms)
            return
        self._wake_ms = None
        now_ms = self._clock.now_ms
        deadline = self.member.next_deadline()
        if deadline is not None and deadline <= now_ms:
            self._perform(self.member.tick(now_ms))
            deadline = self.member.next_deadline()
            is_ahead = deadline is None or deadline > now_ms
            demand(is_ahead, "C8", f"{self.name} ticks without getting anywhere")
            self._check_poll_interval(now_ms)
        self._schedule_tick()

    def _check_poll_interval(self, now_ms: int) -> None:
        member = self.member
        if member.state.value in ("completing", "stable"):
            limit_ms = self.settings.config.max_poll_interval_ms
            silent_ms = now_ms - self._polled_ms
            demand(silent_ms < limit_ms, "C6", f"{self.name} has not polled for {silent_ms} ms")

    # --- the user ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        now_ms = self._clock.now_ms
        if self.settings.pattern is not None:
            pattern = re.compile(self.settings.pattern)
            self._perform(self.member.subscribe_pattern(pattern, now_ms))
        else:
            self._perform(self.member.subscribe(topics, now_ms))

    def unsubscribe(self) -> None:
        self._perform(self.member.unsubscribe(self._clock.now_ms))

    def do(self, action: Callable[[], None]) -> None:
        """Let the user do something, when they come to it."""
        self._to_do.append(action)

    def _is_held_up(self, action: Callable[[Any], None], argument: Any = None) -> bool:
        """The process is paused, or the user busy: later, then."""
        until_ms = max(self._paused_until_ms, self.stalled_until_ms)
        if self._clock.now_ms < until_ms:
            self._clock.at(until_ms, action, argument)
            return True
        return not self.is_alive

    def _poll(self, _: None) -> None:
        if self._is_held_up(self._poll) or self.is_closing:
            return
        if self._to_do:
            self._to_do.pop(0)()
        if self._callback is None and not self.is_closing:
            self._polled_ms = self._clock.now_ms
            self._perform(self.member.poll(self._polled_ms))
        if self._callback is None:
            self._read_on()
        else:
            self._is_suspended = True

    def _read_on(self) -> None:
        """The callbacks of this poll have run: return records, if there are any."""
        if self.is_closing or not self.is_alive:
            return
        self._fetch_offsets()
        if self._clock.now_ms >= self._commit_at_ms and self._commits_in_poll():
            self._commit_at_ms = self._clock.now_ms + _AUTO_COMMIT_MS
            self._commit(self._committed)
        batch = [] if self.member.holds_records else self._take_records()
        if batch:
            self._clock.after(self._random.randrange(50), self._process, batch)
        else:
            self._poll_again()

    def _commits_in_poll(self) -> bool:
        return self.settings.config.auto_commit or self._must_commit

    def _poll_again(self) -> None:
        wait_ms = 1 + int(self._random.random() * self.settings.poll_interval_ms)
        self._clock.after(wait_ms * self._world.calm, self._poll)

    def _take_records(self) -> Batch:
        batch: Batch = []
        ends = self._world.topics.ends
        for tp, position in self.positions.items():
            end = ends.get(tp, 0)
            if position is not None and position < end:
                stop = end
                if not self._world.is_over:
                    stop = min(end, position + 1 + int(self._random.random() * _RECORDS_MAX))
                batch.append((tp, position, stop))
                self.positions[tp] = stop
        return batch

    def _process(self, batch: Batch) -> None:
        if self._is_held_up(self._process, batch):
            return
        for tp, start, stop in batch:
            self._world.watcher.was_processed(tp, start, stop)
        if self.settings.config.auto_commit:
            self._poll_again()
        else:
            self._clock.after(self._random.randrange(20), self._commit_processed)

    def _commit_processed(self, _: None) -> None:
        if not self._is_held_up(self._commit_processed):
            self._commit(self._committed)
            self._poll_again()

    # --- offsets -------------------------------------------------------------------------------

    def _committed(self, verdict: CommitVerdict) -> None:
        """One that failed is followed by another one, at the next occasion."""
        self._must_commit = verdict is not CommitVerdict.DONE

    def _commit(self, then: Callable[[CommitVerdict], None]) -> None:
        offsets = {tp: at for tp, at in self.positions.items() if at is not None}
        identity = self.member.commit_as()
        if not offsets or self._connection is None:
            then(CommitVerdict.RETRY if offsets else CommitVerdict.DONE)
            return
        if isinstance(identity, CommitVerdict):
            then(identity)
            return

        def on_answer(response: OffsetCommitResponse | None) -> None:
            verdict = CommitVerdict.RETRY
            if response is not None:
                code = first_error(response)
                now_ms = self._clock.now_ms
                verdict, outputs = self.member.commit_answered(code, identity, now_ms)
                self._perform(outputs)
            then(verdict)

        self._ask(commit_request(identity, offsets), 9, on_answer)

    def _positions_committed(self, verdict: CommitVerdict) -> None:
        self.member.positions_committed(verdict, self._clock.now_ms)
        self._schedule_tick()

    def _fetch_offsets(self) -> None:
        wanted = [tp for tp, position in self.positions.items() if position is None]
        if not wanted or self._connection is None or self._is_fetching_offsets:
            return
        self._is_fetching_offsets = True
        version = self.settings.offset_fetch_version
        group_id = self.settings.config.group_id
        generation = self.member.group_metadata.generation_id

        def on_answer(response: OffsetFetchResponse | None) -> None:
            self._is_fetching_offsets = False
            # Of an older assignment: what it says may be out of date.
            if response is not None and self.member.group_metadata.generation_id == generation:
                self._start_reading(response)

        self._ask(fetch_request(group_id, wanted, version), version, on_answer)

    def _start_reading(self, response: OffsetFetchResponse) -> None:
        for topics in (*(group.topics for group in response.groups), response.topics):
            for topic in topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    if each.error_code == ErrorCode.NONE and self.positions.get(tp, 0) is None:
                        offset = each.committed_offset
                        end = self._world.topics.ends.get(tp, 0)
                        # Nothing committed, or of a log that is gone: from the beginning.
                        self.positions[tp] = offset if 0 <= offset <= end else 0

    # --- callbacks -----------------------------------------------------------------------------

    def _take_step(self, step: Output) -> None:
        self._world.note(self.name, type(step).__name__)
        if isinstance(step, CommitPositions):
            self._commit(self._positions_committed)
        elif isinstance(step, Failed):
            self._expects_failure = False
            if isinstance(step.error, FencedInstanceIdError):
                self.close()
        elif isinstance(step, Revoked | Assigned | Lost):
            self._start_callback(step)

    def _start_callback(self, step: Revoked | Assigned | Lost) -> None:
        self._callback = step
        self._check_callback(step)
        if isinstance(step, Assigned):
            self._own(step)
        takes_ms = min(self.next_callback_ms, self._world.remaining_ms())
        self.next_callback_ms = 0
        if self.next_callback_is_woken:
            self.next_callback_is_woken = False
            self.member.callback_interrupted()
            self._callback = None
            return
        if isinstance(step, Revoked) and not self.settings.config.auto_commit and step.partitions:
            # A careful user commits what is taken away.
            self._commit(lambda _: self._finish_callback(step))
            takes_ms = max(takes_ms, _PATIENCE_MS)
        if takes_ms:
            self._clock.after(takes_ms, self._finish_callback, step)
        else:
            self._finish_callback(step)

    def _finish_callback(self, step: Revoked | Assigned | Lost) -> None:
        if step is not self._callback or self._is_held_up(self._finish_callback, step):
            return
        self._callback = None
        if not isinstance(step, Assigned):
            for tp in step.partitions:
                self.positions.pop(tp, None)
        error: Exception | None = None
        if self.next_callback_raises:
            self.next_callback_raises = False
            self._expects_failure = True
            error = RuntimeError("the listener was told to fail")
        self._perform(self.member.callback_done(self._clock.now_ms, error))
        if isinstance(step, Assigned):
            self._world.watcher.adopted(self, self._world.consumers)
        if self._callback is None:
            told = not self._expects_failure
            demand(told, "C11", f"{self.name}: an error in a callback was not told")
            if self._is_suspended:
                self._is_suspended = False
                self._read_on()

    def _own(self, step: Assigned) -> None:
        for tp in step.partitions:
            self.positions[tp] = None
        same = sorted(self.positions) == list(step.owned)
        demand(same, "C11", f"{self.name} has {sorted(self.positions)}, was told {step.owned}")

    def _check_callback(self, step: Revoked | Assigned | Lost) -> None:
        owned = set(self.positions)
        given = set(step.partitions)
        in_order = list(step.partitions) == sorted(given)
        demand(in_order, "C11", f"{self.name}: {step} is not sorted")
        if isinstance(step, Assigned):
            # Run again after a wakeup, it finds them owned already.
            return
        demand(given <= owned, "C11", f"{self.name} gives up {given - owned}, which it has not")
        is_out = self.member.generation.is_reset
        if isinstance(step, Lost):
            everything = given == owned
            demand(everything, "C11", f"{self.name} loses {given} of {owned}")
            rebalances = self.member.state.value in ("preparing", "completing")
            demand(is_out or rebalances, "C11", f"{self.name} loses while it is a member")
        else:
            demand(not is_out, "C11", f"{self.name} revokes what is lost")

    # --- coming and going ----------------------------------------------------------------------

    def pause(self, pause_ms: int) -> None:
        """Everything in this process stands still, and then goes on as if nothing had been."""
        until_ms = self._clock.now_ms + pause_ms
        self._paused_until_ms = max(self._paused_until_ms, until_ms)

    def _is_paused(self) -> bool:
        return self._clock.now_ms < self._paused_until_ms

    def heal(self) -> None:
        self.next_callback_ms = 0
        self.next_callback_raises = self.next_callback_is_woken = False

    def cut(self, *, survivors: int, late_ms: int, notice_ms: int) -> None:
        if self._connection is not None:
            self._connection.cut(survivors=survivors, late_ms=late_ms, notice_ms=notice_ms)

    def close(self) -> None:
        """Leave in order: commit, give up, say goodbye."""
        if self.is_closing or not self.is_alive:
            return
        self.is_closing = True
        if self.settings.config.auto_commit:
            self._commit(self._close)
            self._clock.after(_PATIENCE_MS, self._close)
        else:
            self._close(None)

    def _close(self, _: Any) -> None:
        if self.is_alive and not self.member.is_closed:
            self._perform(self.member.close(self._clock.now_ms))
            self._clock.after(_PATIENCE_MS, self._vanish)

    def _vanish(self, _: None) -> None:
        self.die()

    def die(self) -> None:
        """The process is gone; its connection is closed by the system."""
        self.is_alive = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def first_error(response: OffsetCommitResponse) -> ErrorCode:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code != ErrorCode.NONE:
                return ErrorCode.of(each.error_code)
    return ErrorCode.NONE


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def commit_request(
    identity: ConsumerGroupMetadata, offsets: dict[TopicPartition, int]
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=[
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp],
                        committed_metadata="",
                    )
                    for tp in partitions
                ],
            )
            for topic, partitions in _by_topic(offsets).items()
        ],
    )


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], version: int
) -> OffsetFetchRequest:
    grouped = {
        topic: [tp.partition for tp in each] for topic, each in _by_topic(partitions).items()
    }
    if version < 8:
        topics = [
            OffsetFetchRequest.Topic(name=topic, partition_indexes=numbers)
            for topic, numbers in grouped.items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
    asked = OffsetFetchRequest.Group(
        group_id=group_id,
        topics=[
            OffsetFetchRequest.Topics(name=topic, partition_indexes=numbers)
            for topic, numbers in grouped.items()
        ],
    )
    return OffsetFetchRequest(groups=[asked], require_stable=True)
