"""A client of the registry: one session, one connection at a time, to one of the servers.

When the connection breaks, it goes to the next server with its session and the watches that are
still due, and asks again what was not answered. Whether the session is still the same, only the
registry can tell.

Rule: the client does not know paths. What a new session means is for its owner to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from shoal.lab.registry.ensemble import Registry
from shoal.lab.registry.messages import (
    Behind,
    Changed,
    Children,
    Close,
    Connect,
    Connected,
    Get,
    Ping,
    RegistryAnswer,
    RegistryRequest,
    Watch,
)
from shoal.lab.world import World
from shoal.testing.simulation.network import SimulatedConnection

_RETRY_MS: Final = 500


class Owner(Protocol):
    """Whose session it is."""

    def session_began(self, *, is_first: bool) -> None:
        """There is a session, and it is a new one: nothing of an earlier one is left."""

    def changed(self, path: str) -> None:
        """A watch was due."""


class _Waiting(NamedTuple):
    body: Any
    then: Callable[[Any], None]
    survives: bool


class RegistryClient:
    """A session with the registry."""

    def __init__(
        self, world: World, registry: Registry, name: str, owner: Owner, *, role: str = ""
    ) -> None:
        self._clock = world.clock
        self._network = world.network
        self._registry = registry
        self._timeout_ms = registry.settings.session_timeout_ms
        self._owner = owner
        self.name = name
        self.role = role
        """Its name in the trace, if it is another one."""
        self.is_alive = True
        self.paused_until_ms = 0
        self._cut_until_ms = 0
        self._session_id: int | None = None
        self._connection: SimulatedConnection | None = None
        self._is_connected = False
        self._is_closing = False
        self._server = int(world.random.random() * len(registry.servers))
        self._seen = 0
        self._watches: dict[Watch, None] = {}
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        """In the order they were asked."""
        self._connect(None)
        self._ping(None)

    @property
    def server_name(self) -> str:
        """The server it is connected to, or tries next."""
        return self._registry.servers[self._server].name

    def is_held_up(self, action: Callable[[Any], None], argument: Any = None) -> bool:
        """The process is paused: ``action`` follows afterwards. Or it is no more."""
        if self._clock.now_ms < self.paused_until_ms:
            self._clock.at(self.paused_until_ms, action, argument)
            return True
        return not self.is_alive

    # --- the connection ------------------------------------------------------------------------

    def _connect(self, _: None) -> None:
        if self.is_held_up(self._connect) or self._connection is not None:
            return
        servers = self._registry.servers
        tried = [(self._server + step) % len(servers) for step in range(len(servers))]
        serving = next((index for index in tried if servers[index].is_serving), None)
        if self._clock.now_ms < self._cut_until_ms or serving is None:
            self._clock.after(_RETRY_MS, self._connect)
            return
        self._server = serving
        self._connection = self._network.connect(self, servers[serving])
        self._is_connected = False
        watches = tuple(self._watches)
        self._connection.ask(Connect(self._session_id, self._timeout_ms, self._seen, watches))
        self._clock.after(max(self._timeout_ms // 3, 1), self._give_up, self._connection)

    def _give_up(self, connection: SimulatedConnection) -> None:
        """Nobody answered: try the next server."""
        if connection is self._connection and not self._is_connected:
            self._try_next()

    def _try_next(self) -> None:
        assert self._connection is not None
        self._connection.close()
        self._connection = None
        self._server = (self._server + 1) % len(self._registry.servers)
        self._clock.after(self._network.delay(), self._connect)

    def _ping(self, _: None) -> None:
        if self.is_held_up(self._ping):
            return
        if self._is_connected and self._connection is not None:
            self._connection.ask(Ping())
        self._clock.after(max(self._timeout_ms // 3, 1), self._ping)

    def disconnected(self, connection: SimulatedConnection) -> None:
        self._disconnected(connection)

    def _disconnected(self, connection: SimulatedConnection) -> None:
        if self.is_held_up(self._disconnected, connection) or connection is not self._connection:
            return
        self._connection = None
        self._is_connected = False
        self._server = (self._server + 1) % len(self._registry.servers)
        self._connect(None)

    # --- answers -------------------------------------------------------------------------------

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        self._answered((connection, message))

    def _answered(self, answer: tuple[SimulatedConnection, Any]) -> None:
        if self.is_held_up(self._answered, answer) or answer[0] is not self._connection:
            return
        message = answer[1]
        if isinstance(message, RegistryAnswer):
            self._seen = max(self._seen, message.seen)
            waiting = self._waiting.pop(message.number, None)
            if waiting is not None:
                waiting.then(message.value)
        elif isinstance(message, Changed):
            self._seen = max(self._seen, message.seen)
            self._watches.pop(message.watch, None)
            if not self._is_closing:
                self._owner.changed(message.watch.path)
        elif isinstance(message, Behind):
            self._try_next()
        else:
            assert isinstance(message, Connected)
            self._connected(message.session_id)

    def _connected(self, session_id: int) -> None:
        assert self._connection is not None
        self._is_connected = True
        is_new, is_first = session_id != self._session_id, self._session_id is None
        self._session_id = session_id
        if is_new and not is_first:
            # Void, but for what its owner does without knowing of sessions.
            self._watches.clear()
            self._waiting = {n: each for n, each in self._waiting.items() if each.survives}
        for number, each in self._waiting.items():
            self._connection.ask(RegistryRequest(number, each.body))
        if is_new and self._is_closing:
            self.crash()  # the session it wanted to end is no more
        elif is_new:
            self._owner.session_began(is_first=is_first)

    def ask(
        self, body: Any, then: Callable[[Any], None] = lambda _: None, *, survives: bool = False
    ) -> None:
        """Ask now or when there is a connection; again if the answer is lost.

        ``survives``: even if the session has ended meanwhile.
        """
        self._number += 1
        self._waiting[self._number] = _Waiting(body, then, survives)
        if isinstance(body, Children):
            self._watches[Watch(body.path, of_children=True)] = None
        elif isinstance(body, Get) and body.watch:
            for path in body.paths:
                self._watches[Watch(path, of_children=False)] = None
        if self._is_connected and self._connection is not None:
            self._connection.ask(RegistryRequest(self._number, body))

    # --- what happens to its process -----------------------------------------------------------

    def close(self) -> None:
        """End the session, and then the connection; the owner hears no more."""
        self._is_closing = True
        self.ask(Close(), lambda _: self.crash())

    def crash(self) -> None:
        self.is_alive = False
        if self._connection is not None:
            self._connection.close()

    def pause(self, until_ms: int) -> None:
        """Whatever the server thinks of it, the connection has to be made again afterwards."""
        self.paused_until_ms = until_ms
        self._lose_connection(until_ms - self._clock.now_ms + 1)

    def cut(self, for_ms: int) -> None:
        """No message passes for a while; the client notices when it has heard nothing for long."""
        self._cut_until_ms = self._clock.now_ms + for_ms
        self._lose_connection(self._timeout_ms * 2 // 3)

    def _lose_connection(self, notice_ms: int) -> None:
        if self._connection is not None:
            self._connection.cut(survivors=0, late_ms=0, notice_ms=notice_ms)
