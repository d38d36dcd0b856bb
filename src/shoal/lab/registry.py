"""An in-memory registry with sessions, ephemeral nodes and one-shot watches, as ZooKeeper is one.

A client has a session, which lives as long as the registry hears of it. Ephemeral nodes die with
the session that made them. A watch is told once, of the next change, and must be set again; what
changes in between is seen only by whoever looks. The registry does one operation after the other,
so a crowd waits in line.

Rule: the registry knows paths, not groups. Nothing here says what the paths are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from shoal.testing.clock import VirtualClock
from shoal.testing.network import Connection

REGISTRY: Final = "registry"


class Connect(NamedTuple):
    """Open a session, or come back to one (``session_id``)."""

    session_id: int | None
    timeout_ms: int


class Ping(NamedTuple):
    """I am still here."""


class Create(NamedTuple):
    """Make nodes, each if it is not there: answered with a list of bools."""

    paths: tuple[str, ...]
    data: Any
    ephemeral: bool = True


class Delete(NamedTuple):
    """Remove nodes, whoever made them."""

    paths: tuple[str, ...]


class Children(NamedTuple):
    """The names below a path, and tell me when they change."""

    path: str


class Get(NamedTuple):
    """The data of nodes (None for one that is not there); perhaps tell me when it changes."""

    paths: tuple[str, ...]
    watch: bool = False


class Put(NamedTuple):
    """Set the data of nodes, whoever else does so."""

    values: tuple[tuple[str, Any], ...]


class Close(NamedTuple):
    """End the session: its ephemeral nodes go at once."""


class Changed(NamedTuple):
    """A notification: a watch on this path was due."""

    path: str


class Connected(NamedTuple):
    """The answer to Connect. Another id than the one that was given: that one is no more."""

    session_id: int


class Request(NamedTuple):
    """A request with the client's own number."""

    number: int
    body: Any


class Answer(NamedTuple):
    number: int
    what: str
    value: Any


def describe(message: Any) -> tuple[str, int, str, bool]:
    """Name, count, detail and whether it was pushed, of a message on a connection."""
    if isinstance(message, Changed):
        return "Changed", 1, message.path, True
    if isinstance(message, Answer):
        return f"{message.what} reply", 1, "", False
    if isinstance(message, Connected):
        return "Connect reply", 1, "", False
    body = message.body if isinstance(message, Request) else message
    return type(body).__name__, _weight(body), "", False


def _weight(body: Any) -> int:
    """How many operations a request is: clients of the time had one request for each."""
    match body:
        case Create(paths=paths) | Delete(paths=paths) | Get(paths=paths):
            return max(len(paths), 1)
        case Put(values=values):
            return max(len(values), 1)
        case _:
            return 1


class _Session:
    __slots__ = ("connection", "ephemerals", "heard_ms", "id", "is_alive", "missed", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, connection: Connection) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.heard_ms = 0
        self.connection: Connection | None = connection
        self.ephemerals: dict[str, None] = {}
        self.is_alive = True
        self.missed: list[Changed] = []


class _Node(NamedTuple):
    data: Any
    session_id: int | None


