"""What every scheme lives in: one clock, one network, the topics, and the ledger.

Rule: a world decides nothing. It measures, and every message between a member and the registry
or coordinator passes through its network, so all schemes are counted by the same hand.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from shoal.lab.ledger import Ledger
from shoal.lab.records import GrowingTopics, RecordBook
from shoal.lab.scenario import Scenario
from shoal.lab.trace import Message, Trace
from shoal.testing.clock import VirtualClock
from shoal.testing.network import Client, Connection, Network, Server
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.lab.reading import Reader

Describe = Callable[[Any], tuple[str, int, str, bool]]
"""A message → its name, how many messages it stands for, a detail, whether it was pushed."""


class Process(Protocol):
    """One member's process, as the scenario's events see it."""

    @property
    def reader(self) -> Reader: ...

    def leave(self) -> None:
        """Close in order."""

    def crash(self) -> None:
        """Vanish without a word."""

    def stall(self, for_ms: int) -> None:
        """The user's code hangs; the client's own threads go on."""

    def pause(self, for_ms: int) -> None:
        """Everything in the process stands still and then goes on, as in a long collection."""

    def cut(self, for_ms: int) -> None:
        """No message passes between it and the registry or coordinator. Brokers can be reached."""

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Want these topics from now on."""


class Scheme(Protocol):
    """One way to rebalance."""

    def start(self, name: str, topics: tuple[str, ...], instance_id: str | None) -> Process:
        """A process starts and wants to be a member."""

    def fail_over(self, down_ms: int) -> None:
        """The registry or coordinator is gone for a while, then there is one again."""

    def partitions_added(self, topic: str) -> None:
        """A topic has grown."""

    def committed(self) -> dict[TopicPartition, int]:
        """The offsets of the group."""


class World:
    """The surroundings of one run."""

    def __init__(self, scenario: Scenario, scheme: str, authority: str, describe: Describe) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.random = Random(scenario.seed)
        self.trace = Trace(
            scheme,
            scenario.name,
            scenario.seed,
            -scenario.warmup_ms,
            scenario.duration_ms,
            authority,
        )
        self.ledger = Ledger(self.trace, self.now)
        self.book = RecordBook()
        self.on_processed: Callable[[TopicPartition, int, int], None] | None = None
        """Somebody else who wants to hear of it."""
        self.topics = GrowingTopics(scenario.topics, self.now, scenario.work.records_per_second)
        self.network = TracedNetwork(self, authority, describe)
        for tp in self.topics.ends:
            self.ledger.exists(tp)

    def now(self) -> int:
        """Zero is when the group has settled; the clock starts earlier."""
        return self.clock.now_ms - self.scenario.warmup_ms

    def processed(self, tp: TopicPartition, start: int, end: int) -> None:
        self.book.process(tp, start, end)
        if self.on_processed is not None:
            self.on_processed(tp, start, end)

    def grow(self, topic: str, partitions: int) -> None:
        before = self.topics.counts[topic]
        self.topics.grow(topic, partitions)
        for number in range(before, partitions):
            self.ledger.exists(TopicPartition(topic, number))

    def finish(self, committed: dict[TopicPartition, int]) -> None:
        """Close the books."""
        self.ledger.finish()
        trace, book = self.trace, self.book
        trace.records_processed = book.processed
        trace.records_twice = book.twice
        trace.records_lost = sum(book.missing(tp, offset) for tp, offset in committed.items())


class TracedConnection(Connection):
    """A connection that writes down what passes."""

    __slots__ = ("_describe", "_world", "client_name", "server_name")

    def __init__(
        self,
        network: Network,
        client: Client,
        server: Server,
        names: tuple[str, str],
        world: World,
        describe: Describe,
    ) -> None:
        super().__init__(network, client, server)
        self.client_name, self.server_name = names
        self._world = world
        self._describe = describe

    def ask(self, message: Any) -> None:
        if self.is_open:
            super().ask(message)
            self._note(self.client_name, self.server_name, self._requests_ms, message)

    def answer(self, message: Any) -> None:
        if self.is_open:
            super().answer(message)
            self._note(self.server_name, self.client_name, self._answers_ms, message)

    def _note(self, sender: str, receiver: str, arrives_ms: int, message: Any) -> None:
        what, count, detail, is_pushed = self._describe(message)
        world = self._world
        world.trace.messages.append(
            Message(
                world.now(),
                arrives_ms - world.scenario.warmup_ms,
                sender,
                receiver,
                what,
                count,
                detail,
                is_pushed,
            )
        )


class TracedNetwork(Network):
    """Makes connections to the authority."""

    __slots__ = ("_authority", "_describe", "_world")

    def __init__(self, world: World, authority: str, describe: Describe) -> None:
        delay_ms = world.scenario.timing.network_delay_ms
        super().__init__(world.clock, world.random, delay_ms_max=delay_ms)
        self._world = world
        self._authority = authority
        self._describe = describe

    def connect(self, client: Client, server: Server) -> Connection:
        name: str = client.name  # type: ignore[attr-defined]  # every client here has one
        names = (name, self._authority)
        return TracedConnection(self, client, server, names, self._world, self._describe)
