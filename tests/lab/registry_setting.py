"""A registry on its own, and clients that write down what they are told."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.ensemble import Registry
from shoal.lab.registry.messages import Changed, Connect, Connected, RegistryAnswer, RegistryRequest
from shoal.lab.scenario import RegistrySettings
from shoal.lab.world import World
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.network import Network, SimulatedConnection


class Setting:
    """A clock, a network, a registry."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.network = Network(self.clock, self.random, delay_ms_max=3)
        chosen = RegistrySettings(**{"operation_us": 10, **settings})
        self.registry = Registry(self.clock, chosen, self.random)

    def settle(self, for_ms: int = 50) -> None:
        self.clock.run_until(self.clock.now_ms + for_ms)

    def client(self, server: int = 0, **named: Any) -> Client:
        return Client(self, server, **named)

    def user(self, name: str, on_changed: Callable[[str], None] | None = None) -> User:
        return User(self, name, on_changed)


class Client:
    """A bare connection to one server."""

    name = "client"

    def __init__(
        self,
        setting: Setting,
        server: int,
        *,
        session_id: int | None = None,
        timeout_ms: int = 6_000,
        seen: int = 0,
        watches: tuple[Any, ...] = (),
    ) -> None:
        self.told: list[Any] = []
        self._setting = setting
        self._number = 0
        self.connection = setting.network.connect(self, setting.registry.servers[server])
        self.connection.ask(Connect(session_id, timeout_ms, seen, watches))
        setting.settle()

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        self.told.append(message)

    def disconnected(self, connection: SimulatedConnection) -> None:
        pass

    @property
    def session_id(self) -> int:
        return next(m.session_id for m in self.told if isinstance(m, Connected))

    @property
    def changes(self) -> list[str]:
        return [m.watch.path for m in self.told if isinstance(m, Changed)]

    def send(self, body: Any) -> int:
        self._number += 1
        self.connection.ask(RegistryRequest(self._number, body))
        return self._number

    def answer(self, number: int) -> RegistryAnswer | None:
        return next(
            (m for m in self.told if isinstance(m, RegistryAnswer) and m.number == number), None
        )

    def ask(self, body: Any, *, wait_ms: int = 50) -> Any:
        number = self.send(body)
        self._setting.settle(wait_ms)
        answer = self.answer(number)
        return None if answer is None else answer.value


class User:
    """Owns a session of the real client."""

    def __init__(
        self, setting: Setting, name: str, on_changed: Callable[[str], None] | None = None
    ) -> None:
        self.sessions = 0
        self.changes: list[str] = []
        self._on_changed = on_changed
        # Of a world a client uses just what the setting has.
        self.client = RegistryClient(cast("World", setting), setting.registry, name, self)

    def session_began(self, *, is_first: bool) -> None:
        self.sessions += 1

    def changed(self, path: str) -> None:
        self.changes.append(path)
        if self._on_changed is not None:
            self._on_changed(path)

    def ask(self, body: Any, **named: Any) -> list[Any]:
        """The answer, in a list that is empty until there is one."""
        answers: list[Any] = []
        self.client.ask(body, answers.append, **named)
        return answers
