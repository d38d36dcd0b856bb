"""A real client in a simulation: its engine, its codecs, its fetching and its commits.

Around a whole ``ConsumerCore``, which speaks bytes over connections that break, is only a user,
who polls, checks what comes, commits, and polls again. See ``client_simulator.py``.

Rule: the user believes nothing. What a poll returns must be the right bytes of partitions that
are owned, from a committed offset on, without a gap, and within the time the call was given.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.client.config import ConsumerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.errors import (
    CommitFailedError,
    CorruptDataError,
    FencedInstanceIdError,
    InvalidAssignmentError,
    RebalanceInProgressError,
    RebalanceListenerError,
    RequestTimeoutError,
    RetriableError,
    ShoalError,
    WakeupError,
)
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.member_interface import MemberState
from shoal.testing.simulation.client_process import ClientProcess
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.simulated_engine import (
    ASSIGNOR_FAILURE,
    SimulatedConsumerSettings,
    breakable,
)
from shoal.testing.simulation.simulated_offsets import fetched_offsets
from shoal.testing.simulation.simulated_wire import FIRST_PORT, HOST, record_value
from shoal.types import Record, TopicPartition
from shoal.wire.apis.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from shoal.testing.simulation.client_simulator import ClientSimulation

_POLL_S: Final = 0.3
_LATE_MS: Final = 100
"""C5: how much longer than its timeout a call may take."""
_CLOSE_S: Final = 4.0
_COMMIT_S: Final = 3.0
_COMMIT_AGAIN_MS: Final = 1_000
_RECORDS_MAX: Final = 20
WATCH_EVERY_MS: Final = 250

# A commit that failed for one of these is made again with the next one.
_COMMIT_ERRORS: Final = (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RequestTimeoutError,
    RetriableError,
)


class SimulatedClient:
    """One process with one real consumer in it, and its user."""

    def __init__(self, world: ClientSimulation, settings: SimulatedConsumerSettings) -> None:
        self._world = world
        self._clock = world.clock
        self._random = world.random
        self.settings = settings
        self.name = settings.name
        self.label = settings.config.group_instance_id or settings.name
        self.engine = ClientProcess(world, settings.name)
        self.is_closing = False
        self.owned: set[TopicPartition] = set()
        """By what the listener was told."""
        self._next: dict[TopicPartition, int] = {}
        """Where the next record must be; partitions just assigned are not in it."""
        self._told: dict[TopicPartition, set[int]] = {}
        """The committed offsets the brokers answered since the assignment."""
        self._to_do: list[Callable[[], Any]] = []
        self._is_subscribed = False
        self._is_polling = False
        self._polled_ms = self._clock.now_ms
        self._callback_ms = 0
        self._has_adopted = False
        self._was_woken = False
        self._must_commit = False
        self._commit_at_ms = 0
        self._commits_async = self._random.random() < 0.5
        # Faults that wait for their occasion.
        self.stalled_until_ms = 0
        self.next_callback_ms = 0
        self.next_callback_raises = False
        self.next_callback_is_woken = False
        self.stray: int | None = None  # real clients do not go astray
        self._starts_in_ms = self._random.randrange(100)
        self._session: ConsumerCore | None = None
        self._life = world.loop.create_task(self._live(), context=self.engine.context)
        self._life.add_done_callback(self._ended)

    @property
    def session(self) -> ConsumerCore:
        assert self._session is not None
        return self._session

    @property
    def member(self) -> ClassicMember:
        assert self.engine.member is not None
        return self.engine.member

    @property
    def is_alive(self) -> bool:
        return self.engine.is_alive

    @property
    def is_known(self) -> bool:
        return self.is_alive and self._session is not None

    @property
    def is_busy(self) -> bool:
        return self.is_closing or bool(self._to_do) or self._session is None

    def do(self, action: Callable[[], Any]) -> None:
        """Let the user do something, when they come to it."""
        self._to_do.append(action)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._world.fail(task.exception() or AssertionError())

    def _demand(self, holds: bool, invariant: str, text: str) -> None:
        """As ``demand``, but also where the client catches what listeners raise."""
        if not holds:
            violation = Violation(invariant, f"{self.name} {text}")
            self._world.fail(violation)
            raise violation

    # --- the user --------------------------------------------------------------------------------

    def _config(self) -> ConsumerConfig:
        config = self.settings.config
        return ConsumerConfig(
            bootstrap_servers=f"{HOST}:{FIRST_PORT},{HOST}:{FIRST_PORT + 1}",
            client_id=self.name,
            group_id=config.group_id,
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            enable_auto_commit=config.auto_commit,
            auto_commit_interval_ms=_COMMIT_AGAIN_MS,
            auto_offset_reset="earliest",
            metadata_max_age_ms=5_000,
            assignors=breakable(self.settings.assignors, self._world.take_assignor_error),
        )

    async def _live(self) -> None:
        await asyncio.sleep(self._starts_in_ms / 1000)
        session = self._session = ConsumerCore(self._config())
        assert session._group is not None
        member = session._group.member
        assert isinstance(member, ClassicMember)
        self.engine.member = member
        await self.subscribe(self.settings.topics)
        while self.is_alive and not self.is_closing:
            if self._to_do:
                done = self._to_do.pop(0)()
                if inspect.isawaitable(done):
                    await done
                continue
            if self._is_subscribed:
                await self._poll()
            await self._rest()

    async def _rest(self) -> None:
        wait_ms = 1 + int(self._random.random() * self.settings.poll_interval_ms)
        await asyncio.sleep(wait_ms * self._world.calm / 1000)
        await self._stall()

    async def _stall(self) -> None:
        await asyncio.sleep(max(self.stalled_until_ms - self._clock.now_ms, 0) / 1000)

    async def _poll(self) -> None:
        records: list[Record[Any, Any]] = []
        try:
            calm_s = self.session.calm_s
            if not calm_s:
                await self._prepare()
            records = self.session.reader.take(_RECORDS_MAX)
            if calm_s and not records:
                await self._prepare()
                records = self.session.reader.take(_RECORDS_MAX)
        except FencedInstanceIdError:
            await self.close()
            return
        except CorruptDataError as error:
            await self._read_again(error)
        except Exception as error:
            if not _was_asked_for(error):
                raise
        if self._has_adopted and self.member.state is MemberState.STABLE:
            self._has_adopted = False
            others = [each for each in self._world.started if each.is_known]
            self._world.watcher.adopted(self, others)
        self._check(records)
        if records:
            await asyncio.sleep(self._random.randrange(50) / 1000)
            await self._stall()
            self._process(records)
            await asyncio.sleep(self._random.randrange(20) / 1000)
            await self._stall()
        await self._commit(bool(records))

    async def _read_again(self, error: CorruptDataError) -> None:
        """C9: what is said about a bad batch is enough to go on; here, to ask for it again."""
        self._note("got a bad batch")
        named = re.search(r"in (\S+)-(\d+) at offset (\d+)", str(error))
        self._demand(named is not None, "C9", f"is not told which batch is bad: {error}")
        assert named is not None
        tp, offset = TopicPartition(named[1], int(named[2])), int(named[3])
        self._demand(tp in self.owned, "C9", f"is told of a bad batch in {tp}, not its own")
        expected = self._next.get(tp, offset)
        self._demand(offset == expected, "C9", f"is told {tp} is bad at {offset}, not {expected}")
        await self.session.seek(tp, offset, None)

    async def _prepare(self) -> None:
        """C5: a poll takes no longer than it was given, beside what callbacks take."""
        began_ms, paused_ms, self._callback_ms = self._clock.now_ms, self.engine.paused_ms, 0
        self._is_polling = True
        try:
            await self.session.prepare(_POLL_S)
        finally:
            self._is_polling = False
            self._polled_ms = self._clock.now_ms
        paused_ms = self.engine.paused_ms - paused_ms
        taken_ms = self._clock.now_ms - began_ms - paused_ms - self._callback_ms
        limit_ms = int(_POLL_S * 1000) + _LATE_MS
        self._demand(taken_ms <= limit_ms, "C5", f"polled for {taken_ms} ms")

    def _check(self, records: Sequence[Record[Any, Any]]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            at = f"{tp} at {record.offset}"
            self._demand(tp in self.owned, "C3", f"was given {at}, which it does not own")
            right = record_value(tp, record.offset)
            self._demand(record.value == right, "C1", f"read {record.value!r} in {at}")
            if tp.topic not in self._world.topics.recreated:
                expected = self._next.get(tp)
                if expected is None:
                    start = self._told.get(tp, set())
                    self._demand(record.offset in start, "C4", f"starts {at}, not at {start}")
                else:
                    self._demand(record.offset == expected, "C1", f"read {at}, not {expected}")
            self._next[tp] = record.offset + 1

    def _process(self, records: Sequence[Record[Any, Any]]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            self._world.watcher.was_processed(tp, record.offset, record.offset + 1)

    def offsets_told(self, response: OffsetFetchResponse) -> None:
        for tp, offset in fetched_offsets(response):
            # Without a committed offset it starts at the beginning.
            self._told.setdefault(tp, set()).add(max(offset, 0))

    async def _commit(self, has_records: bool) -> None:
        if self.settings.config.auto_commit:
            return
        # In the end everybody commits again and again, so that the last word is right.
        is_due = self._world.is_over and self._clock.now_ms >= self._commit_at_ms
        if not (has_records or self._must_commit or is_due):
            return
        self._commit_at_ms = self._clock.now_ms + _COMMIT_AGAIN_MS
        self._must_commit = False
        if self._commits_async:
            await self.session.commit_async(None, self._committed)
        else:
            await self._commit_sync()

    def _committed(self, _: Any, error: Exception | None) -> None:
        if error is not None:
            self._demand(isinstance(error, _COMMIT_ERRORS), "C7", f"was told {error!r}")
            self._must_commit = True

    async def _commit_sync(self) -> None:
        began_ms, paused_ms = self._clock.now_ms, self.engine.paused_ms
        try:
            await self.session.commit_sync(None, _COMMIT_S)
        except _COMMIT_ERRORS:
            self._must_commit = True
        paused_ms = self.engine.paused_ms - paused_ms
        taken_ms = self._clock.now_ms - began_ms - paused_ms
        limit_ms = int(_COMMIT_S * 1000) + _LATE_MS
        self._demand(taken_ms <= limit_ms, "C5", f"committed for {taken_ms} ms")

    # --- the listener ----------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        given = set(partitions)
        self._in_order(partitions)
        # Run again after a wakeup, it finds them owned already.
        was_woken, self._was_woken = self._was_woken, False
        is_new = was_woken or not given & self.owned
        self._demand(is_new, "C11", f"is given {given & self.owned} twice")
        self._note("assigned")
        self._has_adopted = True
        # Whatever the callback does, they are owned.
        self.owned |= given
        for tp in given:
            self._next.pop(tp, None)
        await self._user_code()

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._in_order(partitions)
        gone = set(partitions)
        self._demand(gone <= self.owned, "C11", f"gives up {gone - self.owned}, not its own")
        self._note("revoked")
        self._was_woken = False
        if not self.settings.config.auto_commit and partitions:
            began_ms = self._clock.now_ms
            await self._commit_sync()  # a careful user commits what is taken away
            self._callback_ms += self._clock.now_ms - began_ms
        await self._user_code(gone)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._in_order(partitions)
        gone = set(partitions)
        self._demand(gone == self.owned, "C11", f"loses {gone} of {self.owned}")
        self._note("lost")
        self._was_woken = False
        await self._user_code(gone)

    def _in_order(self, partitions: Sequence[TopicPartition]) -> None:
        self._demand(list(partitions) == sorted(partitions), "C11", "is told in no order")

    def _give_up(self, gone: Iterable[TopicPartition]) -> None:
        for tp in gone:
            self.owned.discard(tp)
            self._next.pop(tp, None)
            self._told.pop(tp, None)

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)

    async def _user_code(self, gone: Collection[TopicPartition] = ()) -> None:
        """What takes its time, and may fail; unless it is woken, ``gone`` is gone in any case."""
        takes_ms = min(self.next_callback_ms, self._world.remaining_ms())
        self.next_callback_ms = 0
        began_ms = self._clock.now_ms
        if takes_ms:
            await asyncio.sleep(takes_ms / 1000)
        await self._stall()
        self._callback_ms += self._clock.now_ms - began_ms
        if self.next_callback_is_woken:
            self.next_callback_is_woken = False
            self._was_woken = True
            raise WakeupError("wakeup() was called")
        self._give_up(gone)
        if self.next_callback_raises:
            self.next_callback_raises = False
            raise _ToldToFail

    # --- coming and going ------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str]) -> None:
        pattern = self.settings.pattern
        wanted = list(topics) if pattern is None else re.compile(pattern)
        await self.session.subscribe(wanted, self)
        self._is_subscribed = True

    async def unsubscribe(self) -> None:
        try:
            await self.session.unsubscribe()
        except WakeupError:
            # Nothing has happened: some say it again, others go on polling or subscribe anew.
            if self._random.random() < 0.5:
                await self.unsubscribe()
            return
        except RebalanceListenerError as error:
            if not _was_asked_for(error):
                raise
        self._is_subscribed = False

    def check_poll_interval(self) -> None:
        """C6: who does not poll is not a member for longer than it said."""
        if self._is_polling or not self.is_alive or self.is_closing or self._session is None:
            return
        if self.engine.is_paused or self.member.state not in (
            MemberState.COMPLETING,
            MemberState.STABLE,
        ):
            return
        silent_ms = self._clock.now_ms - self._polled_ms
        limit_ms = self.settings.config.max_poll_interval_ms + WATCH_EVERY_MS
        self._demand(silent_ms <= limit_ms, "C6", f"has not polled for {silent_ms} ms")

    def pause(self, pause_ms: int) -> None:
        self.engine.pause(pause_ms)

    def heal(self) -> None:
        self.next_callback_ms = 0
        self.next_callback_raises = self.next_callback_is_woken = False

    async def close(self) -> None:
        """Leave in order; C5: within the time this was given."""
        if self.is_closing:
            return
        self.is_closing = True
        began_ms, paused_ms, self._callback_ms = self._clock.now_ms, self.engine.paused_ms, 0
        try:
            await self.session.close(_CLOSE_S)
        except ShoalError as error:
            self._note(f"closed with {type(error).__name__}")
        paused_ms = self.engine.paused_ms - paused_ms
        taken_ms = self._clock.now_ms - began_ms - paused_ms - self._callback_ms
        limit_ms = int(_CLOSE_S * 1000) + _LATE_MS
        self._demand(taken_ms <= limit_ms, "C5", f"closed for {taken_ms} ms")
        self.engine.die()


class _ToldToFail(Exception):  # noqa: N818 (not an error of ours)
    """What a listener raises when the simulation says so."""


def _was_asked_for(error: Exception) -> bool:
    """Whether a fault of the simulation came out where it must: at the user's call."""
    if isinstance(error, RebalanceListenerError):
        return isinstance(error.__cause__, _ToldToFail)
    if isinstance(error, InvalidAssignmentError):
        return str(error.__cause__) == ASSIGNOR_FAILURE
    return isinstance(error, WakeupError)
