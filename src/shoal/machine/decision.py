"""What a machine hands to its shell: records to write, replies to send, things to tell.

Rule: a machine never sends, writes or waits. It returns a ``Decision``, and the shell does the
rest, in the order that ``interface.py`` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

RecordT = TypeVar("RecordT", covariant=True)
EventT = TypeVar("EventT", covariant=True)

Ticket: TypeAlias = Any
"""The shell's own handle for a request that waits for its answer; anything but ``None``."""

Response: TypeAlias = Any
"""A response class of ``shoal.wire.apis``."""


class Reply(NamedTuple):
    """The answer to one request, perhaps to one that came long before."""

    ticket: Ticket
    response: Response


class Decision(NamedTuple, Generic[RecordT, EventT]):
    """Records to append, all or none, and the replies that may leave once they are durable."""

    journal: tuple[RecordT, ...] = ()
    replies: tuple[Reply, ...] = ()
    events: tuple[EventT, ...] = ()
    """Worth a line in the log of the process. Told at once, whatever becomes of the records."""


class Caller(NamedTuple):
    """Who sent a request, and how."""

    version: int
    client_id: str
    client_host: str
    ticket: Ticket
    connection: Hashable = None
    """The connection it came on, for machines that care when it breaks."""
    sees: Callable[[str], bool] | None = None
    """Which topics it may see, by name; ``None``: all."""
