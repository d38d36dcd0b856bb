"""A broker of the first two schemes, as the registry sees it: a session and a node.

Rule: whoever wants to know of a broker watches its node. A broker that dies is gone when its
session ends, not sooner.
"""

from __future__ import annotations

from shoal.lab.paths import broker_path, offset_path, topic_path
from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.ensemble import Registry
from shoal.lab.registry.messages import Create
from shoal.lab.scenario import Act
from shoal.lab.world import World
from shoal.types import TopicPartition


class RegisteredBroker:
    """One broker's session."""

    def __init__(self, world: World, registry: Registry, name: str) -> None:
        self.name = name
        self.client = RegistryClient(world, registry, name, self)

    def session_began(self, *, is_first: bool) -> None:  # noqa: ARG002  # registers in any case
        self.client.ask(Create((broker_path(self.name),), self.name))

    def changed(self, path: str) -> None:
        """It watches nothing."""


class RegisteredBrokers:
    """The brokers of a scheme without another use for them."""

    def __init__(self, world: World, registry: Registry) -> None:
        self._world = world
        self._registry = registry
        self._brokers = {name: RegisteredBroker(world, registry, name) for name in world.brokers.up}
        register_topics(world, registry)

    def changed(self, broker: str, act: Act) -> None:
        if act is Act.BROKER_JOINS:
            self._brokers[broker] = RegisteredBroker(self._world, self._registry, broker)
        elif broker in self._brokers:
            client = self._brokers.pop(broker).client
            client.close() if act is Act.BROKER_LEAVES else client.crash()


def register_topics(world: World, registry: Registry) -> None:
    """What the brokers have written there before anybody joined."""
    for topic, count in world.topics.counts.items():
        registry.put_now(topic_path(topic), count)


def stored_offsets(world: World, registry: Registry) -> dict[TopicPartition, int]:
    """The offsets of the group, where the registry keeps them."""
    return {tp: registry.data(offset_path(tp)) or 0 for tp in world.topics.ends}