class Registry:
    """The server."""

    def __init__(self, clock: VirtualClock, operation_us: int) -> None:
        self._clock = clock
        self._operation_us = operation_us
        self.on_put: Callable[[str, Any, Any], None] | None = None
        """Hears path, old and new data of every write."""
        self._free_us = 0
        """When the line is empty."""
        self.is_up = True
        self.nodes: dict[str, _Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._watches: dict[str, dict[int, None]] = {}
        self._sessions: dict[int, _Session] = {}
        self._by_connection: dict[Connection, _Session] = {}

    # --- connections ---------------------------------------------------------------------------

    def asked(self, connection: Connection, message: Any) -> None:
        if not self.is_up:
            return
        session = self._by_connection.get(connection)
        if isinstance(message, Ping):
            # Pings do not wait in the line, or a herd would end every session.
            if session is not None:
                session.heard_ms = self._clock.now_ms
            return
        weight = 1 if isinstance(message, Connect) else _weight(message.body)
        self._free_us = max(self._free_us, self._clock.now_ms * 1_000) + weight * self._operation_us
        self._clock.at(-(-self._free_us // 1_000), self._serve, (connection, message))

    def _serve(self, asked: tuple[Connection, Any]) -> None:
        connection, message = asked
        if not self.is_up:
            return
        if isinstance(message, Connect):
            self._connect(connection, message)
            return
        session = self._by_connection.get(connection)
        if session is None or not session.is_alive:
            return
        session.heard_ms = self._clock.now_ms
        body = message.body
        value = self._do(session, body)
        connection.answer(Answer(message.number, type(body).__name__, value))

    def _connect(self, connection: Connection, message: Connect) -> None:
        session = self._sessions.get(message.session_id or 0)
        if session is None or not session.is_alive:
            session = _Session(len(self._sessions) + 1, message.timeout_ms, connection)
            self._sessions[session.id] = session
            self._clock.after(message.timeout_ms, self._expire, session)
        session.connection = connection
        session.heard_ms = self._clock.now_ms
        self._by_connection[connection] = session
        connection.answer(Connected(session.id))
        missed, session.missed = session.missed, []
        for event in missed:
            connection.answer(event)

    def drop(self, connection: Connection) -> None:
        """The connection broke; the session does not know yet what that means."""
        session = self._by_connection.pop(connection, None)
        if session is not None and session.connection is connection:
            session.connection = None

    def _expire(self, session: _Session) -> None:
        if not session.is_alive:
            return
        due_ms = session.heard_ms + session.timeout_ms
        if self._clock.now_ms < due_ms:
            self._clock.at(due_ms, self._expire, session)
        elif not self.is_up:
            # Sessions do not end while nobody could be heard; they start anew afterwards.
            self._clock.after(1_000, self._expire, session)
        else:
            self._end(session)

    def _end(self, session: _Session) -> None:
        session.is_alive = False
        self._remove(tuple(session.ephemerals))
        if session.connection is not None:
            self._by_connection.pop(session.connection, None)

    def fail(self, down_ms: int) -> None:
        """Another server takes over after a while: sessions live on, requests do not."""
        self.is_up = False
        for connection in list(self._by_connection):
            connection.cut(survivors=0, late_ms=0, notice_ms=1)
            self.drop(connection)
        self._clock.after(down_ms, self._restart)

    def _restart(self, _: None) -> None:
        self.is_up = True
        self._free_us = 0
        for session in self._sessions.values():
            session.heard_ms = self._clock.now_ms

    # --- operations ----------------------------------------------------------------------------

    def _do(self, session: _Session, body: Any) -> Any:
        match body:
            case Children(path=path):
                self._watches.setdefault(path, {})[session.id] = None
                return tuple(self._children.get(path, ()))
            case Get(paths=paths, watch=watch):
                if watch:
                    for path in paths:
                        self._watches.setdefault(path, {})[session.id] = None
                return tuple(self.data(path) for path in paths)
            case Create():
                return self._create(session, body)
            case Delete(paths=paths):
                self._remove(paths)
                return None
            case Put(values=values):
                for path, data in values:
                    self.put(path, data)
                return None
            case _:
                assert isinstance(body, Close)
                self._end(session)
                return None

    def data(self, path: str) -> Any:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def _create(self, session: _Session, body: Create) -> list[bool]:
        made = []
        changed: dict[str, None] = {}
        for path in body.paths:
            node = self.nodes.get(path)
            # A client that lost the answer asks again, and finds its own node.
            made.append(node is None or node.session_id == session.id)
            if node is None:
                self.nodes[path] = _Node(body.data, session.id if body.ephemeral else None)
                changed[self._parent(path)[0]] = None
                if body.ephemeral:
                    session.ephemerals[path] = None
        self._tell(changed)
        return made

    def put(self, path: str, data: Any) -> None:
        before = self.nodes.get(path)
        self.nodes[path] = _Node(data, before.session_id if before else None)
        if self.on_put is not None:
            self.on_put(path, before.data if before else None, data)
        if before is None:
            self._tell([self._parent(path)[0]])
        self._tell([path])

    def _remove(self, paths: Iterable[str]) -> None:
        changed: dict[str, None] = {}
        for path in paths:
            node = self.nodes.pop(path, None)
            if node is None:
                continue
            parent, name = path.rsplit("/", 1)
            del self._children[parent][name]
            changed[parent] = None
            if node.session_id is not None:
                self._sessions[node.session_id].ephemerals.pop(path, None)
        self._tell(changed)

    def _parent(self, path: str) -> tuple[str, str]:
        parent, name = path.rsplit("/", 1)
        self._children.setdefault(parent, {})[name] = None
        return parent, name

    def _tell(self, paths: Iterable[str]) -> None:
        """Each watch is told once and is gone."""
        for path in paths:
            for session_id in self._watches.pop(path, {}):
                session = self._sessions[session_id]
                if not session.is_alive:
                    continue
                if session.connection is None:
                    session.missed.append(Changed(path))
                else:
                    session.connection.answer(Changed(path))
