"""Connections that behave like TCP's and break like them.

What a connection promises: messages of one direction arrive in order, each once. What it does
not: that they arrive. When it breaks, a *prefix* of what was sent may still reach the server,
even after the client has come back on a new connection and said something else there; answers on
a broken connection reach nobody. The client may learn of the break at once, late, or only by its
own patience. Between connections there is no order at all.

Rule: a broken connection stays broken, and nothing is ever sent twice.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from shoal.testing.simulation.clock import VirtualClock


class Client(Protocol):
    """Who opens a connection."""

    def answered(self, connection: SimulatedConnection, message: Any) -> None: ...

    def disconnected(self, connection: SimulatedConnection) -> None: ...


class SimulatedServer(Protocol):
    """Who accepts it."""

    def asked(self, connection: SimulatedConnection, message: Any) -> None: ...


class SimulatedConnection:
    """One connection: two queues, one for each direction."""

    __slots__ = (
        "_answers_ms",
        "_late_ms",
        "_network",
        "_requests_ms",
        "_survivors",
        "client",
        "in_flight",
        "is_open",
        "server",
    )

    def __init__(self, network: Network, client: Client, server: SimulatedServer) -> None:
        self._network = network
        self.client = client
        self.server = server
        self.is_open = True
        self.in_flight = 0
        """Requests that were sent and have not reached the server."""
        self._requests_ms = 0
        self._answers_ms = 0
        self._survivors = 0
        self._late_ms = 0

    def ask(self, message: Any) -> None:
        """From the client to the server; into the void if it is broken and nobody has noticed."""
        if not self.is_open:
            return
        clock = self._network.clock
        arrives_ms = clock.now_ms + self._network.delay()
        if arrives_ms > self._requests_ms:
            self._requests_ms = arrives_ms
        self.in_flight += 1
        clock.at(self._requests_ms, self._arrive, message)

    def answer(self, message: Any) -> None:
        """From the server to the client; into the void if the connection is broken."""
        if not self.is_open:
            return
        clock = self._network.clock
        arrives_ms = clock.now_ms + self._network.delay()
        if arrives_ms > self._answers_ms:
            self._answers_ms = arrives_ms
        clock.at(self._answers_ms, self._return, message)

    def _arrive(self, message: Any) -> None:
        self.in_flight -= 1
        if self.is_open:
            self.server.asked(self, message)
        elif self._survivors > 0:
            self._survivors -= 1
            if self._late_ms:
                self._network.clock.after(self._late_ms, self._arrive_late, message)
            else:
                self.server.asked(self, message)

    def _arrive_late(self, message: Any) -> None:
        self._network.late_count += 1
        self.server.asked(self, message)

    def _return(self, message: Any) -> None:
        if self.is_open:
            self.client.answered(self, message)

    def close(self) -> None:
        """The client hangs up: the server still reads all that was sent."""
        self.is_open = False
        self._survivors = self.in_flight

    def cut(self, *, survivors: int, late_ms: int, notice_ms: int) -> None:
        """The network breaks it: ``survivors`` requests arrive, ``late_ms`` later than they would.

        The client hears of it after ``notice_ms``, unless it has hung up by then.
        """
        if not self.is_open:
            return
        self.is_open = False
        self._survivors = min(survivors, self.in_flight)
        self._late_ms = late_ms
        self._network.clock.after(notice_ms, self._notice)

    def _notice(self, _: None) -> None:
        self.client.disconnected(self)


class Network:
    """Makes connections and decides how long messages take."""

    __slots__ = ("_random", "clock", "delay_ms_max", "late_count")

    def __init__(self, clock: VirtualClock, random: Random, *, delay_ms_max: int = 5) -> None:
        self.clock = clock
        self._random = random
        self.delay_ms_max = delay_ms_max
        self.late_count = 0

    def connect(self, client: Client, server: SimulatedServer) -> SimulatedConnection:
        return SimulatedConnection(self, client, server)

    def delay(self) -> int:
        return 1 + int(self._random.random() * self.delay_ms_max)
