"""Commits: automatic, synchronous, asynchronous, and the callbacks they owe.

Rule: a commit names the generation in which it was made, and the member judges the answer. A
synchronous commit is retried until its deadline; an asynchronous one never is, because a retry
could overwrite a newer commit. Callbacks wait in a queue until the user is in a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.engine import in_caller
from shoal.client.listeners import plain
from shoal.client.membership import Membership
from shoal.client.offsets import commit_request, first_error
from shoal.client.positions import Positions
from shoal.client.reactions import RequestReaction, reaction
from shoal.client.tallies import GroupTally
from shoal.errors import (
    CommitFailedError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RebalanceInProgressError,
    RequestTimeoutError,
    RetriableError,
    ShoalError,
    error_for,
)
from shoal.group.member.member_interface import CommitVerdict
from shoal.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

_REBALANCE_PATIENCE_S: Final = 5.0
"""Who polls has heard of a rebalance and joined after a heartbeat interval, 3 s by default."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, Exception | None], Any]


class _Outcome(NamedTuple):
    verdict: CommitVerdict
    code: ErrorCode = ErrorCode.NONE
    detail: str = ""

    def as_error(self) -> ShoalError | None:
        match self.verdict:
            case CommitVerdict.DONE:
                return None
            case CommitVerdict.REBALANCING:
                return RebalanceInProgressError()
            case CommitVerdict.REFUSED | CommitVerdict.STALE:
                code = self.code or ErrorCode.UNKNOWN_MEMBER_ID
                return CommitFailedError(code, self.detail)
            case CommitVerdict.RETRY:
                return RetriableError(self.code or ErrorCode.NETWORK_EXCEPTION, self.detail)
            case CommitVerdict.ERROR:
                return error_for(self.code, self.detail)


