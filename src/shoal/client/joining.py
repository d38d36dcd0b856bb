"""The shell around ``shoal.group.member``: sends what it orders, runs what it steps through.

Rule: nothing about the group is decided here. Orders are carried out in the background and their
outcome is told to the member; steps are given, one by one, to the session that owns the positions
and the user's listener.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from shoal.assign.loading import load
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.links import Lane
from shoal.client.metadata import Metadata
from shoal.client.timing import Deadline
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    ShoalError,
    WakeupError,
)
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
    MemberState,
    Output,
    RefreshMetadata,
    Revoked,
    Send,
    Step,
)
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest

logger = logging.getLogger(__name__)

# The member watches the time of its requests itself; this only ends what it has forgotten.
_FORGOTTEN_S = 24 * 3600.0
_COMMIT_PATIENCE_S = 0.05
# Having given partitions up, a cooperative member joins again in the same poll: others wait for it.
_ROUNDS_PER_POLL = 3
_LEAVING_PATIENCE_S = 1.0

Callback = Callable[[Revoked | Assigned | Lost], Awaitable[None]]
CommitAll = Callable[[], Awaitable[CommitVerdict]]


def member_of(config: ConsumerConfig) -> Member:
    """The state machine for these settings; ``group_id`` must be set."""
    assert config.group_id is not None
    return Member(
        MemberConfig(
            group_id=config.group_id,
            group_instance_id=config.group_instance_id,
            client_rack=config.client_rack,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            auto_commit=config.enable_auto_commit,
            exclude_internal_topics=config.exclude_internal_topics,
        ),
        assignors=load(config.assignors),
        chance=random.random,
    )


class Membership:
    """Drives one member. Lives on the engine's loop.

    ``callback`` runs a step's callback in the user's call and changes the assignment;
    ``commit_all`` commits all positions; ``on_change`` is called when a poll may have work.
    """

    def __init__(
        self,
        cluster: Cluster,
        member: Member,
        group_id: str,
        on_change: Callable[[], None],
    ) -> None:
        self.member = member
        self._cluster = cluster
        self._group_id = group_id
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._nameless: set[asyncio.Task[None]] = set()
        self._link = 0  # counts links to coordinators: a failure of an old one is no news

    @property
    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- steps, in the user's call ---

    async def poll(self, callback: Callback, commit_all: CommitAll) -> None:
        """Let the member do what only a poll may do.

        Raises:
            ShoalError: what the group, or a listener, has to say to the user.
        """
        for _ in range(_ROUNDS_PER_POLL):
            await self.run(self.perform(self.member.poll(self.now_ms)), callback, commit_all)
            if not self.member.wants_poll:
                return

    async def run(self, step: Step | None, callback: Callback, commit_all: CommitAll) -> None:
        has_committed = False
        while step is not None:
            match step:
                case Failed(error):
                    raise error
                case CommitPositions():
                    task = self._spawn(self._commit(commit_all))
                    if has_committed:
                        return
                    # A moment for the answer: a member that is long in user code between polls
                    # would else keep the others waiting for one more of its polls.
                    await asyncio.wait({task}, timeout=_COMMIT_PATIENCE_S)
                    if not task.done():
                        return
                    has_committed = True
                    step = self.perform(self.member.poll(self.now_ms))
                case Revoked() | Assigned() | Lost():
                    step = await self._call_back(step, callback)

    async def _call_back(self, step: Revoked | Assigned | Lost, callback: Callback) -> Step | None:
        failure: Exception | None = None
        logger.info(
            "group %r: %s %d partitions %s",
            self._group_id,
            type(step).__name__.lower(),
            len(step.partitions),
            ", ".join(map(str, step.partitions[:10])),
        )
        try:
            await callback(step)
        except (WakeupError, asyncio.CancelledError):
            # Cancelled: the user left in the middle of it, by Ctrl-C or the end of a task.
            self.member.callback_interrupted()
            raise
        except Exception as error:  # noqa: BLE001 - the user's: the member tells it in time
            failure = error
        return self.perform(self.member.callback_done(self.now_ms, failure))

    async def _commit(self, commit_all: CommitAll) -> None:
        verdict = await commit_all()
        self.member.positions_committed(verdict, self.now_ms)
        self._settled()

    # --- orders, in the background ---

    def perform(self, outputs: list[Output]) -> Step | None:
        """Carry out the orders; the step, if there is one (at most one, and the last)."""
        step: Step | None = None
        for output in outputs:
            match output:
                case Send(ticket, request):
                    task = self._spawn(self._send(ticket, request, self._link))
                    if _is_first_join(request):
                        self._nameless.add(task)
                        task.add_done_callback(self._nameless.discard)
                case Disconnect():
                    self._link += 1
                    self._cluster.forget_coordinator(self._group_id, disconnect=True)
                case FindCoordinator():
                    self._link += 1
                    self._spawn(self._find_coordinator())
                case RefreshMetadata(topics):
                    self._spawn(self._refresh(topics))
                case _:
                    assert step is None
                    step = output
        self._settled()
        return step

    def update_metadata(self, metadata: Metadata, asked: frozenset[str] | None) -> None:
        """Every answer about topics is for the member too."""
        self._give(self.member.update_metadata(cluster_topics(metadata, asked), self.now_ms))

    def _give(self, outputs: list[Output]) -> None:
        step = self.perform(outputs)
        assert step is None, "steps come only out of the user's calls"

    def _settled(self) -> None:
        """After every input: set the clock, and wake a poll which has work now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.member.next_deadline()
        if due_ms is not None:
            # Rounded up: a tick a fraction too early would only be asked for again.
            self._timer = self._loop.call_at((due_ms + 1) / 1000, self._tick)
        if self.member.wants_poll:
            self._on_change()

    def _tick(self) -> None:
        self._timer = None
        self._give(self.member.tick(self.now_ms))

    async def _send(self, ticket: int, request: Any, link: int) -> None:
        try:
            node_id = await self._cluster.coordinator(self._group_id, Deadline(_FORGOTTEN_S))
            answer = await self._cluster.ask(
                request,
                node_id=node_id,
                # A broker answers one connection in order: who leaves while its JoinGroup is held
                # would wait for the very rebalance that waits for it.
                lane=Lane.MAIN if isinstance(request, LeaveGroupRequest) else Lane.GROUP,
                deadline=Deadline(None),
                timeout_s=_FORGOTTEN_S,
            )
        except (ConnectionFailedError, RequestTimeoutError, InvalidFrameError) as error:
            self._lost(link, error)
            return
        except BrokerError as error:
            # Refused before it was sent, by the authentication say: that is for the user to hear.
            if self._lost(link, error):
                self._give(self.member.coordinator_not_found(error.code, self.now_ms))
            return
        self._give(self.member.receive(ticket, answer, self.now_ms))
        if isinstance(request, JoinGroupRequest) and self.member.is_subscribed:
            # A leader must notice when a topic of anybody's grows, also one it does not read.
            self._cluster.watch(self.member.wanted_topics)

    def _lost(self, link: int, error: ShoalError) -> bool:
        """No way to the coordinator any more; False if that is old news."""
        if link != self._link:
            return False
        logger.info("lost the coordinator of group %r: %s", self._group_id, error)
        self._link += 1
        self._cluster.forget_coordinator(self._group_id)
        self._give(self.member.connection_lost(self.now_ms))
        return True

    async def _find_coordinator(self) -> None:
        link = self._link
        self._cluster.forget_coordinator(self._group_id)
        deadline = Deadline(self._cluster.config.request_timeout_ms / 1000)
        try:
            await self._cluster.find_coordinator(self._group_id, deadline)
        except BrokerError as error:
            self._not_found(link, error.code)
        except (ConnectionFailedError, RequestTimeoutError, InvalidFrameError):
            self._not_found(link, ErrorCode.NETWORK_EXCEPTION)
        else:
            if link == self._link:
                self._give(self.member.coordinator_found(self.now_ms))

    def _not_found(self, link: int, code: ErrorCode) -> None:
        if link == self._link:
            self._give(self.member.coordinator_not_found(code, self.now_ms))

    async def _refresh(self, topics: frozenset[str] | None) -> None:
        try:
            await self._cluster.refresh(topics)
        except ShoalError as error:
            logger.warning("metadata for the subscription could not be had: %s", error)
            self._cluster.mark_stale()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler(
                {"message": "a task of the group membership failed", "exception": task.exception()}
            )

    async def before_leaving(self, deadline: Deadline) -> None:
        """Have our member id, and a coordinator to say it to; neither is waited for long.

        Who goes without leaves a stranger behind whom the group waits for until its session
        ends. The id comes with the answer to the first JoinGroup, at once (KIP-394) except from
        old brokers. And a coordinator that has just moved may have been found by a commit while
        the member pauses between its own lookups.
        """
        if self._nameless:
            await asyncio.wait(self._nameless, timeout=deadline.limit(_LEAVING_PATIENCE_S))
        member = self.member
        is_static = member.group_metadata.group_instance_id is not None
        if member.state is not MemberState.STABLE or member.knows_coordinator or is_static:
            return
        limit = Deadline(deadline.limit(_LEAVING_PATIENCE_S))
        with suppress(ShoalError):
            await self._cluster.coordinator(self._group_id, limit)
            self._link += 1
            self._give(member.coordinator_found(self.now_ms))

    async def left(self, deadline: Deadline) -> None:
        """Wait until LeaveGroup is answered, or until ``deadline``."""
        while not self.member.has_left and not deadline.has_passed and self._tasks:
            await asyncio.wait(
                self._tasks, timeout=deadline.left_s, return_when=asyncio.FIRST_COMPLETED
            )

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_first_join(request: Any) -> bool:
    return (
        isinstance(request, JoinGroupRequest)
        and not request.member_id
        and request.group_instance_id is None
    )


def cluster_topics(metadata: Metadata, asked: frozenset[str] | None) -> ClusterTopics:
    """Our metadata in the member's words."""
    names = metadata.topics if asked is None else asked & metadata.topics.keys()
    counts = {name: len(metadata.topics[name].partitions) for name in names}
    racks = {}
    if any(node.rack for node in metadata.nodes.values()):
        racks = {
            name: [
                [node.rack if (node := metadata.nodes.get(id_)) else None for id_ in one.replicas]
                for one in metadata.topics[name].partitions
            ]
            for name in names
        }
    internal = frozenset(name for name in names if metadata.topics[name].is_internal)
    return ClusterTopics(counts, racks, asked, internal)
