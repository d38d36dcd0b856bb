"""What every scheme lives in: one clock, one network, the topics, and the ledger.

Rule: a world decides nothing. It measures, and every message between a member and the registry
or coordinator passes through its network, so all schemes are counted by the same hand.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from shoal.lab.brokers import Brokers
from shoal.lab.commits import CommitBook
from shoal.lab.ledger import Ledger
from shoal.lab.records import GrowingTopics, RecordBook
from shoal.lab.scenario import Act, Scenario
from shoal.lab.trace import SentMessage, Trace
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.network import Client, Network, SimulatedConnection, SimulatedServer
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.lab.reading import Reader
    from shoal.lab.registry.ensemble import Registry

Describe = Callable[[Any], tuple[str, int, str, bool]]
"""A message → its name, how many messages it stands for, a detail, whether it was pushed."""


class Process(Protocol):
    """One member's process, as the scenario's events see it."""

    @property
    def reader(self) -> Reader: ...

    def leave(self) -> None:
        """Close in order."""
        ...

    def crash(self) -> None:
        """Vanish without a word."""
        ...

    def stall(self, for_ms: int) -> None:
        """The user's code hangs; the client's own threads go on."""
        ...

    def pause(self, for_ms: int) -> None:
        """Everything in the process stands still and then goes on, as in a long collection."""
        ...

    def cut(self, for_ms: int) -> None:
        """No message passes between it and the registry or coordinator. Brokers can be reached."""
        ...

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Want these topics from now on."""
        ...


class Scheme(Protocol):
    """One way to rebalance."""

    def start(self, name: str, topics: tuple[str, ...], instance_id: str | None) -> Process:
        """A process starts and wants to be a member."""
        ...

    def fail_over(self, down_ms: int) -> None:
        """The registry or coordinator is gone for a while, then there is one again."""
        ...

    def cut_coordinator(self, for_ms: int) -> None:
        """The coordinator, if there is one, loses the rest of the cluster, but not its members."""
        ...

    def broker_changed(self, broker: str, act: Act) -> None:
        """A broker has come, is about to go in order, or is dead."""
        ...

    @property
    def registry(self) -> Registry | None:
        """The registry, where there is one."""
        ...

    def partitions_added(self, topic: str) -> None:
        """A topic has grown."""
        ...

    def committed(self) -> dict[TopicPartition, int]:
        """The offsets of the group."""
        ...


class World:
    """The surroundings of one run."""

    def __init__(
        self, scenario: Scenario, scheme: str, authorities: tuple[str, ...], describe: Describe
    ) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.random = Random(scenario.seed)
        self.trace = Trace(
            scheme,
            scenario.name,
            scenario.seed,
            -scenario.warmup_ms,
            scenario.duration_ms,
            authorities,
        )
        self.ledger = Ledger(self.trace, self.now)
        self.book = RecordBook()
        self.on_processed: Callable[[TopicPartition, int, int], None] | None = None
        """Somebody else who wants to hear of it."""
        self.topics = GrowingTopics(scenario.topics, self.clock, scenario.work.records_per_second)
        self.network = TracedNetwork(self, describe)
        self.commits = CommitBook(self.now)
        self.brokers = Brokers(self)
        for tp in self.topics.ends:
            self.ledger.exists(tp)
            self.brokers.add(tp)

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
            self.brokers.add(TopicPartition(topic, number))

    def finish(self, committed: dict[TopicPartition, int]) -> None:
        """Close the books."""
        self.ledger.finish()
        trace, book = self.trace, self.book
        trace.records_processed = book.processed
        trace.records_twice = book.twice
        trace.records_lost = sum(book.missing(tp, offset) for tp, offset in committed.items())
        self.commits.finish()
        trace.commits = self.commits.made_count
        trace.commits_lost = self.commits.lost
        trace.commits_repeated = self.commits.repeated


class TracedConnection(SimulatedConnection):
    """A connection that writes down what passes."""

    __slots__ = (
        "_clock",
        "_describe",
        "_messages",
        "_place",
        "_warmup_ms",
        "client_name",
        "server_name",
    )

    def __init__(
        self,
        network: Network,
        client: Client,
        server: SimulatedServer,
        world: World,
        describe: Describe,
    ) -> None:
        super().__init__(network, client, server)
        self.client_name: str = getattr(client, "role", "") or client.name  # type: ignore[attr-defined]  # every client here has one
        self.server_name: str = getattr(server, "role", world.trace.authority)
        self._place: str = getattr(server, "name", "")
        self._clock = world.clock
        self._warmup_ms = world.scenario.warmup_ms
        self._messages = world.trace.messages
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
        warmup_ms = self._warmup_ms
        self._messages.append(
            SentMessage(
                self._clock.now_ms - warmup_ms,
                arrives_ms - warmup_ms,
                sender,
                receiver,
                what,
                count,
                detail,
                is_pushed,
                self._place,
            )
        )


class TracedNetwork(Network):
    """Makes connections to the registry or coordinator."""

    __slots__ = ("_describe", "_world")

    def __init__(self, world: World, describe: Describe) -> None:
        delay_ms = world.scenario.timing.network_delay_ms
        super().__init__(world.clock, world.random, delay_ms_max=delay_ms)
        self._world = world
        self._describe = describe

    def connect(self, client: Client, server: SimulatedServer) -> SimulatedConnection:
        return TracedConnection(self, client, server, self._world, self._describe)
