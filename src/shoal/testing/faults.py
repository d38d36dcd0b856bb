"""What a test wants to go wrong in its broker: errors, delays, cut connections.

Rule: a fault is taken by the next request of its API and counts down; nothing is random and
nothing is left behind when the count is used up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shoal.errors import ErrorCode

if TYPE_CHECKING:
    from shoal.broker.dispatch import Call, Dispatch

ANY: Final = "*"


@dataclass(slots=True)
class Fault:
    """One fault; exactly one of error, delay and drop is meant."""

    api: str
    times: int
    error: ErrorCode | None = None
    delay_seconds: float | None = None
    drop: bool = False
    # Handle the request, then lose the reply: what a client sees of a cut after the work.
    after: bool = False


class FaultPlan:
    """The faults of one broker. Used only on the broker's loop."""

    def __init__(self, dispatch: Dispatch, call_later: Callable[..., object]) -> None:
        self._dispatch = dispatch
        self._call_later = call_later
        self._faults: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()

    @property
    def is_empty(self) -> bool:
        return not self._faults

    def _take(self, api: str) -> Fault | None:
        for fault in self._faults:
            if fault.api in (ANY, api):
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault
        return None

    def intercept(self, call: Call, api: str, frame: memoryview) -> bool:
        fault = self._take(api)
        if fault is None:
            return False
        served = self._dispatch.api(call.api_key)
        assert served is not None
        if fault.drop and fault.after:
            # The frame's buffer is reused when this returns, so the work is done here and now.
            self._dispatch.run(call, served, frame)
            call.connection.close()
        elif fault.drop:
            call.connection.close()
        elif fault.delay_seconds is not None:
            kept = memoryview(bytearray(frame))
            self._call_later(fault.delay_seconds, self._resume, call, kept)
        else:
            assert fault.error is not None
            request, _ = served.request.decode_prefix(frame, call.api_version)
            call.reply(served.refuse(request, fault.error, call.api_version))
        return True

    def _resume(self, call: Call, frame: memoryview) -> None:
        served = self._dispatch.api(call.api_key)
        assert served is not None
        if call.is_open:
            self._dispatch.run(call, served, frame)
