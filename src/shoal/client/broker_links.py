"""Ways to brokers: per address and lane one connection at a time, reopened when needed.

A *lane* keeps requests which wait at the broker away from the others, because one connection
answers in order: a fetch may be held for half a second and a JoinGroup for minutes, while a
heartbeat or a lookup must go through at once.

Rule: an address that failed is left alone for a growing, jittered pause; asking for its
connection meanwhile waits for the end of the pause, it does not add an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING

from shoal.client.config import ConnectionConfig
from shoal.client.connection import BrokerConnection, open_connection
from shoal.client.deadlines import RetryBackoff
from shoal.client.leases import Buffers
from shoal.client.tallies import Traffic
from shoal.errors import ConnectionFailedError

if TYPE_CHECKING:
    from shoal.client.oauth import TokenSource

logger = logging.getLogger(__name__)

# Large answers of one client are read into at most so much memory that is kept for the next.
_POOLED_BYTES = 64 * 1024 * 1024

Address = tuple[str, int]
Opener = Callable[..., Awaitable[BrokerConnection]]
"""``open_connection``, or a test's own without tokens."""


class Lane(Enum):
    """What a connection is used for; one connection per lane and address."""

    MAIN = "main"
    FETCH = "fetch"
    CATCH_UP = "catch up"
    GROUP = "group"

    __hash__ = object.__hash__  # Enum's own is written in Python; members are compared by identity


class BrokerLink:
    """The way to one address in one lane."""

    def __init__(
        self,
        address: Address,
        config: ConnectionConfig,
        open_: Callable[[], Awaitable[BrokerConnection]],
    ) -> None:
        self.address = address
        self._config = config
        self._open = open_
        self._backoff = RetryBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._not_before = 0.0
        self._connection: BrokerConnection | None = None
        self.last: BrokerConnection | None = None
        """The last one that was opened. What its broker said of itself is known when it is gone."""
        self._opening: asyncio.Task[BrokerConnection] | None = None
        self._is_closed = False
        self.failure: Exception | None = None
        """Why the last attempt to connect failed; ``None`` after one that did not."""

    @property
    def current(self) -> BrokerConnection | None:
        """The open connection, if there is one."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    @property
    def is_resting(self) -> bool:
        """Whether the last attempt failed and the pause after it is not over."""
        return asyncio.get_running_loop().time() < self._not_before

    async def connection(self) -> BrokerConnection:
        """The open connection; opens one if there is none. Several callers share one attempt."""
        current = self.current
        if current is not None:
            return current
        if self._is_closed:
            raise ConnectionFailedError("this client is closed")
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        # Shielded: one caller giving up must not take the connection from the others.
        return await asyncio.shield(self._opening)

    def close(self) -> None:
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        self.disconnect()

    def disconnect(self) -> None:
        """Drop the current connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            connection = await self._open()
        except BaseException as error:
            self._not_before = loop.time() + self._backoff.next_s()
            if isinstance(error, ConnectionFailedError) and self.failure is None:
                # At once and once: whoever waits for us may do so for a minute.
                logger.warning("%s; trying again", error)
            self.failure = error if isinstance(error, Exception) else self.failure
            raise
        self.failure = None
        self._backoff.reset()
        # A broker which accepts and drops at once must not be hammered either.
        self._not_before = loop.time() + self._config.reconnect_backoff_ms / 1000
        self._connection = self.last = connection
        return connection

    def _opened(self, task: asyncio.Task[BrokerConnection]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody waiting is fine too


class Links:
    """All links of one client."""

    def __init__(
        self, config: ConnectionConfig, tls: SSLContext | None, open_: Opener = open_connection
    ) -> None:
        self._config = config
        self._tls = tls
        self.traffic = Traffic()
        if open_ is open_connection:
            open_ = partial(open_connection, traffic=self.traffic)
        self._open = open_
        self._buffers = Buffers(_POOLED_BYTES)
        # Loaded when needed: most clients have no tokens, and HTTP takes long to load.
        self._tokens: TokenSource | None = None
        if config.uses_tokens:
            from shoal.client.oauth import TokenSource

            self._tokens = TokenSource(config)
        self._links: dict[tuple[Address, Lane], BrokerLink] = {}

    def to(self, address: Address, lane: Lane = Lane.MAIN) -> BrokerLink:
        link = self._links.get((address, lane))
        if link is None:
            open_ = partial(self._open, *address, self._config, self._tls, self._buffers)
            if self._tokens is not None:
                open_ = partial(open_, tokens=self._tokens)
            link = self._links[address, lane] = BrokerLink(address, self._config, open_)
        return link

    def least_busy(self, addresses: list[Address]) -> BrokerLink | None:
        """The link of an open connection with the fewest requests under way."""
        links = [self.to(address) for address in addresses]
        ready = [link for link in links if link.current is not None]
        return min(ready, key=_in_flight, default=None)

    def close_idle(self) -> None:
        """Close what was not used for ``connections_max_idle_ms``."""
        now = asyncio.get_running_loop().time()
        for link in self:
            current = link.current
            if current is None or current.in_flight:
                continue
            if now - current.last_used > self._config.connections_max_idle_ms / 1000:
                link.disconnect()

    def close(self) -> None:
        for link in self:
            link.close()

    def counts(self) -> tuple[int, int]:
        """How many connections are open, and how many requests without an answer. Any thread."""
        current = [one for link in self if (one := link.current) is not None]
        return len(current), sum(one.in_flight for one in current)

    def __iter__(self) -> Iterator[BrokerLink]:
        return iter(list(self._links.values()))


def _in_flight(link: BrokerLink) -> int:
    current = link.current
    return 0 if current is None else current.in_flight
