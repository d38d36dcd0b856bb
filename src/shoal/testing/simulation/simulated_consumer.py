"""A consumer in a simulation: a small user around the real member.

The user polls, processes, commits, and polls again; between any two of these steps something can
go wrong, because each is an event of its own. The engine goes on meanwhile, unless the whole
process is paused.

Rule: this is a shell as ``group/member/classic_member.py`` describes it and nothing more. What
it must not do (read what it does not own, commit what was not processed) is checked by the watcher.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic

from shoal.errors import FencedInstanceIdError
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Failed,
    Lost,
    MemberState,
    Revoked,
    Step,
)
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.simulated_engine import (
    Member,
    MemberEngine,
    SimulatedConsumerSettings,
    SimulatedEngine,
)
from shoal.testing.simulation.simulated_offsets import (
    commit_request,
    fetch_request,
    fetched_offsets,
    first_error,
    stray_request,
    stray_version,
)
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.offset_commit import OffsetCommitResponse
from shoal.wire.apis.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from shoal.testing.simulation.simulator import Simulation

_AUTO_COMMIT_MS: Final = 1_000
_PATIENCE_MS: Final = 5_000
"""For a commit in a callback, and for closing."""
_RECORDS_MAX: Final = 5
_COMMIT_VERSION: Final = 9

Batch = list[tuple[TopicPartition, int, int]]
Callback = Revoked | Assigned | Lost


class SimulatedUser(Generic[Member]):
    """One process with one consumer in it, whatever protocol its member speaks."""

    def __init__(self, world: Simulation, settings: SimulatedConsumerSettings) -> None:
        self._world = world
        self._clock = world.clock
        self._random = world.random
        self.settings = settings
        self.name = settings.name
        self.label = settings.config.group_instance_id or settings.name
        self.engine = self._new_engine()
        self.member = self.engine.member
        self.is_closing = False
        self.positions: dict[TopicPartition, int | None] = {}
        """Of what is owned; ``None`` until the committed offset is known."""
        self.stalled_until_ms = 0
        self._is_fetching_offsets = False
        self._commit_at_ms = 0
        self._must_commit = False
        self._callback: Callback | None = None
        self._is_suspended = False  # the user waits in poll for a callback to end
        self._expects_failure = False
        self._held: tuple[TopicPartition, ...] = ()
        self._was_woken = False
        self._to_do: list[Callable[[], object]] = []
        # Faults that wait for their occasion.
        self.next_callback_ms = 0
        self.next_callback_raises = False
        self.next_callback_is_woken = False
        self.stray: int | None = None
        self.subscribe(settings.topics)
        self._clock.after(self._random.randrange(100), self._poll)

    # --- what depends on the protocol ----------------------------------------------------------

    def _new_engine(self) -> MemberEngine[Member]:
        raise NotImplementedError

    def _may_commit(self) -> bool:
        """Whether the member is where a commit makes sense."""
        raise NotImplementedError

    def _is_out(self) -> bool:
        """Whether what the member has is lost."""
        raise NotImplementedError

    def _rebalances(self) -> bool:
        """Whether it may hear of losses although it is in the group."""
        raise NotImplementedError

    def _stray_request(self, pick: int) -> Any:
        """What a member must not say now; ``None`` if it is nobody yet."""
        raise NotImplementedError

    def _adopted(self) -> None:
        """An assignment was taken over: whoever watches should know."""
        raise NotImplementedError

    def _judge(self, verdict: CommitVerdict, _: Collection[TopicPartition]) -> CommitVerdict:
        """What the answer to a commit of these partitions means to the user."""
        return verdict

    # --- state ---------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self.engine.is_alive

    @property
    def is_busy(self) -> bool:
        """On its way out, or with something else to do than to consume."""
        return self.is_closing or bool(self._to_do) or self._callback is not None

    # --- the user ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        now_ms = self._clock.now_ms
        if self.settings.pattern is not None:
            pattern = re.compile(self.settings.pattern)
            self.engine.perform(self.member.subscribe_pattern(pattern, now_ms))
        else:
            self.engine.perform(self.member.subscribe(topics, now_ms))
        # What is wanted again is not given up, though a commit for that has begun.
        self._held = tuple(tp for tp in self._held if tp.topic not in self.member.topics)

    def unsubscribe(self) -> None:
        self.engine.perform(self.member.unsubscribe(self._clock.now_ms))

    def do(self, action: Callable[[], object]) -> None:
        """Let the user do something, when they come to it."""
        self._to_do.append(action)

    def _is_held_up(self, action: Callable[[Any], None], argument: Any = None) -> bool:
        """The process is paused, or the user busy: later, then."""
        until_ms = max(self.engine.paused_until_ms, self.stalled_until_ms)
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
            self.engine.polled_ms = self._clock.now_ms
            self.engine.perform(self.member.poll(self._clock.now_ms))
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
        batch = self._take_records(frozenset(self.member.held))
        if batch:
            self._clock.after(self._random.randrange(50), self._process, batch)
        else:
            self._poll_again()

    def _commits_in_poll(self) -> bool:
        # A late commit on a broken connection may move an offset back, as in Kafka; in the end
        # everybody commits again and again, so that the last word is right.
        return self.settings.config.auto_commit or self._must_commit or self._world.is_over

    def _poll_again(self) -> None:
        wait_ms = 1 + int(self._random.random() * self.settings.poll_interval_ms)
        self._clock.after(wait_ms * self._world.calm, self._poll)

    def _take_records(self, held: Collection[TopicPartition]) -> Batch:
        batch: Batch = []
        ends = self._world.topics.ends
        for tp, position in self.positions.items():
            end = ends.get(tp, 0)
            if position is not None and position < end and tp not in held:
                # KAFKA-14196: they would be read again, after a commit that does not know of them.
                is_held = tp in self._held
                demand(not is_held, "C2", f"{self.name} reads on in {tp}, which it gives up")
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
        if not offsets or not self.engine.is_connected:
            then(CommitVerdict.RETRY if offsets else CommitVerdict.DONE)
            return
        if isinstance(identity, CommitVerdict):
            then(identity)
            return
        demand(self._may_commit(), "C6", f"{self.name} commits while it is not in the group")

        def on_answer(response: OffsetCommitResponse | None) -> None:
            verdict = CommitVerdict.RETRY
            if response is not None:
                code = first_error(response)
                now_ms = self._clock.now_ms
                verdict, outputs = self.member.commit_answered(code, identity, now_ms)
                self.engine.perform(outputs)
            then(self._judge(verdict, offsets))

        self.engine.ask(commit_request(identity, offsets), _COMMIT_VERSION, on_answer)

    def _positions_committed(self, verdict: CommitVerdict) -> None:
        self.member.positions_committed(verdict, self._clock.now_ms)
        self.engine.schedule_tick()

    def _fetch_offsets(self) -> None:
        wanted = [tp for tp, position in self.positions.items() if position is None]
        if not wanted or not self.engine.is_connected or self._is_fetching_offsets:
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

        self.engine.ask(fetch_request(group_id, wanted, version), version, on_answer)

    def _start_reading(self, response: OffsetFetchResponse) -> None:
        for tp, offset in fetched_offsets(response):
            if self.positions.get(tp, 0) is None:
                end = self._world.topics.ends.get(tp, 0)
                # Nothing committed, or of a log that is gone: from the beginning.
                self.positions[tp] = offset if 0 <= offset <= end else 0

    # --- callbacks -----------------------------------------------------------------------------

    def _take_step(self, step: Step) -> None:
        self._world.note(self.name, type(step).__name__)
        if isinstance(step, CommitPositions):
            self._held = step.held
            self._commit(self._positions_committed)
        elif isinstance(step, Failed):
            self._expects_failure = False
            if isinstance(step.error, FencedInstanceIdError):
                self.close()
        else:
            self._start_callback(step)

    def _start_callback(self, step: Callback) -> None:
        self._callback = step
        self._held = ()
        self._check_callback(step)
        if isinstance(step, Assigned):
            self._own(step)
        takes_ms = min(self.next_callback_ms, self._world.remaining_ms())
        self.next_callback_ms = 0
        if self.next_callback_is_woken:
            self.next_callback_is_woken = False
            self._was_woken = True
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

    def _finish_callback(self, step: Callback) -> None:
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
        self.engine.perform(self.member.callback_done(self._clock.now_ms, error))
        if isinstance(step, Assigned):
            self._adopted()
        if self._callback is None:
            # A sequence that a wakeup cut short goes on with the next poll, and is told then.
            told = self._was_woken or not self._expects_failure
            demand(told, "C11", f"{self.name}: an error in a callback was not told")
            if self._is_suspended:
                self._is_suspended = False
                self._read_on()

    def _own(self, step: Assigned) -> None:
        for tp in step.partitions:
            self.positions[tp] = None
        same = sorted(self.positions) == list(step.owned)
        demand(same, "C11", f"{self.name} has {sorted(self.positions)}, was told {step.owned}")

    def _check_callback(self, step: Callback) -> None:
        owned = set(self.positions)
        given = set(step.partitions)
        in_order = list(step.partitions) == sorted(given)
        demand(in_order, "C11", f"{self.name}: {step} is not sorted")
        was_woken, self._was_woken = self._was_woken, False
        if isinstance(step, Assigned):
            # Run again after a wakeup, it finds them owned already.
            is_new = was_woken or not given & owned
            demand(is_new, "C11", f"{self.name} is given {given & owned}, which it has")
            return
        demand(given <= owned, "C11", f"{self.name} gives up {given - owned}, which it has not")
        is_out = self._is_out()
        if isinstance(step, Lost):
            everything = given == owned
            demand(everything, "C11", f"{self.name} loses {given} of {owned}")
            demand(is_out or self._rebalances(), "C11", f"{self.name} loses while it is a member")
        else:
            demand(not is_out, "C11", f"{self.name} revokes what is lost")

    def _go_astray(self) -> None:
        """Say what a member must not say now; a coordinator must know better."""
        request = self._stray_request(self.stray) if self.stray is not None else None
        if request is not None:
            self.stray = None
            self.engine.ask(request, stray_version(request), lambda _: None)

    # --- coming and going ----------------------------------------------------------------------

    def pause(self, pause_ms: int) -> None:
        """Everything in this process stands still, and then goes on as if nothing had been."""
        until_ms = self._clock.now_ms + pause_ms
        self.engine.paused_until_ms = max(self.engine.paused_until_ms, until_ms)

    def heal(self) -> None:
        self.next_callback_ms = 0
        self.next_callback_raises = self.next_callback_is_woken = False
        self.stray = None

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
            self.engine.perform(self.member.close(self._clock.now_ms))
            self._clock.after(_PATIENCE_MS, self._vanish)

    def _vanish(self, _: None) -> None:
        self.engine.die()


class SimulatedConsumer(SimulatedUser[ClassicMember]):
    """Its member speaks the classic protocol."""

    engine: SimulatedEngine

    def _new_engine(self) -> SimulatedEngine:
        return SimulatedEngine(
            self._world, self.settings, on_step=self._take_step, on_joined=self._go_astray
        )

    def _may_commit(self) -> bool:
        return self.member.state is MemberState.STABLE

    def _is_out(self) -> bool:
        return self.member.generation.is_reset

    def _rebalances(self) -> bool:
        return self.member.state in (MemberState.PREPARING, MemberState.COMPLETING)

    def _adopted(self) -> None:
        self._world.watcher.adopted(self, self._world.consumers)

    def _stray_request(self, pick: int) -> Any:
        config, generation = self.settings.config, self.member.generation
        if generation.is_reset:
            return None
        identity = ConsumerGroupMetadata(
            config.group_id,
            generation.generation_id,
            generation.member_id,
            config.group_instance_id,
        )
        return stray_request(pick, identity)
