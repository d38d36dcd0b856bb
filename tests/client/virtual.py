"""The client on a loop whose time is virtual, with a network that is a function call.

Nothing waits: when every task sleeps, the clock jumps to the next timer. The broker is the
scripted one, asked directly.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from shoal.client.connection import BrokerConnection, _agree_on_versions
from shoal.wire.apis.registry import API
from tests.client.scripted import ScriptedBroker

T = TypeVar("T")
Delay = float | Callable[[str], float]


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which selector it is depends on the system
    """Instead of waiting, moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen again"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class _Pipe(asyncio.Transport):
    """What the client writes goes to the broker; its answer comes ``delay_s`` later.

    The delay may depend on the API; answers still come in the order of the requests.
    """

    def __init__(
        self, broker: ScriptedBroker, connection: BrokerConnection, delay_s: Delay
    ) -> None:
        super().__init__()
        self._broker = broker
        self._connection = connection
        self._delay_s = delay_s
        self._last_due = 0.0
        self._written = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self._written += bytes(data)
        while len(self._written) >= 4:
            size = int.from_bytes(self._written[:4], "big")
            if len(self._written) < 4 + size:
                return
            frame, self._written = self._written[4 : 4 + size], self._written[4 + size :]
            answer = self._broker._answer(frame)
            loop, due = asyncio.get_running_loop(), self._due(frame)
            if answer is None:
                loop.call_at(due, self._connection.connection_lost, None)
                return
            loop.call_at(due, self._deliver, len(answer).to_bytes(4, "big") + answer)

    def _due(self, frame: bytes) -> float:
        delay = self._delay_s
        delay_s = delay(API[int.from_bytes(frame[:2], "big")].name) if callable(delay) else delay
        due = asyncio.get_running_loop().time() + delay_s
        self._last_due = max(due, math.nextafter(self._last_due, math.inf))
        return self._last_due

    def _deliver(self, data: bytes) -> None:
        while data and self._connection.is_open:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._connection.buffer_updated(count)

    def abort(self) -> None:
        pass


def opener(broker: ScriptedBroker, delay_s: Delay = 0.05) -> Any:
    async def open_(host: str, port: int, config: Any, tls: Any, buffers: Any) -> BrokerConnection:
        connection = BrokerConnection(config, f"{host}:{port}", buffers)
        connection.connection_made(_Pipe(broker, connection, delay_s))
        await _agree_on_versions(connection)
        return connection

    return open_


def run(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """The result, and how many virtual seconds it took."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work), loop.time()
    finally:
        left = asyncio.all_tasks(loop)  # of a test that failed half-way
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