class Committer:
    """Commits for one consumer. Lives on the engine's loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: Positions,
        membership: Membership,
        on_change: Callable[[], None],
        tally: GroupTally | None = None,
    ) -> None:
        assert config.group_id is not None
        self._tally = tally or GroupTally()
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._positions = positions
        self._membership = membership
        self._on_change = on_change
        self._owed: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._order = asyncio.Lock()
        self._auto_at = 0.0
        self._auto: asyncio.Task[None] | None = None
        self.restart_auto()

    # --- automatic ---

    @property
    def auto_due_at(self) -> float | None:
        """When the next automatic commit is due, on the loop's clock.

        Not while one is under way, which may take longer than the interval: nobody can do
        anything about that one but wait.
        """
        if self._auto is not None or not self._config.enable_auto_commit:
            return None
        return self._auto_at

    def restart_auto(self) -> None:
        """A rebalance ended, or a commit was sent: a whole interval from now."""
        now = asyncio.get_running_loop().time()
        self._auto_at = now + self._config.auto_commit_interval_ms / 1000

    def auto_commit(self) -> None:
        """Inside poll: commit what earlier polls returned, if it is time; does not wait."""
        now = asyncio.get_running_loop().time()
        if not self._config.enable_auto_commit or now < self._auto_at or self._auto is not None:
            return
        self.restart_auto()
        offsets = self._positions.consumed()
        if offsets:
            self._auto = self._spawn(self._auto_commit(offsets))

    async def _auto_commit(self, offsets: Offsets) -> None:
        try:
            outcome = await self._attempt_all(offsets)
        finally:
            self._auto = None
        if outcome.verdict is CommitVerdict.DONE:
            self._committed(offsets)
        elif outcome.verdict is CommitVerdict.RETRY:
            now = asyncio.get_running_loop().time()
            self._auto_at = now + self._config.retry_backoff_ms / 1000
        elif outcome.verdict is CommitVerdict.REBALANCING:
            # Nothing is lost and nothing is to be done: the next interval commits these too.
            logger.debug("automatic commit waits for the rebalance to end")
        else:
            logger.warning("automatic commit of %s failed: %s", offsets, outcome.as_error())

    # --- by the user ---

    async def commit_sync(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit and wait; callbacks of earlier asynchronous commits run first.

        Raises:
            RequestTimeoutError: not done by ``deadline``, or only the earlier ones were not.
        """
        is_drained = await self.finish_async(deadline)
        await self.run_callbacks()
        if not is_drained:
            raise RequestTimeoutError(
                f"earlier commits were not answered within {deadline.timeout_s:g} s"
            )
        await self._commit_until_done(offsets, deadline)
        await self.run_callbacks()

    async def commit_finally(self, offsets: Offsets, deadline: Deadline) -> None:
        """The automatic commit of a close: behind earlier commits, and whatever callbacks do.

        A topic that was deleted meanwhile is not waited for; a rebalance under way is, a little.
        A cooperative member keeps its partitions through it, and nobody else can have committed
        for them: what it read meanwhile would be read again (Kafka's consumer gives up here).
        """
        await self.finish_async(deadline)
        rebalance_ends = Deadline(deadline.limit(_REBALANCE_PATIENCE_S))
        while True:
            try:
                await self._commit_until_done(offsets, deadline, skips_gone=True)
                return
            except RebalanceInProgressError:
                pause_s = self._config.retry_backoff_ms / 1000
                if pause_s >= rebalance_ends.left_s:
                    raise
                await asyncio.sleep(pause_s)

    async def _commit_until_done(
        self, offsets: Offsets, deadline: Deadline, *, skips_gone: bool = False
    ) -> None:
        if not offsets:
            return
        backoff = RetryBackoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        while True:
            outcome = await self._attempt(offsets, deadline)
            if skips_gone:
                offsets = self._still_there(offsets, outcome)
            error = outcome.as_error() if offsets else None
            if error is None:
                break
            pause_s = backoff.next_s()
            if outcome.verdict is not CommitVerdict.RETRY:
                raise error
            if pause_s >= deadline.left_s:
                raise RequestTimeoutError(
                    f"commit did not succeed within {deadline.timeout_s:g} s: {error}"
                ) from error
            await asyncio.sleep(pause_s)
        self._committed(offsets)

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Send a commit; what becomes of it is told in a later call of the user's."""
        self._spawn(self._commit_async(dict(offsets), callback))

    async def _commit_async(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        error: Exception | None = None
        if offsets:  # nothing to commit is no request, and a success
            try:
                error = (await self._attempt(offsets, self._request_deadline())).as_error()
            except ValueError as misfit:  # what no request can hold
                error = misfit
            except asyncio.CancelledError:  # by ``give_up``
                error = RequestTimeoutError("the consumer was closed before this was answered")
            if error is None:
                self._committed(offsets)
        if callback is not None:
            self._owed.append((callback, (offsets, error)))
        elif error is not None:
            logger.warning("asynchronous commit of %s failed: %s", offsets, error)
        self._on_change()

    async def commit_for_rebalance(self) -> CommitVerdict:
        """Before a rejoin: all positions, one attempt; the member decides about retries."""
        offsets = self._positions.consumed()
        if not offsets:
            return CommitVerdict.DONE
        outcome = await self._attempt_all(offsets)
        if outcome.verdict is CommitVerdict.DONE:
            self._committed(offsets)
        elif outcome.verdict is not CommitVerdict.RETRY:
            logger.warning("commit before a rebalance failed: %s", outcome.as_error())
        return outcome.verdict

    async def finish_async(self, deadline: Deadline) -> bool:
        """Wait for the asynchronous commits under way; whether all were answered in time."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=deadline.left_s)
        return not pending

    async def give_up(self) -> None:
        """Nobody waits for the commits under way any more; their callbacks hear of that."""
        for task in list(self._tasks):  # one by one: callbacks run in the order of their commits
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- callbacks ---

    @property
    def owes_callbacks(self) -> bool:
        return bool(self._owed)

    async def run_callbacks(self) -> None:
        """Run what is owed, in order, in the user's call. Their errors reach the user."""
        while self._owed:
            function, arguments = self._owed.popleft()
            await in_caller(function, *arguments)

    def _committed(self, offsets: Offsets) -> None:
        for interceptor in self._config.interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if on_commit is not None:
                self._owed.append((_guarded, (on_commit, offsets)))

    # --- one attempt ---

    async def _attempt_all(self, offsets: Offsets) -> _Outcome:
        """One attempt; without the topics that are gone, if there are such."""
        outcome = await self._attempt(offsets, self._request_deadline())
        left = self._still_there(offsets, outcome)
        if len(left) == len(offsets):
            return outcome
        if not left:
            return _Outcome(CommitVerdict.DONE)
        return await self._attempt(left, self._request_deadline())

    def _still_there(self, offsets: Offsets, outcome: _Outcome) -> Offsets:
        """Without the partitions that neither the coordinator nor our metadata knows (any more).

        Else a topic that was deleted would hold up the whole group: a member commits before it
        rejoins, and rejoins because the topic is gone.
        """
        if outcome.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return offsets
        self._cluster.mark_stale()
        leader_of = self._cluster.metadata.leader_of
        return {tp: one for tp, one in offsets.items() if leader_of(tp) is not None}

    async def _attempt(self, offsets: Offsets, deadline: Deadline) -> _Outcome:
        member = self._membership.member
        identity: ConsumerGroupMetadata | CommitVerdict
        is_member = member.is_subscribed
        identity = member.commit_as() if is_member else ConsumerGroupMetadata(self._group_id)
        if isinstance(identity, CommitVerdict):
            return _Outcome(identity)
        request = commit_request(identity, offsets)
        loop = asyncio.get_running_loop()
        try:
            # Sent one after the other, answered side by side: a commit must not be overtaken.
            async with self._turn(deadline):
                sent = await self._cluster.send_to_coordinator(self._group_id, request, deadline)
            began = loop.time()
            answer = await self._cluster.answer_of(self._group_id, sent, deadline)
            now = loop.time()
            self._tally.commits.record(1000 * (now - began), now)
        except (ConnectionFailedError, RequestTimeoutError, InvalidFrameError) as error:
            return _Outcome(CommitVerdict.RETRY, ErrorCode.NETWORK_EXCEPTION, str(error))
        except ShoalError as error:
            code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
            return _Outcome(CommitVerdict.ERROR, code, str(error))
        code, detail = first_error(answer)
        outcome = reaction("OffsetCommit", code)
        if outcome is RequestReaction.REDISCOVER:
            self._cluster.forget_coordinator(self._group_id)
        if is_member:
            verdict, orders = member.commit_answered(code, identity, self._membership.now_ms)
            self._membership.perform(orders)
            if verdict is CommitVerdict.STALE:
                verdict = self._again_if_owned(offsets)
            return _Outcome(verdict, code, detail)
        if outcome is RequestReaction.ACCEPT:
            return _Outcome(CommitVerdict.DONE)
        if outcome is RequestReaction.RAISE:
            is_taken = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            verdict = CommitVerdict.REFUSED if is_taken else CommitVerdict.ERROR
            return _Outcome(verdict, code, detail)
        return _Outcome(CommitVerdict.RETRY, code, detail)

    def _again_if_owned(self, offsets: Offsets) -> CommitVerdict:
        """A member that moved on to another epoch may commit by that, but only for what it has.

        By its new epoch it would be believed about partitions that somebody else reads by now.
        """
        is_ours = all(tp in self._positions for tp in offsets)
        return CommitVerdict.RETRY if is_ours else CommitVerdict.REFUSED

    @asynccontextmanager
    async def _turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """When earlier commits are sent; they may have more time than this one."""
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._order.acquire()
        except TimeoutError:
            raise RequestTimeoutError("earlier commits could not be sent in time") from None
        try:
            yield
        finally:
            self._order.release()

    def _request_deadline(self) -> Deadline:
        return Deadline(self._config.request_timeout_ms / 1000)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _guarded(function: Callable[..., Any], *arguments: Any) -> None:
    """An interceptor: what it raises is logged and never passed on."""
    try:
        plain(function(*arguments))
    except Exception:
        logger.exception("an interceptor raised")
