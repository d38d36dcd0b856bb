"""What a member and the coordinator of scheme 2 say to each other.

Rule: whatever tells a member what to do carries the coordinator's epoch, and whatever stores an
offset carries the generation.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from shoal.errors import counted
from shoal.lab.registry import messages as registry_messages
from shoal.types import TopicPartition

COORDINATOR: Final = "coordinator"

Offsets: TypeAlias = tuple[tuple[TopicPartition, int], ...]


class Register(NamedTuple):
    """Here I am; I am in the registry already."""

    name: str
    generation: int
    holds: bool
    """I read what I was given in that generation."""


class Stopped(NamedTuple):
    """I read nothing any more; this is how far I came."""

    name: str
    generation: int
    offsets: Offsets


class CentralOffsetCommit(NamedTuple):
    name: str
    generation: int
    offsets: Offsets


class Unregister(NamedTuple):
    """I leave; this is how far I came."""

    name: str
    generation: int
    offsets: Offsets


class CentralReply(NamedTuple):
    what: str
    is_accepted: bool
    offsets: Offsets = ()


class Stop(NamedTuple):
    """Pushed: stop reading."""

    epoch: int


class Start(NamedTuple):
    """Pushed: read these, from these offsets."""

    epoch: int
    generation: int
    share: Offsets


_OF_MEMBERS: Final = frozenset({Register, Stopped, CentralOffsetCommit, Unregister})


def describe(message: Any) -> tuple[str, int, str, bool]:
    """Name, count, detail and whether it was pushed, of a message on a connection."""
    kind = type(message)
    if kind in _OF_MEMBERS:
        return kind.__name__, 1, "", False
    if kind is CentralReply:
        return f"{message.what} reply", 1, "" if message.is_accepted else "REFUSED", False
    if kind is Stop:
        return "Stop", 1, f"epoch {message.epoch}", True
    if kind is Start:
        share = counted(len(message.share), "partition")
        return "Start", 1, f"epoch {message.epoch}, generation {message.generation}, {share}", True
    return registry_messages.describe(message)
