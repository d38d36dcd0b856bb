"""The servers of the registry together: one leads, numbers every change and knows the sessions.

A write goes to the leader, which does one after the other and waits for a majority. Then it is
decided, and the other servers apply it when it reaches them. Without a majority nothing is decided;
a server that hears no leader goes on reading to its clients what it knows, for a while.

Rule: what is decided stays decided. A new leader knows every decided change, whoever led before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from shoal.lab.registry.messages import (
    Close,
    Connect,
    Create,
    Delete,
    Put,
    RegistryRequest,
    Sync,
    weight,
)
from shoal.lab.registry.server import RegistryServer
from shoal.lab.registry.tree import Change, Effect, TreeNode
from shoal.lab.scenario import RegistrySettings
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.network import SimulatedConnection


class Session:
    """A client, as long as the registry hears of it."""

    __slots__ = ("ephemerals", "heard_ms", "id", "is_alive", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.heard_ms = now_ms
        self.ephemerals: dict[str, None] = {}
        self.is_alive = True

    def is_alive_for(self, is_isolated: bool) -> bool:
        """A server that is cut off has not heard that the session ended."""
        return self.is_alive or is_isolated


class Registry:
    """All servers."""

    def __init__(self, clock: VirtualClock, settings: RegistrySettings, random: Random) -> None:
        self.clock = clock
        self.settings = settings
        self._random = random
        self.log: list[Change] = []
        """Every decided change; the first one has the number 1."""
        self.servers = [
            RegistryServer(self, f"r{number + 1}") for number in range(settings.servers)
        ]
        self.leader = self.servers[0]
        self.leader.lag_ms = 0
        self.has_leader = True
        self._term = 0
        self._decide_ms = 0
        self._sessions: dict[int, Session] = {}
        self.on_put: Callable[[str, Any, Any], None] | None = None
        """Hears path, old and new data of every Put that is decided."""
        self.between_servers = 0
        """Messages from server to server."""

    @property
    def is_serving(self) -> bool:
        return any(server.is_serving for server in self.servers)

    def server(self, name: str) -> RegistryServer | None:
        return next((server for server in self.servers if server.name == name), None)

    def data(self, path: str) -> Any:
        """What is decided, whoever has applied it."""
        return self.leader.tree.data(path)

    def guard_holds(self, guard: tuple[str, Any]) -> bool:
        """Whether what a guarded write is made under is still true."""
        path, data = guard
        return bool(self.data(path) == data)

    def put_now(self, path: str, data: Any) -> None:
        """As if it had always been there."""
        self._decide(((path, TreeNode(data, None)),))

    def _delay(self) -> int:
        return 1 + int(self._random.random() * self.settings.delay_ms)

    # --- writes --------------------------------------------------------------------------------

    def forward(
        self,
        server: RegistryServer,
        connection: SimulatedConnection,
        request: RegistryRequest,
        session: Session | None,
    ) -> None:
        """From the server a client is connected to, to the leader."""
        if session is None or server.is_isolated:
            return  # it is stuck there until the client comes to another server
        at_ms = self.clock.now_ms
        if server is not self.leader:
            self.between_servers += 1
            at_ms += self._delay()
        server.forward_ms = max(server.forward_ms, at_ms)
        asked = (self._term, server, connection, request, session)
        self.clock.at(server.forward_ms, self._propose, asked)

    def _propose(
        self, asked: tuple[int, RegistryServer, SimulatedConnection, RegistryRequest, Session]
    ) -> None:
        """The leader comes to it, and a majority writes it down; then it is decided."""
        term, _, _, request, _ = asked
        if term != self._term or not self._has_majority():
            return
        at_ms = self.leader.line_ms(weight(request.body))
        if len(self.servers) > 1 and not isinstance(request.body, Sync):
            at_ms += self._delay() + self._delay()
            self.between_servers += 3 * (len(self.servers) - 1)
        self._decide_ms = max(self._decide_ms, at_ms)
        self.clock.at(self._decide_ms, self._decided, asked)

    def _decided(
        self, asked: tuple[int, RegistryServer, SimulatedConnection, RegistryRequest, Session]
    ) -> None:
        term, server, connection, request, session = asked
        if term != self._term or not self._has_majority() or not session.is_alive:
            return
        session.heard_ms = self.clock.now_ms
        if isinstance(request.body, Sync):
            self._synced(server, connection, request)
            return
        effects, value = self._outcome(session, request.body)
        if effects:
            self._decide(effects)
        if isinstance(request.body, Close):
            session.is_alive = False
        needed = len(self.log) if self.settings.own_writes else 0
        reply = (needed, connection, request, value)
        delay_ms = 0 if server is self.leader else self._delay()
        server.reply_ms = max(server.reply_ms, self.clock.now_ms + delay_ms)
        self.clock.at(server.reply_ms, lambda _: server.answer_when_applied(*reply))

    def _synced(
        self, server: RegistryServer, connection: SimulatedConnection, request: RegistryRequest
    ) -> None:
        number = len(self.log)

        def arrive(_: None) -> None:
            server.catch_up(number)
            server.answer_when_applied(number, connection, request, None)

        if server is self.leader:
            arrive(None)
        else:
            self.between_servers += 1
            self.clock.after(self._delay(), arrive)

    def _outcome(self, session: Session, body: Any) -> tuple[tuple[Effect, ...], Any]:
        """What a write changes, and its answer."""
        nodes = self.leader.tree.nodes
        match body:
            case Create(paths=paths):
                made = []
                new: dict[str, TreeNode] = {}
                for path in paths:
                    node = nodes.get(path)
                    # A client that lost the answer asks again, and finds its own node.
                    made.append(node is None or node.session_id == session.id)
                    if node is None:
                        new[path] = TreeNode(body.data, session.id if body.ephemeral else None)
                return tuple(new.items()), made
            case Delete(paths=paths):
                return tuple((path, None) for path in paths if path in nodes), None
            case Put(values=values, guard=guard):
                if guard is not None and not self.guard_holds(guard):
                    return (), False
                if self.on_put is not None:
                    for path, data in values:
                        self.on_put(path, self.data(path), data)
                return tuple(
                    (path, TreeNode(data, nodes[path].session_id if path in nodes else None))
                    for path, data in values
                ), True
            case _:
                assert isinstance(body, Close)
                return self._ends(session), None

    def _decide(self, effects: tuple[Effect, ...]) -> None:
        """Number a change, and send it to everybody."""
        for path, node in effects:
            before = self.leader.tree.nodes.get(path)
            if before is not None and before.session_id is not None:
                self._sessions[before.session_id].ephemerals.pop(path, None)
            if node is not None and node.session_id is not None:
                self._sessions[node.session_id].ephemerals[path] = None
        self.log.append(Change(effects, self.leader.tree.changes(effects)))
        number = len(self.log)
        self.leader.catch_up(number)
        for server in self.servers:
            if server is not self.leader and server.is_up and not server.is_isolated:
                self._tell(server, number)

    def _tell(self, server: RegistryServer, number: int) -> None:
        at_ms = self.clock.now_ms + self._delay() + server.lag_ms
        server.apply_ms = max(server.apply_ms, at_ms)
        self.clock.at(server.apply_ms, server.catch_up, number)

    # --- sessions ------------------------------------------------------------------------------

    def session_of(self, message: Connect) -> Session:
        """The session a client comes back to, or a new one."""
        now_ms = self.clock.now_ms
        session = self._sessions.get(message.session_id or 0)
        if session is None or not session.is_alive:
            session = Session(len(self._sessions) + 1, message.timeout_ms, now_ms)
            self._sessions[session.id] = session
            self.clock.after(message.timeout_ms, self._expire, session)
        session.heard_ms = now_ms
        return session

    def _expire(self, session: Session) -> None:
        if not session.is_alive:
            return
        due_ms = session.heard_ms + session.timeout_ms
        if self.clock.now_ms < due_ms:
            self.clock.at(due_ms, self._expire, session)
        elif not self._has_majority():
            # Sessions do not end while nobody can be heard; they start anew afterwards.
            self.clock.after(1_000, self._expire, session)
        else:
            session.is_alive = False
            effects = self._ends(session)
            if effects:
                self._decide(effects)

    @staticmethod
    def _ends(session: Session) -> tuple[Effect, ...]:
        return tuple((path, None) for path in session.ephemerals)

    # --- going wrong ---------------------------------------------------------------------------

    def _has_majority(self) -> bool:
        if not self.has_leader or not self.leader.is_up or self.leader.is_isolated:
            return self.has_leader and self.leader.is_up and len(self.servers) == 1
        reached = sum(server.is_up and not server.is_isolated for server in self.servers)
        return 2 * reached > len(self.servers)

    def fail_over(self, down_ms: int) -> None:
        """The leader dies, and is back when another leads: sessions live on, requests do not."""
        old = self.leader
        old.is_up = False
        self.clock.after(down_ms, self._come_back, old)
        self._elect(down_ms)

    def fail_server(self, name: str, for_ms: int) -> None:
        """A server dies and comes back; if it led, the others agree on another one first."""
        server = self.server(name)
        if server is None or not server.is_up:
            return
        server.is_up = False
        server.send_away()
        self.clock.after(for_ms, self._come_back, server)
        if server is self.leader:
            self._elect(for_ms if len(self.servers) == 1 else self.settings.election_ms)
        else:
            self._check_majority()

    def _come_back(self, server: RegistryServer) -> None:
        server.is_up = True
        if self.has_leader:
            server.catch_up(len(self.log))

    def _elect(self, for_ms: int) -> None:
        """Nobody serves anybody until there is a leader again."""
        self._term += 1
        self.has_leader = False
        for server in self.servers:
            if not server.is_isolated:
                server.send_away()
        self.clock.after(for_ms, self._elected, self._term)

    def _elected(self, term: int) -> None:
        if term != self._term:
            return
        able = [each for each in self.servers if each.is_up and not each.is_isolated]
        if 2 * len(able) <= len(self.servers):
            self.clock.after(self.settings.election_ms, self._elected, term)
            return
        self.leader = next((each for each in able if each is not self.leader), able[0])
        self.leader.lag_ms = 0
        self.has_leader = True
        for server in able:
            server.catch_up(len(self.log))
        for session in self._sessions.values():
            session.heard_ms = self.clock.now_ms

    def lag(self, name: str, by_ms: int, for_ms: int) -> None:
        """A follower applies what it is told this much later, for a while."""
        server = self.server(name)
        if server is not None and server is not self.leader:
            server.lag_ms = by_ms
            self.clock.after(for_ms, self._end_lag, server)

    def _end_lag(self, server: RegistryServer) -> None:
        server.lag_ms = self.settings.lag_ms

    def isolate(self, name: str, for_ms: int) -> None:
        """No message passes between this server and the others. Its clients reach it."""
        server = self.server(name)
        if server is None or len(self.servers) == 1 or server.is_isolated:
            return
        server.is_isolated = True
        self.clock.after(for_ms, self._heal, server)
        self.clock.after(self.settings.patience_ms, self._lose_patience, server)
        self._check_majority()

    def _check_majority(self) -> None:
        """A leader that can be reached, but by too few, does not lead."""
        if self.has_leader and not self.leader.is_isolated and not self._has_majority():
            self._elect(self.settings.election_ms)

    def _lose_patience(self, server: RegistryServer) -> None:
        if not server.is_isolated:
            return
        server.sends_clients_away = True
        server.send_away()
        if server is self.leader:
            self._elect(self.settings.election_ms)

    def _heal(self, server: RegistryServer) -> None:
        server.is_isolated = server.sends_clients_away = False
        # What was asked meanwhile is lost. Clients come back, and ask again what was not answered.
        for each in self.servers if server is self.leader else (server,):
            each.send_away()
        if self.has_leader:
            self._tell(server, len(self.log))

    # --- measuring -----------------------------------------------------------------------------

    def names_below(self, path: str) -> Iterable[str]:
        """What is decided about the names below a path."""
        return self.leader.tree.children(path)
