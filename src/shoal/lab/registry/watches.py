"""Who wants to be told of what, on one server.

Rule: a watch is told once and is gone. What changes until it is set again is seen only by whoever
looks.
"""

from __future__ import annotations

from shoal.lab.registry.messages import Watch
from shoal.testing.simulation.network import SimulatedConnection


class Watches:
    """The watches of the clients that are connected to one server."""

    def __init__(self) -> None:
        self._waiting: dict[Watch, dict[SimulatedConnection, None]] = {}

    def add(self, watch: Watch, connection: SimulatedConnection) -> None:
        self._waiting.setdefault(watch, {})[connection] = None

    def take(self, watch: Watch) -> list[SimulatedConnection]:
        """Who is to be told now; they are not told again."""
        waiting = self._waiting.pop(watch, None)
        return [each for each in waiting if each.is_open] if waiting else []

    def clear(self) -> None:
        """The server is gone; clients bring their watches to the next one."""
        self._waiting.clear()

    def __len__(self) -> int:
        return sum(each.is_open for waiting in self._waiting.values() for each in waiting)
