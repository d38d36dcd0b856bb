"""The shell around ``shoal.group.member``: sends what it orders, runs what it steps through.

Rule: nothing about the group is decided here. Orders are carried out in the background and their
outcome is told to the member; steps are given, one by one, to the session that owns the positions
and the user's listener.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from shoal.assign.loading import load
from shoal.client.broker_links import Lane
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline
from shoal.client.metadata import Metadata
from shoal.client.tallies import GroupTally
from shoal.errors import (
    BrokerError,
    ConfigError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    ShoalError,
    WakeupError,
)
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.consumer_member import ConsumerMember
from shoal.group.member.member_interface import (
    Assigned,
    ClusterTopics,
    CommitPositions,
    CommitVerdict,
    Disconnect,
    Failed,
    FindCoordinator,
    GroupMember,
    Lost,
    MemberConfig,
    Output,
    RefreshMetadata,
    ResolveTopics,
    Revoked,
    Send,
    Step,
    Warn,
)
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest

logger = logging.getLogger(__name__)

# The member watches the time of its requests itself; this only ends what it has forgotten.
_FORGOTTEN_S = 24 * 3600.0
_COMMIT_PATIENCE_S = 0.05
# Having given partitions up, a cooperative member joins again in the same poll: others wait for it.
_ROUNDS_PER_POLL = 3
_LEAVING_PATIENCE_S = 1.0

# What a coordinator answers to who joins by the new protocol where that cannot be: it is off, or
# the group is a classic one that may not be converted. Whoever said "auto" joins it as it is then.
_NOT_HERE: Final = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})

Callback = Callable[[Revoked | Assigned | Lost], Awaitable[None]]
CommitAll = Callable[[], Awaitable[CommitVerdict]]


@dataclass(frozen=True, slots=True)
class BrokerPattern:
    """A pattern that the broker matches, in RE2's syntax."""

    regex: str


Wish = Collection[str] | re.Pattern[str] | BrokerPattern


def wish_of(topics: Collection[str] | re.Pattern[str] | str | None, pattern: str | None) -> Wish:
    """What the arguments of ``subscribe`` ask for; empty: nothing any more."""
    if topics is None and pattern is None:
        raise TypeError(
            "subscribe(): topics must be a list of topics, not None; or one name, or a compiled "
            "pattern; or give pattern= for the broker"
        )
    if topics is not None and pattern is not None:
        raise TypeError("subscribe(): give topics or a pattern, not both")
    if pattern is not None:
        if not pattern:
            raise ValueError("subscribe(): pattern must not be empty")
        return BrokerPattern(pattern)
    assert topics is not None
    return [topics] if isinstance(topics, str) else topics


def member_of(config: ConsumerConfig) -> GroupMember:
    """The state machine these settings begin with; ``group_id`` must be set."""
    if config.group_protocol == "classic":
        return classic_member_of(config)
    # Kafka's clients name themselves in the same way.
    member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
    return ConsumerMember(_member_config(config), member_id=member_id, chance=random.random)


def classic_member_of(config: ConsumerConfig) -> ClassicMember:
    try:
        assignors = load(config.assignors)
    except TypeError as error:
        raise TypeError(f"assignors: {error}") from error
    except ValueError as error:
        raise ConfigError(f"assignors: {error}") from error
    return ClassicMember(_member_config(config), assignors=assignors, chance=random.random)


def _member_config(config: ConsumerConfig) -> MemberConfig:
    assert config.group_id is not None
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        client_rack=config.client_rack,
        group_remote_assignor=config.group_remote_assignor,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        auto_commit=config.enable_auto_commit,
        exclude_internal_topics=config.exclude_internal_topics,
    )


