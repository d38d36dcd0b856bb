"""The cluster as a client sees it: metadata kept fresh, and a way to ask any of its brokers.

Rule: this module knows *where* a request goes, never what it means. It keeps three things: the
metadata, the links, and which broker coordinates which group.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from shoal.client.config import ConnectionConfig
from shoal.client.connection import Versioned
from shoal.client.links import Address, Lane, Link, Links
from shoal.client.metadata import Metadata, merged
from shoal.client.reactions import Reaction, reaction
from shoal.client.timing import Backoff, Deadline
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    RequestTimeoutError,
    RetriableError,
    ShoalError,
    error_for,
)
from shoal.types import Node, TopicPartition
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.metadata import MetadataRequest, MetadataResponse
from shoal.wire.schema import Message

logger = logging.getLogger(__name__)

T = TypeVar("T")
RETRIED: Final = (RetriableError, ConnectionFailedError, RequestTimeoutError)


class Cluster:
    """Shared by everything one client does. Lives on the engine's loop."""

    def __init__(
        self, config: ConnectionConfig, links: Links, *, auto_create_topics: bool = False
    ) -> None:
        self.config = config
        self.metadata = Metadata()
        self.on_update: list[Callable[[Metadata, frozenset[str] | None], None]] = []
        self._links = links
        self._bootstrap = config.addresses()
        self._auto_create_topics = auto_create_topics
        self._interest: set[str] | None = set()
        self._asked_about: set[str] = set()
        self.in_use: Callable[[], set[str]] | None = None
        """If set, what says which topics are used: those are watched, and no others for long."""
        self._coordinators: dict[str, Node] = {}
        self._stale = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._refresh_count = 0

    # --- asking ---

    async def ask(
        self,
        request: Message | Versioned,
        *,
        node_id: int | None = None,
        lane: Lane = Lane.MAIN,
        deadline: Deadline | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """One request to one broker (any, if ``node_id`` is ``None``), no retry.

        Raises:
            ConnectionFailedError: the broker cannot be reached, or went away meanwhile.
            RequestTimeoutError: ``deadline`` passed, or there was no answer in time.
        """
        limit = deadline or Deadline(self.config.request_timeout_ms / 1000)
        link: Link | None = None
        try:
            async with asyncio.timeout(None if limit.timeout_s is None else limit.left_s):
                link = self._link(node_id, lane)
                connection = await link.connection()
                return await connection.send(request, timeout_s=timeout_s)
        except (ConnectionFailedError, RequestTimeoutError):
            if node_id is not None:
                # Whoever is gone no longer leads: the next attempt must not go there again.
                self.mark_stale()
            raise
        except TimeoutError:
            where = "a broker" if node_id is None else f"broker {node_id}"
            within = f"within {limit.timeout_s:g} s"
            if link is not None and link.failure is not None:
                raise RequestTimeoutError(
                    f"{where} could not be reached {within}: {link.failure}"
                ) from None
            raise RequestTimeoutError(f"{where} did not answer {within}") from None

    def link(self, node_id: int, lane: Lane) -> Link:
        """The way to a known node.

        Raises:
            ConnectionFailedError: the node is not in the metadata (any more).
        """
        return self._link(node_id, lane)

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Repeat ``attempt`` while it fails with something that may pass, until ``deadline``.

        Raises:
            RequestTimeoutError: time is up; the last failure is the cause.
        """
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        while True:
            try:
                return await attempt()
            except RETRIED as error:
                pause_s = backoff.next_s()
                if pause_s >= deadline.left_s:
                    if deadline.timeout_s is None or _names_its_cause(error):
                        raise
                    raise RequestTimeoutError(
                        f"gave up after {deadline.timeout_s:g} s; last failure: {error}"
                    ) from error
                await asyncio.sleep(pause_s)

    def _link(self, node_id: int | None, lane: Lane) -> Link:
        if node_id is None:
            return self._any_link()
        node = self.metadata.nodes.get(node_id)
        if node is None:
            node = next((n for n in self._coordinators.values() if n.id == node_id), None)
        if node is None:
            self.mark_stale()
            raise ConnectionFailedError(f"broker {node_id} is not in the cluster's metadata")
        return self._links.to((node.host, node.port), lane)

    def _any_link(self) -> Link:
        known: list[Address] = [(n.host, n.port) for n in self.metadata.nodes.values()]
        busy = self._links.least_busy(known)
        if busy is not None:
            return busy
        # Every known broker failed lately: start again from the bootstrap addresses (KIP-899).
        for addresses in (known, self._bootstrap):
            rested = [a for a in addresses if not self._links.to(a).is_resting]
            if rested:
                return self._links.to(random.choice(rested))
        return self._links.to(random.choice(known + self._bootstrap))

    # --- metadata ---

    def watch(self, topics: Iterable[str] | None) -> None:
        """Which topics later refreshes ask about; ``None``: all."""
        self._interest = None if topics is None else set(topics)
        self._keep_fresh()

    def watches(self, topic: str) -> bool:
        """Whether refreshes keep what is known of ``topic`` true."""
        return self._interest is None or topic in self._interest

    def watch_also(self, topic: str) -> None:
        if self._interest is not None:
            self._interest.add(topic)
        self._keep_fresh()

    def mark_stale(self) -> None:
        """Something contradicted the metadata: refresh soon, in the background."""
        self._stale.set()
        self._keep_fresh()

    async def refresh(
        self, topics: Collection[str] | None, deadline: Deadline | None = None
    ) -> Metadata:
        """Ask now about ``topics`` (``None``: all), once. See ``ask`` for what it raises."""
        asked = None if topics is None else frozenset(topics)
        request = Versioned(3, lambda version: self._metadata_request(version, asked))
        answer: MetadataResponse = await self.ask(request, deadline=deadline)
        self.metadata = merged(self.metadata, answer, asked)
        self._refresh_count += 1
        for listener in list(self.on_update):
            listener(self.metadata, asked)
        if self._awaits_a_topic():
            self.mark_stale()
        return self.metadata

    def _awaits_a_topic(self) -> bool:
        """Whether a topic we watch is not there yet: asked for until it is, as Java's client does.

        Nobody tells when it appears, and metadata alone is looked at every five minutes.
        """
        errors = self.metadata.errors
        return self._interest is not None and any(
            name in errors and reaction("Metadata", errors[name]) is not Reaction.RAISE
            for name in self._interest
        )

    def _metadata_request(self, version: int, asked: frozenset[str] | None) -> MetadataRequest:
        request = MetadataRequest(
            topics=None if asked is None else [_wanted(name) for name in sorted(asked)]
        )
        if version >= 4:
            request.allow_auto_topic_creation = self._auto_create_topics
        return request

    async def topics(
        self, names: Collection[str], deadline: Deadline, *, anew: bool = False
    ) -> Metadata:
        """Metadata in which every one of ``names`` is described, asking until it is.

        ``anew``: asks also about what is known, which may be out of date unless it is watched.

        Raises:
            BrokerError: a broker refuses to speak about one of them.
            RequestTimeoutError: one of them is unknown until ``deadline``.
        """

        async def attempt() -> Metadata:
            for failure in (await self.undescribed(names, deadline, anew=anew)).values():
                raise failure
            return self.metadata

        return await self.retrying(attempt, deadline)

    async def undescribed(
        self, names: Collection[str], deadline: Deadline, *, anew: bool = False
    ) -> dict[str, BrokerError]:
        """Ask once about those of ``names`` that are unknown; what is wrong with the rest."""
        # If what is known of them turns out to be wrong, the next refresh must be about them too,
        # though nobody watches them.
        self._asked_about.update(names)
        missing = [name for name in names if anew or name not in self.metadata.topics]
        if not missing:
            return {}
        found = await self.refresh(missing, deadline)
        failures: dict[str, BrokerError] = {}
        for name in missing:
            code = found.errors.get(name)
            if code is not None and reaction("Metadata", code) is Reaction.RAISE:
                failures[name] = error_for(code, f"topic {name!r}")
            elif name not in found.topics:
                unknown = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                failures[name] = RetriableError(unknown, f"topic {name!r}")
        return failures

    def leader_id(self, tp: TopicPartition) -> int:
        """Who leads ``tp``.

        Raises:
            RetriableError: nobody we know of; a refresh is on its way.
        """
        found = self.metadata.leader_of(tp)
        if found is None or found.leader_id is None:
            self.mark_stale()
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if found is None
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
            raise RetriableError(code, str(tp))
        return found.leader_id

    def _keep_fresh(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Refresh when something is stale and when metadata is old, for as long as we live."""
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        # Who asks for metadata of no age at all still does not want to ask all the time.
        age_s = max(self.config.metadata_max_age_ms, self.config.retry_backoff_ms) / 1000
        while True:
            try:
                async with asyncio.timeout(age_s):
                    await self._stale.wait()
                count = self._refresh_count
                # Several things go stale at once when a broker dies: one refresh serves all.
                await asyncio.sleep(backoff.next_s())
                if self._refresh_count != count and not self._awaits_a_topic():
                    self._stale.clear()
                    continue
            except TimeoutError:
                pass
            self._stale.clear()
            self._links.close_idle()
            self._let_go()
            interest = None if self._interest is None else self._interest | self._asked_about
            self._asked_about.clear()
            try:
                await self.refresh(interest)
                if not self._awaits_a_topic():
                    backoff.reset()
            except ShoalError as error:
                logger.warning("metadata refresh failed: %s", error)
                self._stale.set()

    def _let_go(self) -> None:
        """Forget topics nobody uses: a refresh would make those anew that were deleted."""
        if self.in_use is not None:
            self._interest = self.in_use()
            topics = {n: t for n, t in self.metadata.topics.items() if n in self._interest}
            self.metadata = replace(self.metadata, topics=topics)

    # --- coordinators ---

    async def coordinator(self, group_id: str, deadline: Deadline) -> int:
        """The id of the broker that coordinates ``group_id``; asked once, then remembered."""
        known = self._coordinators.get(group_id)
        if known is not None:
            return known.id
        return await self.retrying(lambda: self.find_coordinator(group_id, deadline), deadline)

    async def find_coordinator(self, group_id: str, deadline: Deadline) -> int:
        """Ask for the coordinator, one attempt.

        Raises:
            BrokerError: the answer was an error; ``RetriableError`` if it may pass.
        """
        request = Versioned(10, lambda version: _find_coordinator(version, group_id))
        answer = await self.ask(request, deadline=deadline)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            if reaction("FindCoordinator", found.error_code) is Reaction.RAISE:
                raise error_for(found.error_code, f"coordinator of group {group_id!r}")
            raise RetriableError(
                ErrorCode.of(found.error_code), f"coordinator of group {group_id!r}"
            )
        node = Node(found.node_id, found.host, found.port)
        self._coordinators[group_id] = node
        return node.id

    def forget_coordinator(self, group_id: str, *, disconnect: bool = False) -> None:
        node = self._coordinators.pop(group_id, None)
        if disconnect and node is not None:
            self._links.to((node.host, node.port), Lane.GROUP).disconnect()

    async def ask_coordinator(
        self, group_id: str, request: Message | Versioned, deadline: Deadline
    ) -> Any:
        """One request to the coordinator, looked up if unknown; a dead one is forgotten.

        Not in the group's lane: a commit must not wait behind a JoinGroup the broker holds.
        """
        answer = await self.send_to_coordinator(group_id, request, deadline)
        return await self.answer_of(group_id, answer, deadline)

    async def send_to_coordinator(
        self, group_id: str, request: Message | Versioned, deadline: Deadline
    ) -> asyncio.Future[Any]:
        """The first half of ``ask_coordinator``: returns when the request is on its way."""
        node_id = await self.coordinator(group_id, deadline)
        try:
            async with asyncio.timeout(None if deadline.timeout_s is None else deadline.left_s):
                connection = await self._link(node_id, Lane.MAIN).connection()
                return connection.send(request)
        except ConnectionFailedError:
            self.forget_coordinator(group_id)
            raise
        except TimeoutError:
            self.forget_coordinator(group_id)
            raise RequestTimeoutError(f"broker {node_id} cannot be reached") from None

    async def answer_of(
        self, group_id: str, answer: asyncio.Future[Any], deadline: Deadline
    ) -> Any:
        """The second half of ``ask_coordinator``."""
        try:
            async with asyncio.timeout(None if deadline.timeout_s is None else deadline.left_s):
                return await answer
        except (ConnectionFailedError, RequestTimeoutError):
            self.forget_coordinator(group_id)
            raise
        except TimeoutError:
            raise RequestTimeoutError(
                f"the coordinator did not answer within {deadline.timeout_s:g} s"
            ) from None

    def check(self, api: str, code: int, detail: str = "", *, group_id: str | None = None) -> None:
        """Raise what ``code`` means for ``api``, after the side effects of its reaction."""
        outcome = reaction(api, code)
        if outcome is Reaction.ACCEPT:
            return
        if outcome is Reaction.REFRESH:
            self.mark_stale()
        elif outcome is Reaction.REDISCOVER and group_id is not None:
            self.forget_coordinator(group_id)
        if outcome in (Reaction.REFRESH, Reaction.REDISCOVER, Reaction.RETRY):
            raise RetriableError(ErrorCode.of(code), detail)
        raise error_for(code, detail)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        self._links.close()


def _names_its_cause(error: Exception) -> bool:
    """An attempt that itself repeated others has said what was the last to fail."""
    return isinstance(error, RequestTimeoutError) and error.__cause__ is not None


def _find_coordinator(version: int, group_id: str) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id)


def _wanted(name: str) -> MetadataRequest.Topic:
    return MetadataRequest.Topic(name=name)
