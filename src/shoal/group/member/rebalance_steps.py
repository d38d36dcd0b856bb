"""Small things a member does around a rebalance: commit first, run callbacks in order.

Rule: they are driven by ``classic_member.py`` and know nothing of groups; they keep the bookkeeping
of retries and of interrupted or failing callbacks out of the state machine.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from shoal.assign.model import Assignment
from shoal.errors import RebalanceListenerError
from shoal.group.member.coordinator_link import MemberGeneration
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Failed,
    Lost,
    MemberConfig,
    Output,
    Revoked,
)
from shoal.group.member.pacing import Backoff
from shoal.types import TopicPartition

CallbackStep: TypeAlias = Revoked | Assigned | Lost


class Adoption(NamedTuple):
    """A new assignment on its way through the callbacks."""

    assignment: Assignment
    partitions: tuple[TopicPartition, ...]
    generation: MemberGeneration


class _Stage(Enum):
    ASKED = "the shell commits"
    FAILED = "the next try is due after a backoff"
    DUE = "the next poll asks again"
    OVER = "committed, or given up"


class PositionCommit:
    """The commit before a rejoin or a revocation: retried, but never for longer than the rebalance
    timeout.

    Positions are taken in the user's poll and nowhere else, so even a retry waits for it.
    """

    def __init__(self, config: MemberConfig, chance: Callable[[], float]) -> None:
        self.held: tuple[TopicPartition, ...] = ()
        """What is given up once this is over."""
        self._limit_ms = config.max_poll_interval_ms
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._stage = _Stage.OVER
        self._ends_ms = 0
        self._retry_at_ms = 0

    @property
    def is_over(self) -> bool:
        return self._stage is _Stage.OVER

    @property
    def wants_poll(self) -> bool:
        return self._stage in (_Stage.DUE, _Stage.OVER)

    def next_deadline(self) -> int | None:
        if self._stage is _Stage.ASKED:
            return self._ends_ms
        return self._retry_at_ms if self._stage is _Stage.FAILED else None

    def start(self, held: tuple[TopicPartition, ...], now_ms: int, out: list[Output]) -> None:
        self.held = held
        self._ends_ms = now_ms + self._limit_ms
        self._backoff.reset()
        self._ask(out)

    def poll(self, out: list[Output]) -> None:
        if self._stage is _Stage.DUE:
            self._ask(out)

    def _ask(self, out: list[Output]) -> None:
        self._stage = _Stage.ASKED
        out.append(CommitPositions(self.held))

    def answered(self, verdict: CommitVerdict, now_ms: int) -> None:
        if self._stage is not _Stage.ASKED:
            return  # given up before the answer came
        if verdict is CommitVerdict.RETRY and now_ms < self._ends_ms:
            self._stage = _Stage.FAILED
            self._retry_at_ms = min(now_ms + self._backoff.next_ms(), self._ends_ms)
        else:
            self._stage = _Stage.OVER

    def tick(self, now_ms: int) -> None:
        if self._stage in (_Stage.ASKED, _Stage.FAILED) and now_ms >= self._ends_ms:
            self._stage = _Stage.OVER
        elif self._stage is _Stage.FAILED and now_ms >= self._retry_at_ms:
            self._stage = _Stage.DUE


class CallbackRun:
    """The callback the user's thread runs now, and the first error of a sequence of them."""

    def __init__(self) -> None:
        self._step: CallbackStep | None = None
        self._error: Exception | None = None
        self.is_interrupted = False

    @property
    def being_given_up(self) -> tuple[TopicPartition, ...]:
        """What the callback that runs now was told of; nobody needs to be told twice."""
        if isinstance(self._step, Revoked | Lost) and not self.is_interrupted:
            return self._step.partitions
        return ()

    def start(self, step: CallbackStep, out: list[Output]) -> None:
        self._step = step
        self.is_interrupted = False
        out.append(step)

    def interrupt(self) -> None:
        self.is_interrupted = self._step is not None

    def again(self, out: list[Output]) -> None:
        """Run the interrupted callback once more, from the start (KAFKA-5611)."""
        assert self._step is not None
        self.start(self._step, out)

    def drop(self) -> None:
        """What the callback was for has been overtaken: it is not run again, nor waited for."""
        self._step = None
        self.is_interrupted = False

    def done(self, error: Exception | None) -> CallbackStep | None:
        """The step that is finished; ``None`` if the callback itself unsubscribed."""
        step, self._step = self._step, None
        self.is_interrupted = False
        if step is not None and error is not None:
            self.note(error)
        return step

    def note(self, error: Exception) -> None:
        """The first error of a rebalance is the one the user hears of."""
        self._error = self._error or error

    def tell(self, out: list[Output]) -> None:
        """At the end of a sequence: let the user hear of its first error."""
        if self._step is None and self._error is not None:
            failure = RebalanceListenerError(f"a rebalance listener raised {self._error!r}")
            failure.__cause__ = self._error
            self._error = None
            out.append(Failed(failure))