class Membership:
    """Drives one member. Lives on the engine's loop.

    ``callback`` runs a step's callback in the user's call and changes the assignment;
    ``commit_all`` commits all positions; ``on_change`` is called when a poll may have work.
    ``fallback`` makes the member that takes over where the first one's protocol cannot be spoken.
    """

    def __init__(
        self,
        cluster: Cluster,
        member: GroupMember,
        group_id: str,
        on_change: Callable[[], None],
        fallback: Callable[[], GroupMember] | None = None,
        tally: GroupTally | None = None,
    ) -> None:
        self._tally = tally or GroupTally()
        self.member = member
        self._fallback = fallback
        self._wish: Wish = ()
        self._refusal: ConfigError | None = None
        self._cluster = cluster
        self._group_id = group_id
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._nameless: set[asyncio.Task[None]] = set()
        self._watched: frozenset[str] | None = frozenset()
        self._link = 0  # counts links to coordinators: a failure of an old one is no news

    @property
    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- what to read ---

    def subscribe(self, wish: Wish) -> None:
        """Want this instead of whatever was wanted before.

        Raises:
            ConfigError: a pattern for the broker, in a classic group.
        """
        outputs = self._outputs_of(wish)
        self._wish = wish
        self._refusal = None
        self.perform(outputs)

    def _outputs_of(self, wish: Wish) -> list[Output]:
        if isinstance(wish, BrokerPattern):
            return self.member.subscribe_regex(wish.regex, self.now_ms)
        if isinstance(wish, re.Pattern):
            return self.member.subscribe_pattern(wish, self.now_ms)
        return self.member.subscribe(wish, self.now_ms)

    def _fall_back(self) -> None:
        """Another member takes over, which speaks the protocol that is spoken there."""
        assert self._fallback is not None
        assert not self.member.owned
        was_subscribed = self.member.is_subscribed
        logger.info("group %r is joined by the classic protocol", self._group_id)
        self.member, self._fallback = self._fallback(), None
        self._link += 1
        if not was_subscribed:
            return
        try:
            outputs = self._outputs_of(self._wish)
        except ConfigError as error:
            self._refusal = error
            self._on_change()
            return
        metadata = self._cluster.metadata
        outputs += self.member.update_metadata(
            cluster_topics(metadata, frozenset(metadata.topics)), self.now_ms
        )
        self._give(outputs)

    # --- steps, in the user's call ---

    async def poll(self, callback: Callback, commit_all: CommitAll) -> None:
        """Let the member do what only a poll may do.

        Raises:
            ShoalError: what the group, or a listener, has to say to the user.
        """
        if self._refusal is not None:
            raise self._refusal
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
        if isinstance(step, Assigned):
            self._tally.rebalance_ends(self._loop.time())
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
                case ResolveTopics(ids):
                    self._spawn(self._resolve(ids))
                case Warn(text):
                    logger.warning("%s", text)
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
        """After every input: set the clock, watch topics, and wake a poll which has work now."""
        if self.member.is_subscribed:
            # Not only its own: a leader must notice when a topic of anybody's grows, and what a
            # broker's pattern matches is known when it is assigned.
            wanted = self.member.wanted_topics
            if wanted != self._watched:
                self._watched = wanted
                self._cluster.watch(wanted)
        else:
            self._watched = frozenset()
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
        member = self.member
        try:
            node_id = await self._cluster.coordinator(self._group_id, Deadline(_FORGOTTEN_S))
            began = self._loop.time()
            self._tally.sends(_api_of(request), began, is_join=_is_join(request))
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
        except ValueError as error:
            # Its version of the request has no place for what we say: a pattern, before Kafka 4.0.
            if self._lost(link, error):
                self._give(
                    self.member.coordinator_not_found(ErrorCode.UNSUPPORTED_VERSION, self.now_ms)
                )
            return
        self._note_answer(request, answer, began)
        if member is not self.member:
            return  # it was asked in the other protocol
        if self._is_not_here(request, answer):
            self._fall_back()
        else:
            self._give(member.receive(ticket, answer, self.now_ms))

    def _note_answer(self, request: Any, answer: Any, began: float) -> None:
        now = self._loop.time()
        is_error = bool(answer.error_code)
        self._tally.answered(_api_of(request), 1000 * (now - began), is_error=is_error, now=now)
        if getattr(answer, "assignment", None) is not None and _is_heartbeat(request):
            self._tally.rebalance_begins(now)  # the new protocol brings it with a heartbeat

    def _is_not_here(self, request: Any, answer: Any) -> bool:
        return (
            self._fallback is not None
            and isinstance(request, ConsumerGroupHeartbeatRequest)
            and request.member_epoch == 0
            and ErrorCode.of(answer.error_code) in _NOT_HERE
        )

    def _lost(self, link: int, error: Exception) -> bool:
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
            is_spoken = self._fallback is None or await self._cluster.coordinator_has_new_groups(
                self._group_id, deadline
            )
        except BrokerError as error:
            self._not_found(link, error.code)
        except (ConnectionFailedError, RequestTimeoutError, InvalidFrameError):
            self._not_found(link, ErrorCode.NETWORK_EXCEPTION)
        else:
            if link != self._link:
                return
            member = self.member
            if is_spoken or member.is_in_group or member.owned:
                self._give(member.coordinator_found(self.now_ms))
            else:
                self._fall_back()

    def _not_found(self, link: int, code: ErrorCode) -> None:
        if link == self._link:
            self._give(self.member.coordinator_not_found(code, self.now_ms))

    async def _refresh(self, topics: frozenset[str] | None) -> None:
        try:
            await self._cluster.refresh(topics)
        except ShoalError as error:
            logger.warning("metadata for the subscription could not be had: %s", error)
            self._cluster.mark_stale()

    async def _resolve(self, ids: frozenset[bytes]) -> None:
        try:
            await self._cluster.resolve(ids)
        except ShoalError as error:
            logger.warning("the names of assigned topics could not be had: %s", error)

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
        self._tally.rebalance_is_off()
        if self._nameless:
            await asyncio.wait(self._nameless, timeout=deadline.limit(_LEAVING_PATIENCE_S))
        member = self.member
        is_static = member.group_metadata.group_instance_id is not None
        if not member.is_in_group or member.knows_coordinator or is_static:
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


def _api_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def _is_heartbeat(request: Any) -> bool:
    return isinstance(request, ConsumerGroupHeartbeatRequest)


def _is_join(request: Any) -> bool:
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch == 0
    return isinstance(request, JoinGroupRequest)


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
    ids = {
        name: topic_id for name in names if (topic_id := metadata.topics[name].topic_id) is not None
    }
    return ClusterTopics(counts, racks, asked, internal, ids)
