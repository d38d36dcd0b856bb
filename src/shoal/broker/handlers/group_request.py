"""How a request reaches the coordinators: to one of them, or in parts to several.

Rule: the parts of a request go to the shards of their groups, the replies come back here, and one
reply leaves, in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def ask(broker: Broker, call: Call, group_id: str, request: Any, ticket: Any = None) -> None:
    """Hand a request to the group's coordinator; the reply goes to the call or the ticket."""
    broker.groups.ask(
        group_id,
        request,
        version=call.api_version,
        client=(call.client_id, call.client_host),
        ticket=call if ticket is None else ticket,
    )


class Gathering:
    """Waits for the replies of several coordinators, then calls ``finish`` with all of them."""

    def __init__(self, finish: Callable[[list[Any]], None]) -> None:
        self._finish = finish
        self._replies: list[Any] = []
        self._left = 1

    def ticket(self) -> _Part:
        number = len(self._replies)
        self._replies.append(None)
        self._left += 1
        return _Part(self, number)

    def take(self, number: int, response: Any) -> None:
        self._replies[number] = response
        self.close()

    def close(self) -> None:
        """Everything is asked: from here on the last reply ends it."""
        self._left -= 1
        if self._left == 0:
            self._finish(self._replies)


class _Part:
    __slots__ = ("_gathering", "_number")

    def __init__(self, gathering: Gathering, number: int) -> None:
        self._gathering = gathering
        self._number = number

    def reply(self, response: Any) -> None:
        self._gathering.take(self._number, response)


def ask_each(
    broker: Broker,
    call: Call,
    parts: Iterable[tuple[str, Any]],
    finish: Callable[[list[Any]], None],
) -> Generator[None, None, None]:
    """Ask every (group id, request); pauses between."""
    gathering = Gathering(finish)
    for group_id, request in parts:
        ask(broker, call, group_id, request, gathering.ticket())
        yield
    gathering.close()
