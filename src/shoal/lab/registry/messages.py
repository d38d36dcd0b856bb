"""What a client and a server of the registry say to each other.

Rule: a message names paths and carries data; nothing here says what either is for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

REGISTRY: Final = "registry"


class Watch(NamedTuple):
    """Tell me once, when the node at this path changes, or the names below it."""

    path: str
    of_children: bool


class Connect(NamedTuple):
    """Open a session, or come back to one (``session_id``) with the watches that are still due."""

    session_id: int | None
    timeout_ms: int
    seen: int = 0
    """The last change this client has seen: it must not go back in time."""
    watches: tuple[Watch, ...] = ()


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


class Put(NamedTuple):
    """Set the data of nodes, whoever else does so; answered with whether it was done."""

    values: tuple[tuple[str, Any], ...]
    guard: tuple[str, Any] | None = None
    """Only if the node at this path has this data: so a former leader can be kept out."""


class Children(NamedTuple):
    """The names below a path, and tell me when they change."""

    path: str


class Get(NamedTuple):
    """The data of nodes (None for one that is not there); perhaps tell me when it changes."""

    paths: tuple[str, ...]
    watch: bool = False


class Sync(NamedTuple):
    """Let my server catch up with the leader before it answers."""


class Close(NamedTuple):
    """End the session: its ephemeral nodes go at once."""


class Changed(NamedTuple):
    """A notification: a watch was due."""

    watch: Watch
    seen: int


class Connected(NamedTuple):
    """The answer to Connect. Another id than the one that was given: that one is no more."""

    session_id: int


class Behind(NamedTuple):
    """The other answer: this server has not seen what the client has. Try another one."""


class RegistryRequest(NamedTuple):
    """A request with the client's own number."""

    number: int
    body: Any


class RegistryAnswer(NamedTuple):
    number: int
    what: str
    value: Any
    seen: int


def weight(body: Any) -> int:
    """How many operations a request is: clients of the time had one request for each."""
    match body:
        case Create(paths=paths) | Delete(paths=paths) | Get(paths=paths):
            return max(len(paths), 1)
        case Put(values=values):
            return max(len(values), 1)
        case _:
            return 1


def describe(message: Any) -> tuple[str, int, str, bool]:
    """Name, count, detail and whether it was pushed, of a message on a connection."""
    if type(message) is Ping:
        return "Ping", 1, "", False  # most of them are
    if isinstance(message, Changed):
        return "Changed", 1, message.watch.path, True
    if isinstance(message, RegistryAnswer):
        return f"{message.what} reply", 1, "", False
    if isinstance(message, Connected | Behind):
        return "Connect reply", 1, "", False
    body = message.body if isinstance(message, RegistryRequest) else message
    return type(body).__name__, weight(body), _detail(body), False


def _detail(body: Any) -> str:
    match body:
        case Children(path=path):
            return path
        case Create(paths=(first, *_)) | Delete(paths=(first, *_)) | Get(paths=(first, *_)):
            return str(first)
        case Put(values=((path, _), *_)):
            return str(path)
        case _:
            return ""
