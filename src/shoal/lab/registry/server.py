"""One server of the registry: it answers reads from its own tree, and passes writes on.

A follower applies what the leader has decided a little later, or much later. What its clients
read is what it has applied; they see their own writes, because a write is answered only when this
server has applied it. A ``Sync`` makes it catch up first.

Rule: a server never decides. What becomes of a write, and when a session ends, is the ensemble's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from shoal.lab.registry.messages import (
    REGISTRY,
    Behind,
    Changed,
    Children,
    Connect,
    Connected,
    Get,
    Ping,
    RegistryAnswer,
    RegistryRequest,
    Watch,
    weight,
)
from shoal.lab.registry.tree import Tree
from shoal.lab.registry.watches import Watches
from shoal.testing.simulation.network import SimulatedConnection

if TYPE_CHECKING:
    from shoal.lab.registry.ensemble import Registry, Session


class _Line:
    """What one client has asked."""

    __slots__ = ("is_reading", "waiting", "writes")

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.is_reading = False
        self.writes = 0
        """How many are under way to the leader."""


class RegistryServer:
    """Connections, reads and watches."""

    role = REGISTRY

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self._clock = registry.clock
        self.name = name
        self.tree = Tree()
        self.watches = Watches()
        self.is_up = True
        self.is_isolated = False
        self.lag_ms = registry.settings.lag_ms
        self.sends_clients_away = False
        """It has not heard the leader for too long."""
        self.apply_ms = 0
        """When it applies the last change it was told of."""
        self.forward_ms = 0
        self.reply_ms = 0
        self._free_us = 0
        """When the line is empty."""
        self._sessions: dict[SimulatedConnection, Session] = {}
        self._lines: dict[SimulatedConnection, _Line] = {}
        """What each client asked, in order."""
        self._unanswered: list[tuple[int, SimulatedConnection, RegistryRequest, Any]] = []
        """Writes that are decided, and answered once they are applied here."""

    @property
    def is_serving(self) -> bool:
        return self.is_up and self._registry.has_leader and not self.sends_clients_away

    # --- requests ------------------------------------------------------------------------------

    def asked(self, connection: SimulatedConnection, message: Any) -> None:
        if not self.is_serving:
            return
        if isinstance(message, Ping):
            # Pings do not wait in the line, or a herd would end every session.
            session = self._sessions.get(connection)
            if session is not None and not self.is_isolated:
                session.heard_ms = self._clock.now_ms
            return
        line = self._lines.get(connection)
        if line is None:
            line = self._lines[connection] = _Line()
        line.waiting.append(message)
        self._go_on(connection, line)

    def _go_on(self, connection: SimulatedConnection, line: _Line) -> None:
        """Begin what may begin: a read waits for what was asked before it, a write for reads."""
        while line.waiting and not line.is_reading:
            message = line.waiting[0]
            body = message.body if isinstance(message, RegistryRequest) else message
            is_read = isinstance(body, Connect | Children | Get)
            if is_read and line.writes:
                return
            line.waiting.popleft()
            if not is_read:
                line.writes += 1
                self._registry.forward(self, connection, message, self._sessions.get(connection))
                continue
            line.is_reading = True
            if isinstance(body, Connect):
                if not self.is_isolated:  # only the leader knows whether the session lives
                    self._clock.at(self.line_ms(1), self._connect, (connection, body))
            else:
                self._clock.at(self.line_ms(weight(body)), self._read, (connection, message))

    def line_ms(self, operations: int) -> int:
        """When these are done: one after the other, so whoever comes later waits."""
        now_us = self._clock.now_ms * 1_000
        cost_us = operations * self._registry.settings.operation_us
        self._free_us = max(self._free_us, now_us) + cost_us
        return -(-self._free_us // 1_000)

    def _connect(self, asked: tuple[SimulatedConnection, Connect]) -> None:
        connection, message = asked
        if not self.is_serving:
            return
        if message.seen > self.tree.applied:
            connection.answer(Behind())
            return
        session = self._registry.session_of(message)
        self._sessions[connection] = session
        connection.answer(Connected(session.id))
        for watch in message.watches if session.id == message.session_id else ():
            if self.tree.has_changed(watch, message.seen):
                connection.answer(Changed(watch, self.tree.applied))
            else:
                self.watches.add(watch, connection)
        self._done(connection, is_read=True)

    def _done(self, connection: SimulatedConnection, *, is_read: bool) -> None:
        line = self._lines.get(connection)
        if line is not None:
            if is_read:
                line.is_reading = False
            else:
                line.writes -= 1
            self._go_on(connection, line)

    def _read(self, asked: tuple[SimulatedConnection, RegistryRequest]) -> None:
        connection, request = asked
        session = self._sessions.get(connection)
        if not self.is_serving or session is None or not session.is_alive_for(self.is_isolated):
            return
        if not self.is_isolated:
            session.heard_ms = self._clock.now_ms
        body = request.body
        value: Any
        if isinstance(body, Children):
            self.watches.add(Watch(body.path, of_children=True), connection)
            value = self.tree.children(body.path)
        else:
            if body.watch:
                for path in body.paths:
                    self.watches.add(Watch(path, of_children=False), connection)
            value = self.tree.data_of(body.paths)
        self._answer(connection, request, value)

    def _answer(
        self, connection: SimulatedConnection, request: RegistryRequest, value: Any
    ) -> None:
        what = type(request.body).__name__
        connection.answer(RegistryAnswer(request.number, what, value, self.tree.applied))
        self._done(connection, is_read=isinstance(request.body, Children | Get))

    # --- what the leader decided ---------------------------------------------------------------

    def answer_when_applied(
        self, number: int, connection: SimulatedConnection, request: RegistryRequest, value: Any
    ) -> None:
        """A write of one of our clients is change ``number``, or came after it."""
        if self.tree.applied >= number:
            self._answer(connection, request, value)
        else:
            self._unanswered.append((number, connection, request, value))

    def catch_up(self, number: int) -> None:
        """Apply everything up to this change, and tell those who watch."""
        if not self.is_up or self.is_isolated:
            return
        tree = self.tree
        while tree.applied < number:
            change = self._registry.log[tree.applied]
            tree.apply(change)
            for watch in change.watches:
                for connection in self.watches.take(watch):
                    connection.answer(Changed(watch, tree.applied))
        if self._unanswered:
            due = [each for each in self._unanswered if each[0] <= tree.applied]
            self._unanswered = [each for each in self._unanswered if each[0] > tree.applied]
            for _, connection, request, value in due:
                self._answer(connection, request, value)

    # --- going wrong ---------------------------------------------------------------------------

    def send_away(self) -> None:
        """Break all connections: clients look for another server."""
        for connection in self._sessions:
            connection.cut(survivors=0, late_ms=0, notice_ms=1)
        self._sessions.clear()
        self._lines.clear()
        self._unanswered.clear()
        self.watches.clear()
        self._free_us = 0
