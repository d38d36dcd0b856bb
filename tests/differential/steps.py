"""A case is a conversation: a generator that yields what to send and is sent what came back.

Both brokers have one each, and they are driven in step, so that a case may use what the broker
told it (ids, generations) and is still one list of questions and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from shoal.wire.schema import Message
from tests.differential.place import PATIENCE_S, Place


@dataclass(frozen=True)
class Ask:
    """Send a request and compare the answers.

    ``settles`` marks a question about state that a broker may show a moment later: it is asked
    again for a while until the answers are equal.
    """

    request: Message
    version: int
    on: str = "main"
    settles: bool = False
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Send:
    """Send a request and go on."""

    request: Message
    version: int
    on: str = "main"


@dataclass(frozen=True)
class Receive:
    """Compare the next answers on a connection, to a request that was sent before."""

    key: int
    version: int
    on: str = "main"
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Together:
    """Send requests in one piece and compare all the answers, in order."""

    requests: tuple[tuple[Message, int], ...]
    on: str = "main"


@dataclass(frozen=True)
class Raw:
    """Send bytes as they are; the answer is read as one to ``key`` in ``version``."""

    data: bytes
    key: int
    version: int
    on: str = "raw"


Step = Ask | Send | Receive | Together | Raw
Talk = Generator[Step, Any, None]


@dataclass(frozen=True)
class Case:
    """A named conversation. ``api`` and ``version`` are what it is about."""

    name: str
    api: str
    version: int | None
    talk: Callable[[Place], Talk]
