"""A member's way to a coordinator of the lab: one connection, made again when it breaks.

Rule: a link carries messages and knows none of them. What a lost connection means is for the
member to decide; the link only says so and comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from shoal.lab.world import World
from shoal.testing.simulation.network import SimulatedConnection

_RETRY_MS: Final = 500


class Coordinating(Protocol):
    """A server that may be down."""

    is_up: bool

    def asked(self, connection: SimulatedConnection, message: Any) -> None: ...


class Link:
    """One connection at a time."""

    def __init__(
        self,
        world: World,
        name: str,
        server: Coordinating,
        *,
        on_message: Callable[[Any], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._clock = world.clock
        self._network = world.network
        self._server = server
        self._on_message = on_message
        self._on_connected = on_connected
        self.name = name
        self.is_alive = True
        self.paused_until_ms = 0
        self._cut_until_ms = 0
        self._connection: SimulatedConnection | None = None
        self._clock.after(0, self._connect)

    def is_held_up(self, action: Callable[[Any], None], argument: Any = None) -> bool:
        """The process is paused: ``action`` follows afterwards. Or it is no more."""
        if self._clock.now_ms < self.paused_until_ms:
            self._clock.at(self.paused_until_ms, action, argument)
            return True
        return not self.is_alive

    def ask(self, message: Any) -> bool:
        """Send, if there is a connection; it may be broken without anybody knowing."""
        if self._connection is None:
            return False
        self._connection.ask(message)
        return True

    def _connect(self, _: None) -> None:
        if self.is_held_up(self._connect) or self._connection is not None:
            return
        if self._clock.now_ms < self._cut_until_ms or not self._server.is_up:
            self._clock.after(_RETRY_MS, self._connect)
            return
        self._connection = self._network.connect(self, self._server)
        self._on_connected()

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        self._answered((connection, message))

    def _answered(self, answer: tuple[SimulatedConnection, Any]) -> None:
        if not self.is_held_up(self._answered, answer) and answer[0] is self._connection:
            self._on_message(answer[1])

    def disconnected(self, connection: SimulatedConnection) -> None:
        self._disconnected(connection)

    def _disconnected(self, connection: SimulatedConnection) -> None:
        if not self.is_held_up(self._disconnected, connection) and connection is self._connection:
            self._connection = None
            self._connect(None)

    def cut(self, for_ms: int) -> None:
        self._cut_until_ms = self._clock.now_ms + for_ms
        if self._connection is not None:
            self._connection.cut(survivors=0, late_ms=0, notice_ms=for_ms)

    def close(self) -> None:
        """The process ends; what was sent still arrives."""
        self.is_alive = False
        if self._connection is not None:
            self._connection.close()
