"""The cluster as a client sees it: metadata kept fresh, and a way to ask any of its brokers.

Rule: this module knows *where* a request goes, never what it means. It keeps three things: the
metadata, the links, and which broker coordinates which group or transactional id.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from shoal.client.broker_links import Address, BrokerLink, Lane, Links
from shoal.client.config import ConnectionConfig
from shoal.client.connection import Versioned, is_refusal
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.metadata import Metadata, merged
from shoal.client.metrics import MetricListing
from shoal.client.reactions import RequestReaction, reaction
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
from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Request, ResponseT

logger = logging.getLogger(__name__)

T = TypeVar("T")
# So long a broker may take to start after its clients. Longer than that nobody wants to wait for
# being told that an address is wrong.
_REFUSED_S: Final = 10.0
RETRIED: Final = (RetriableError, ConnectionFailedError, RequestTimeoutError)


class TransactionalId(NamedTuple):
    """A key to look a coordinator up by that is not a group."""

    name: str

    def __str__(self) -> str:
        return f"transactional id {self.name!r}"


CoordinatorKey = str | TransactionalId
"""A group's id, or a transactional id."""


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
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._stale = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._refresh_count = 0
        self._refreshed_at: float | None = None

    # --- asking ---

    async def ask(
        self,
        request: Request[ResponseT] | Versioned[ResponseT],
        *,
        node_id: int | None = None,
        lane: Lane = Lane.MAIN,
        deadline: Deadline | None = None,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """One request to one broker (any, if ``node_id`` is ``None``), no retry.

        Raises:
            ConnectionFailedError: the broker cannot be reached, or went away meanwhile.
            RequestTimeoutError: ``deadline`` passed, or there was no answer in time.
        """
        limit = deadline or Deadline(self.config.request_timeout_ms / 1000)
        link: BrokerLink | None = None
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
                ) from link.failure
            raise RequestTimeoutError(f"{where} did not answer {within}") from None

    def link(self, node_id: int, lane: Lane) -> BrokerLink:
        """The way to a known node.

        Raises:
            ConnectionFailedError: the node is not in the metadata (any more).
        """
        return self._link(node_id, lane)

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Repeat ``attempt`` while it fails with something that may pass, until ``deadline``.

        Raises:
            RequestTimeoutError: time is up; the last failure is the cause.
            ConnectionFailedError: nobody listens at any of ``bootstrap_servers``, and has not for
                a while: more likely a wrong address than a broker that is about to start.
        """
        backoff = RetryBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        failure: Exception | None = None
        while True:
            try:
                return await attempt()
            except RETRIED as error:
                # Of an attempt that ran out of time nothing is known; of one before it there is.
                if failure is None or not (deadline.has_passed and _is_silence(error)):
                    failure = error
                pause_s = backoff.next_s()
                # Of the whole call, not of this loop: an attempt may hold such a loop itself.
                spent_s = deadline.spent_s + pause_s
                if spent_s >= _REFUSED_S and pause_s < deadline.left_s and self._nobody_listens:
                    raise self._unreachable() from error
                if pause_s >= deadline.left_s:
                    if deadline.timeout_s is None or _names_its_cause(failure):
                        raise failure from failure.__cause__
                    raise RequestTimeoutError(
                        f"gave up after {deadline.timeout_s:g} s; last failure: {failure}"
                    ) from failure
                await asyncio.sleep(pause_s)

    @property
    def _nobody_listens(self) -> bool:
        """Whether no broker was ever reached, and every address we were given refuses."""
        return not self.metadata.nodes and all(
            is_refusal(self._links.to(address).failure) for address in self._bootstrap
        )

    def _unreachable(self) -> ConnectionFailedError:
        failures = (str(self._links.to(address).failure) for address in self._bootstrap)
        return ConnectionFailedError(
            f"no broker for {_REFUSED_S:g} s, check bootstrap_servers: {'; '.join(failures)}"
        )

    def _link(self, node_id: int | None, lane: Lane) -> BrokerLink:
        if node_id is None:
            return self._any_link()
        node = self.metadata.nodes.get(node_id)
        if node is None:
            node = next((n for n in self._coordinators.values() if n.id == node_id), None)
        if node is None:
            self.mark_stale()
            raise ConnectionFailedError(f"broker {node_id} is not in the cluster's metadata")
        return self._links.to((node.host, node.port), lane)

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature, as the newest news we have says; 0 if there is none."""
        heard = (link.last for link in self._links)
        newest = max(
            (one for one in heard if one is not None),
            key=lambda one: one.features_epoch,
            default=None,
        )
        return 0 if newest is None else newest.features.get(name, 0)

    def _any_link(self) -> BrokerLink:
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
        self._refresh_count += 1
        self._take(answer, asked)
        if self._awaits_a_topic():
            self.mark_stale()
        return self.metadata

    async def resolve(self, topic_ids: Collection[bytes]) -> None:
        """Ask once which topics have these ids; one that was deleted has no answer."""
        topics = [MetadataRequest.Topic(topic_id=one, name=None) for one in sorted(topic_ids)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self.ask(request)
        self._take(answer, frozenset(one.name for one in answer.topics if one.name is not None))

    def _take(self, answer: MetadataResponse, asked: frozenset[str] | None) -> None:
        self.metadata = merged(self.metadata, answer, asked)
        self._refreshed_at = asyncio.get_running_loop().time()
        for listener in list(self.on_update):
            listener(self.metadata, asked)

    def _awaits_a_topic(self) -> bool:
        """Whether a topic we watch is not there yet: asked for until it is, as Java's client does.

        Nobody tells when it appears, and metadata alone is looked at every five minutes.
        """
        errors = self.metadata.errors
        return self._interest is not None and any(
            name in errors and reaction("Metadata", errors[name]) is not RequestReaction.RAISE
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

        With ``anew`` it asks also about what is known: if not watched, it may be out of date.

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
            if code is not None and reaction("Metadata", code) is RequestReaction.RAISE:
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
        backoff = RetryBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
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
                # Of a broker that cannot be reached the link has told, once.
                is_told = isinstance(error, ConnectionFailedError)
                logger.log(
                    logging.DEBUG if is_told else logging.WARNING,
                    "metadata refresh failed: %s",
                    error,
                )
                self._stale.set()
            except Exception:
                # A bug of ours, or of whoever listens. Metadata that is never asked for again
                # would leave every consumer and producer with a cluster that is gone.
                logger.exception("metadata refresh failed")
                self._stale.set()

    def _let_go(self) -> None:
        """Forget topics nobody uses: a refresh would recreate those that were deleted."""
        if self.in_use is not None:
            self._interest = self.in_use()
            topics = {n: t for n, t in self.metadata.topics.items() if n in self._interest}
            self.metadata = replace(self.metadata, topics=topics)

    # --- coordinators ---

    async def coordinator(self, key: CoordinatorKey, deadline: Deadline) -> int:
        """The id of the broker that coordinates ``key``; asked once, then remembered."""
        known = self._coordinators.get(key)
        if known is not None:
            return known.id
        return await self.retrying(lambda: self.find_coordinator(key, deadline), deadline)

    async def find_coordinator(self, key: CoordinatorKey, deadline: Deadline) -> int:
        """Ask for the coordinator, one attempt.

        Raises:
            BrokerError: the answer was an error; ``RetriableError`` if it may pass.
        """
        request = Versioned(10, lambda version: _find_coordinator(version, key))
        answer = await self.ask(request, deadline=deadline)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            if reaction("FindCoordinator", found.error_code) is RequestReaction.RAISE:
                raise error_for(found.error_code, f"coordinator of {_described(key)}")
            raise RetriableError(
                ErrorCode.of(found.error_code), f"coordinator of {_described(key)}"
            )
        node = Node(found.node_id, found.host, found.port)
        self._coordinators[key] = node
        return node.id

    def forget_coordinator(self, key: CoordinatorKey, *, disconnect: bool = False) -> None:
        node = self._coordinators.pop(key, None)
        if disconnect and node is not None:
            self._links.to((node.host, node.port), Lane.GROUP).disconnect()

    async def coordinator_has_new_groups(self, group_id: str, deadline: Deadline) -> bool:
        """Whether the coordinator speaks the protocol of KIP-848, and the cluster has it on.

        Raises:
            ConnectionFailedError: the coordinator cannot be reached.
        """
        node_id = await self.coordinator(group_id, deadline)
        connection = await self._link(node_id, Lane.GROUP).connection()
        # Version 0 was a preview of Kafka 3.7 to 3.9.
        _, newest = connection.versions.get(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, -1))
        return newest >= 1 and connection.features.get("group.version", 0) >= 1

    async def ask_coordinator(
        self,
        key: CoordinatorKey,
        request: Request[ResponseT] | Versioned[ResponseT],
        deadline: Deadline,
    ) -> ResponseT:
        """One request to the coordinator, looked up if unknown; a dead one is forgotten.

        Not in the group's lane: a commit must not wait behind a JoinGroup the broker holds.
        """
        answer = await self.send_to_coordinator(key, request, deadline)
        return await self.answer_of(key, answer, deadline)

    async def send_to_coordinator(
        self,
        key: CoordinatorKey,
        request: Request[ResponseT] | Versioned[ResponseT],
        deadline: Deadline,
    ) -> asyncio.Future[ResponseT]:
        """The first half of ``ask_coordinator``: returns when the request is on its way."""
        node_id = await self.coordinator(key, deadline)
        try:
            async with asyncio.timeout(None if deadline.timeout_s is None else deadline.left_s):
                connection = await self._link(node_id, Lane.MAIN).connection()
                return connection.send(request)
        except ConnectionFailedError:
            self.forget_coordinator(key)
            raise
        except TimeoutError:
            self.forget_coordinator(key)
            raise RequestTimeoutError(f"broker {node_id} cannot be reached") from None

    async def answer_of(
        self, key: CoordinatorKey, answer: asyncio.Future[ResponseT], deadline: Deadline
    ) -> ResponseT:
        """The second half of ``ask_coordinator``."""
        try:
            async with asyncio.timeout(None if deadline.timeout_s is None else deadline.left_s):
                return await answer
        except (ConnectionFailedError, RequestTimeoutError):
            self.forget_coordinator(key)
            raise
        except TimeoutError:
            raise RequestTimeoutError(
                f"the coordinator did not answer within {deadline.timeout_s:g} s"
            ) from None

    def check(
        self, api: str, code: int, detail: str = "", *, group_id: CoordinatorKey | None = None
    ) -> None:
        """Raise what ``code`` means for ``api``, after the side effects of its reaction."""
        outcome = reaction(api, code)
        if outcome is RequestReaction.ACCEPT:
            return
        if outcome is RequestReaction.REFRESH:
            self.mark_stale()
        elif outcome is RequestReaction.REDISCOVER and group_id is not None:
            self.forget_coordinator(group_id)
        if outcome in (RequestReaction.REFRESH, RequestReaction.REDISCOVER, RequestReaction.RETRY):
            raise RetriableError(ErrorCode.of(code), detail)
        raise error_for(code, detail)

    def tell(self, listing: MetricListing, group: str) -> None:
        """Connections and what went over them. Any thread."""
        connections, _ = self._links.counts()
        self._links.traffic.tell(listing, group, connections)

    def tell_more(self, listing: MetricListing, group: str) -> None:
        """What only producers tell, as in Java."""
        _, in_flight = self._links.counts()
        listing.put(group, "requests-in-flight", in_flight)
        age = math.nan if self._refreshed_at is None else listing.now - self._refreshed_at
        listing.put(group, "metadata-age", age)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
        self._links.close()


def _names_its_cause(error: Exception) -> bool:
    """An attempt that itself repeated others has said what was the last to fail."""
    return isinstance(error, RequestTimeoutError) and error.__cause__ is not None


def _is_silence(error: Exception) -> bool:
    return isinstance(error, RequestTimeoutError) and not _names_its_cause(error)


def _described(key: CoordinatorKey) -> str:
    return f"group {key!r}" if isinstance(key, str) else str(key)


def _find_coordinator(version: int, key: CoordinatorKey) -> FindCoordinatorRequest:
    name, kind = (key, 0) if isinstance(key, str) else (key.name, 1)
    if version >= 4:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    return FindCoordinatorRequest(key=name, key_type=kind)


def _wanted(name: str) -> MetadataRequest.Topic:
    return MetadataRequest.Topic(name=name)
