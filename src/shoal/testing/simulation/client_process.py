"""A process of a simulation in which a real client lives, as everything outside sees it.

Rule: what is done to it from outside are the things an operating system and a network do: it is
paused, it is killed, its connections break. What it does with that is the client's business.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from shoal.group.member.classic_member import ClassicMember
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.network import SimulatedConnection
from shoal.testing.simulation.virtual_loop import SimulatedProcess
from shoal.wire.apis.registry import ApiKey

_CONNECTS_PER_SECOND_MAX: Final = 60


class Surroundings(Protocol):
    """The world a process lives in, as far as it matters here."""

    @property
    def clock(self) -> VirtualClock: ...
    @property
    def is_over(self) -> bool: ...
    def remaining_ms(self) -> int: ...


class ClientProcess(SimulatedProcess):
    """What of a client can go wrong from outside."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(name, world.clock)
        self._world = world
        self.connections: list[SimulatedConnection] = []
        self.claimed_generation = -1
        """The generation of the last JoinGroup's claims."""
        self.member: ClassicMember | None = None
        self._cut: tuple[int, int, int] | None = None
        self._connects: deque[int] = deque(maxlen=_CONNECTS_PER_SECOND_MAX)

    def count_connect(self) -> None:
        now_ms = self._world.clock.now_ms
        is_full = len(self._connects) == _CONNECTS_PER_SECOND_MAX
        is_calm = not is_full or self._connects[0] <= now_ms - 1_000
        demand(is_calm, "C12", f"{self.name} opens connections without end")
        self._connects.append(now_ms)

    def on_request(self, api_key: int) -> None:
        if api_key == ApiKey.JOIN_GROUP and self.member is not None:
            self.claimed_generation = self.member.generation.generation_id
        self._cut_now()

    def cut(self, *, survivors: int, late_ms: int, notice_ms: int, at_next_send: bool) -> None:
        """Break all connections, now or when the next request is on its way."""
        self._cut = (survivors, late_ms, notice_ms)
        if not at_next_send:
            self._cut_now()

    def _cut_now(self) -> None:
        if self._cut is not None and not self._world.is_over:
            survivors, late_ms, notice_ms = self._cut
            self._cut = None
            late_ms = min(late_ms, self._world.remaining_ms())
            for connection in self.connections:
                connection.cut(survivors=survivors, late_ms=late_ms, notice_ms=notice_ms)
            self.connections.clear()

    def die(self) -> None:
        """The process is gone; its connections are closed by the system."""
        self.is_alive = False
        for connection in self.connections:
            connection.close()
