"""The brokers: who is there, and which of them leads which partition.

A broker that leaves in order hands its partitions over first. One that dies leaves them without a
leader until its session has ended and the controller has noticed; nobody can read them meanwhile,
whatever the group does. A broker that joins takes the partitions nobody else can lead; the others
stay where they are.

Rule: leaders are the cluster's business. Members learn of them by metadata, never by a rebalance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.lab.world import World

REPLICAS: Final = 3


def broker_name(number: int) -> str:
    return f"b{number}"


class Brokers:
    """The leaders of all partitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        first = [broker_name(number) for number in range(1, world.scenario.brokers + 1)]
        self.up: dict[str, bool] = dict.fromkeys(first, True)
        """Every broker there ever was."""
        self._replicas: dict[TopicPartition, list[str]] = {}
        self.leaders: dict[TopicPartition, str] = {}
        self.leaderless: set[TopicPartition] = set()

    def add(self, tp: TopicPartition) -> None:
        """A new partition: its replicas are the next brokers in turn."""
        names = [name for name, is_up in self.up.items() if is_up] or list(self.up)
        turned = [names[(tp.partition + step) % len(names)] for step in range(len(names))]
        self._replicas[tp] = turned[:REPLICAS]
        self.leaders[tp] = turned[0]

    def is_up(self, name: str) -> bool:
        return self.up.get(name, False)

    def next_after(self, name: str) -> str:
        """The broker that takes over what is not a partition; the same one if it is alone."""
        names = list(self.up)
        at = names.index(name)
        turned = names[at + 1 :] + names[: at + 1]
        return next((each for each in turned if self.up[each]), name)

    def racks(self, topic: str) -> list[list[str | None]]:
        """Of each partition, the racks of its replicas; a broker that is down has none."""
        return [
            [f"rack-{name}" if self.up[name] else None for name in replicas]
            for tp, replicas in sorted(self._replicas.items())
            if tp.topic == topic
        ]

    def rack_of(self, member: str) -> str:
        """The rack a member is in: they are spread over all of them."""
        names = list(self.up)[: self._world.scenario.brokers]
        return f"rack-{names[sum(member.encode()) % len(names)]}"

    # --- what happens to brokers ---------------------------------------------------------------

    def join(self, name: str) -> None:
        self.up[name] = True
        for tp in sorted(self.leaderless):
            self._lead(tp)

    def leave(self, name: str) -> None:
        """In order: others lead before it goes."""
        self.up[name] = False
        for tp in [tp for tp, leader in self.leaders.items() if leader == name]:
            self._lead(tp)

    def die(self, name: str) -> None:
        self.up[name] = False
        for tp, leader in self.leaders.items():
            if leader == name:
                self._set_leaderless(tp, is_leaderless=True)
        notice_ms = self._world.scenario.registry.session_timeout_ms
        self._world.clock.after(notice_ms, self._notice, name)

    def _notice(self, name: str) -> None:
        """The controller hears that a broker's session has ended."""
        moved = [tp for tp in sorted(self.leaderless) if self.leaders[tp] == name]
        for tp in moved:
            self._lead(tp)
        if moved:
            self._world.ledger.mark(
                None, "leaders move", f"the session of {name} has ended, and the controller noticed"
            )

    def _lead(self, tp: TopicPartition) -> None:
        """The first replica that is up leads; without one nobody does."""
        found = next((name for name in self._replicas[tp] if self.up[name]), None)
        if found is not None and found != self.leaders[tp]:
            self.leaders[tp] = found
            self._world.trace.leaders_moved += 1
        self._set_leaderless(tp, is_leaderless=found is None)

    def _set_leaderless(self, tp: TopicPartition, *, is_leaderless: bool) -> None:
        (self.leaderless.add if is_leaderless else self.leaderless.discard)(tp)
        self._world.ledger.set_leaderless(tp, is_leaderless=is_leaderless)
