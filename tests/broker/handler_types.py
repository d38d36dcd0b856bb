"""``python -m tests.broker.handler_types``: what mypy must agree to, of every handler.

A handler is found by its API's name, so mypy does not see which request it gets. The module that
this prints, one line per API that is served, says it; ``make check`` has it checked.
"""

from __future__ import annotations

from shoal.broker.handlers import SERVED
from shoal.wire.apis.registry import API

_HEAD = """\
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from shoal.broker.broker import Broker
from shoal.broker.dispatch import Call
from shoal.broker.handlers import Deferred
from shoal.wire.schema import Request, ResponseT

RequestT = TypeVar("RequestT")


def takes(request: type[RequestT], handle: Callable[[Broker, Call, RequestT], object]) -> None: ...


def answers(
    request: type[Request[ResponseT]],
    handle: Callable[
        [Broker, Call, Any],
        ResponseT
        | Deferred
        | Generator[None, None, ResponseT | Deferred]
        | Coroutine[Any, Any, ResponseT | Deferred],
    ],
) -> None: ...
"""


def source() -> str:
    lines = [_HEAD]
    for key in SERVED:
        name, module = API[key].name, API[key].key.name.lower()
        lines.append(f"from shoal.broker.handlers.{module} import handle as {module}")
        lines.append(f"from {API[key].module} import {name}Request")
        lines.append(f"takes({name}Request, {module})")
        lines.append(f"answers({name}Request, {module})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(source(), end="")
