"""The registry: sessions, ephemeral nodes, one-shot watches, a line of operations."""

from __future__ import annotations

from random import Random
from typing import Any

from shoal.lab.registry import (
    Answer,
    Changed,
    Children,
    Close,
    Connect,
    Connected,
    Create,
    Delete,
    Get,
    Ping,
    Put,
    Registry,
    Request,
)
from shoal.testing.clock import VirtualClock
from shoal.testing.network import Connection, Network


class Client:
    """Writes down what it is told."""

    def __init__(self, world: World, session_id: int | None = None, timeout_ms: int = 6_000):
        self.told: list[Any] = []
        self._world = world
        self._number = 0
        self.connection = world.network.connect(self, world.registry)
        self.connection.ask(Connect(session_id, timeout_ms))
        world.settle()

    def answered(self, connection: Connection, message: Any) -> None:
        self.told.append(message)

    def disconnected(self, connection: Connection) -> None:
        pass

    @property
    def session_id(self) -> int:
        return next(m.session_id for m in self.told if isinstance(m, Connected))

    @property
    def changes(self) -> list[str]:
        return [m.path for m in self.told if isinstance(m, Changed)]

    def ask(self, body: Any) -> Any:
        self._number += 1
        self.connection.ask(Request(self._number, body))
        self._world.settle()
        return next(
            (m.value for m in self.told if isinstance(m, Answer) and m.number == self._number), None
        )


class World:
    def __init__(self, operation_us: int = 10) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, Random(1), delay_ms_max=3)
        self.registry = Registry(self.clock, operation_us)

    def settle(self, for_ms: int = 50) -> None:
        self.clock.run_until(self.clock.now_ms + for_ms)


def test_a_watch_is_told_once() -> None:
    world = World()
    watcher, other = Client(world), Client(world)
    assert watcher.ask(Children("ids")) == ()
    other.ask(Create(("ids/a",), "x"))
    other.ask(Create(("ids/b",), "x"))
    assert watcher.changes == ["ids"]
    assert watcher.ask(Children("ids")) == ("a", "b")
    other.ask(Delete(("ids/a",)))
    assert watcher.changes == ["ids", "ids"]


def test_a_node_is_made_once_and_its_maker_may_ask_again() -> None:
    world = World()
    first, second = Client(world), Client(world)
    assert first.ask(Create(("owners/t/0", "owners/t/1"), "first")) == [True, True]
    assert second.ask(Create(("owners/t/1", "owners/t/2"), "second")) == [False, True]
    assert first.ask(Create(("owners/t/0",), "first")) == [True]
    assert second.ask(Get(("owners/t/1", "owners/t/2", "none"))) == ("first", "second", None)


def test_ephemeral_nodes_die_with_their_session_and_others_hear_of_it() -> None:
    world = World()
    silent, watcher = Client(world, timeout_ms=1_000), Client(world, timeout_ms=60_000)
    silent.ask(Create(("ids/silent",), "x"))
    silent.ask(Put((("offsets/t/0", 7),)))
    assert watcher.ask(Children("ids")) == ("silent",)
    world.settle(1_500)
    assert watcher.changes == ["ids"]
    assert watcher.ask(Children("ids")) == ()
    assert watcher.ask(Get(("offsets/t/0",))) == (7,)


def test_pings_keep_a_session_alive() -> None:
    world = World()
    client = Client(world, timeout_ms=1_000)
    client.ask(Create(("ids/a",), "x"))
    for _ in range(10):
        client.connection.ask(Ping())
        world.settle(500)
    assert client.ask(Children("ids")) == ("a",)


def test_closing_ends_a_session_at_once() -> None:
    world = World()
    client, other = Client(world), Client(world)
    client.ask(Create(("ids/a",), "x"))
    client.ask(Close())
    assert other.ask(Children("ids")) == ()


def test_who_comes_back_in_time_keeps_the_session_and_hears_what_was_missed() -> None:
    world = World()
    client, other = Client(world), Client(world)
    client.ask(Create(("ids/a",), "x"))
    client.ask(Children("ids"))
    world.registry.drop(client.connection)
    client.connection.close()
    other.ask(Create(("ids/b",), "x"))
    back = Client(world, client.session_id)
    assert back.session_id == client.session_id
    assert back.changes == ["ids"]


def test_who_comes_back_too_late_gets_another_session() -> None:
    world = World()
    client = Client(world, timeout_ms=1_000)
    world.registry.drop(client.connection)
    world.settle(3_000)
    assert Client(world, client.session_id).session_id != client.session_id


def test_a_crowd_waits_in_line() -> None:
    world = World(operation_us=1_000)
    clients = [Client(world) for _ in range(50)]
    started_ms = world.clock.now_ms
    for client in clients:
        client.connection.ask(Request(99, Get(tuple(f"ids/{n}" for n in range(10)))))
    world.clock.run_until(started_ms + 400)
    answered = [any(isinstance(m, Answer) for m in client.told) for client in clients]
    assert 0 < sum(answered) < 50
    world.settle(200)
    assert all(any(isinstance(m, Answer) for m in client.told) for client in clients)


def test_a_failover_keeps_sessions_and_nodes() -> None:
    world = World()
    client = Client(world, timeout_ms=2_000)
    client.ask(Create(("ids/a",), "x"))
    world.registry.fail(5_000)
    world.settle(5_100)
    back = Client(world, client.session_id, 2_000)
    assert back.session_id == client.session_id
    assert back.ask(Children("ids")) == ("a",)
