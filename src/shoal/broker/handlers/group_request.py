"""How a request reaches the coordinators: to one of them, or in parts to several.

Rule: the parts of a request go to the coordinators of their groups, the replies come back here,
and one reply leaves, in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.access.resources import Operation, ResourceType
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.memory import ELEMENT_BYTES, TOO_MUCH
from shoal.group.coordinator.refusals import refusal
from shoal.machine.decision import Caller

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def ask(broker: Broker, call: Call, group_id: str, request: Any, ticket: Any = None) -> Deferred:
    """Hand a request to the group's coordinator; the reply goes to the call or the ticket."""
    caller = caller_of(call, call if ticket is None else ticket)
    broker.groups.ask(group_id, request, caller)
    return LATER


def ask_with_sight(
    broker: Broker, call: Call, group_id: str, request: Any, ticket: Any = None
) -> Deferred:
    """The same for a request that may make expressions match topics: those its sender may see."""
    caller = caller_of(call, call if ticket is None else ticket)
    if broker.rights_in_force:
        caller = caller._replace(sees=partial(call.may, Operation.DESCRIBE, ResourceType.TOPIC))
    broker.groups.ask(group_id, request, caller)
    return LATER


def caller_of(call: Call, ticket: Any) -> Caller:
    return Caller(call.api_version, call.client_id or "", call.client_host, ticket, call.connection)


class Gathering:
    """Waits for the replies of several coordinators, then calls ``finish`` with all of them."""

    def __init__(self, call: Call, finish: Callable[[list[Any]], None]) -> None:
        self._call = call
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
        self._take_one()

    def close(self) -> Deferred:
        """Everything is asked: from here on the last reply ends it."""
        self._take_one()
        return LATER

    def _take_one(self) -> None:
        self._left -= 1
        if self._left == 0:
            with self._call.answered_or_cut():
                self._finish(self._replies)


class _Part:
    __slots__ = ("_gathering", "_number")

    def __init__(self, gathering: Gathering, number: int) -> None:
        self._gathering = gathering
        self._number = number

    def reply(self, response: Any) -> None:
        self._gathering.take(self._number, response)


class _Weighed:
    """A part whose reply counts against what the whole reply may have."""

    __slots__ = ("_call", "_request", "_ticket", "_weigh")

    def __init__(
        self, call: Call, request: Any, ticket: _Part, weigh: Callable[[Any], int]
    ) -> None:
        self._call = call
        self._request = request
        self._ticket = ticket
        self._weigh = weigh

    def reply(self, response: Any) -> None:
        if not self._call.spend(self._weigh(response)):
            response = too_much(self._call, self._request)
        self._ticket.reply(response)


def too_much(call: Call, request: Any) -> Any:
    """In place of an answer for which the reply has no room."""
    return refusal(request, TOO_MUCH, call.api_version)


def in_elements(size_bytes: int) -> int:
    """What a text or some bytes weigh in a reply."""
    return size_bytes // ELEMENT_BYTES


def ask_each(
    broker: Broker,
    call: Call,
    parts: Iterable[tuple[str, Any]],
    finish: Callable[[list[Any]], None],
    weigh: Callable[[Any], int] | None = None,
) -> Generator[None, None, Deferred]:
    """Ask every (group id, request); pauses between.

    Args:
        weigh: how many elements a coordinator's answer has. When there are too many, those that
            come later are refused and nobody is asked for them.
    """
    gathering = Gathering(call, finish)
    for group_id, request in parts:
        part = gathering.ticket()
        if weigh is None:
            ask(broker, call, group_id, request, part)
        elif call.elements_left <= 0:
            part.reply(too_much(call, request))
        else:
            ask(broker, call, group_id, request, _Weighed(call, request, part, weigh))
        yield
    return gathering.close()
