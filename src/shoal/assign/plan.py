"""What if: what a change to a group would move, stop and leave uneven, before it is made.

From a described group and a change, every assignor is run through the rebalances that the change
causes, each member with an assignor object of its own as in a real group. Nothing here knows Kafka
clusters or files; see ``plan_document`` and ``plan_picture`` for what goes in and what comes out.

- *moved*: partitions read by one member before a rebalance and by another after it.
- *stopped*: partitions that nobody reads for a while. In an eager rebalance that is everything; in
  a cooperative one it is what moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Final, TypeAlias

from shoal.assign.loading import BUILT_IN, AssignorLike, load
from shoal.assign.model import (
    Assignment,
    Assignor,
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
)
from shoal.assign.plan_broker import BrokerAssignor, broker_assignors
from shoal.errors import counted
from shoal.types import ConsumerGroupMetadata, TopicPartition

# Kafka's own tests allow four rounds until nothing is given up any more.
ROUNDS_MAX: Final = 10

Owned: TypeAlias = Mapping[str, Sequence[TopicPartition]]


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic; ``lag`` and ``bytes_per_s`` are per partition, or empty when not known."""

    partitions: int
    lag: Sequence[float] = ()
    bytes_per_s: Sequence[float] = ()
    racks: Sequence[Sequence[str | None]] = ()


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member of the group."""

    topics: Sequence[str]
    instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group at rest."""

    topics: Mapping[str, PlannedTopic]
    members: Mapping[str, PlannedMember]
    assignor: str | None = None
    """What the group uses now, if that is known."""
    owned: Owned = field(default_factory=dict)
    """Who reads what now; if nothing, each assignor starts from an assignment of its own."""
    protocol: str = "classic"
    """Who assigns: a member that leads (classic), or the broker (consumer, KIP-848)."""


@dataclass(frozen=True, slots=True)
class Join:
    """Members come, all in one rebalance."""

    members: Mapping[str, PlannedMember]

    def __str__(self) -> str:
        return _listed(self.members, "joins", "join")


@dataclass(frozen=True, slots=True)
class Leave:
    """Members go, all in one rebalance."""

    member_ids: Sequence[str]

    def __str__(self) -> str:
        return _listed(self.member_ids, "leaves", "leave")


@dataclass(frozen=True, slots=True)
class Resize:
    """Topics get another number of partitions, new topics included."""

    partitions: Mapping[str, int]

    def __str__(self) -> str:
        return ", ".join(
            f"{topic} gets {counted(n, 'partition')}" for topic, n in self.partitions.items()
        )


@dataclass(frozen=True, slots=True)
class Resubscribe:
    """Members change what they subscribe to, all in one rebalance."""

    topics: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        return ", ".join(
            f"{member_id} subscribes to {' '.join(topics) or 'nothing'}"
            for member_id, topics in self.topics.items()
        )


@dataclass(frozen=True, slots=True)
class Switch:
    """The group changes to another assignor; all members restart and remember nothing."""

    assignor: str | None = None
    """None: compare all of them."""

    def __str__(self) -> str:
        return f"the group changes to {self.assignor or 'another assignor'}"


@dataclass(frozen=True, slots=True)
class Restart:
    """Every member is restarted, one after another.

    A dynamic member leaves and joins: two rebalances each. A static one that is back within the
    session timeout causes none; only its own partitions wait for it.
    """

    static: bool

    def __str__(self) -> str:
        return f"all members restart one by one ({'static' if self.static else 'dynamic'})"


ChangeAtOnce: TypeAlias = Join | Leave | Resize | Resubscribe
Change: TypeAlias = ChangeAtOnce | Switch | Restart


def _listed(names: Sequence[str] | Mapping[str, object], one: str, many: str) -> str:
    shown = [*names][:3]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(shown)}{more} {one if len(names) == 1 else many}"


@dataclass(frozen=True, slots=True)
class Load:
    """How evenly something is spread over the members."""

    minimum: float
    maximum: float
    mean: float
    deviation: float
    """The standard deviation."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One rebalance, or one restart without any."""

    what: str
    rounds: int
    moved: int
    stopped: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the changes mean for a group with this assignor."""

    assignor: str
    protocol: RebalanceProtocol
    steps: Sequence[PlanStep]
    before: Owned
    after: Owned
    loads_before: Mapping[str, Load]
    """By ``partitions``, and by ``lag`` and ``bytes_per_s`` where those are known."""
    loads_after: Mapping[str, Load]

    @property
    def rebalances(self) -> int:
        return sum(step.rounds for step in self.steps)

    @property
    def moved(self) -> int:
        return sum(step.moved for step in self.steps)

    @property
    def stopped(self) -> int:
        return sum(step.stopped for step in self.steps)


@dataclass(frozen=True, slots=True)
class Plan:
    """All outcomes side by side."""

    group: PlannedGroup
    changes: Sequence[Change]
    outcomes: Sequence[Outcome]


def plan(
    group: PlannedGroup,
    changes: Sequence[Change] = (),
    assignors: Sequence[AssignorLike] | None = None,
) -> Plan:
    """Run the changes through every assignor.

    Raises:
        ValueError: a change names a member or topic that is not there, or one that already is.
    """
    if assignors is None:
        switch = next((c for c in changes if isinstance(c, Switch) and c.assignor), None)
        if switch and switch.assignor:
            assignors = [switch.assignor]
        elif group.protocol == "consumer":
            assignors = broker_assignors()
        else:
            assignors = list(BUILT_IN)
    outcomes = [GroupReplay(group, assignor).run(changes) for assignor in assignors]
    return Plan(group, changes, outcomes)


class GroupReplay:
    """One group under one assignor, from one rebalance to the next."""

    def __init__(self, group: PlannedGroup, assignor: AssignorLike) -> None:
        self._group = group
        self._make: Callable[[], Assignor] = lambda: load([assignor])[0]
        self._leader = self._make()
        self._protocol = max(self._leader.supported_protocols)
        # A broker computes its target once; members then go there on their own.
        self._rounds_max = 1 if isinstance(self._leader, BrokerAssignor) else ROUNDS_MAX
        self._assignors: dict[str, Assignor] = {}
        self._owned: dict[str, Sequence[TopicPartition]] = {}
        self._generation = 0
        self._steps: list[PlanStep] = []

    @property
    def owned(self) -> Owned:
        """Who reads what."""
        return self._owned

    def start(self) -> None:
        """Let the group come to rest as it is described."""
        self._start(())

    def rebalance(self, what: str, changes: Sequence[ChangeAtOnce]) -> PlanStep:
        """One rebalance after all of ``changes``; if everybody has left there is none."""
        before = dict(self._owned)
        for change in changes:
            self._group = changed(self._group, change, may_end=True)
        self._forget_the_absent()
        if not self._group.members:
            return PlanStep(what, 0, 0, 0)
        self._rebalance(what, before)
        return self._steps.pop()

    def run(self, changes: Sequence[Change]) -> Outcome:
        """What all of ``changes`` mean, one after another."""
        self._start(changes)
        before = dict(self._owned)
        loads_before = loads(self._group, before)
        for change in changes:
            self._apply(change)
        return Outcome(
            assignor=self._leader.name,
            protocol=self._protocol,
            steps=self._steps,
            before=before,
            after=dict(self._owned),
            loads_before=loads_before,
            loads_after=loads(self._group, self._owned),
        )

    def _start(self, changes: Sequence[Change]) -> None:
        group = self._group
        starts_elsewhere = any(isinstance(change, Switch) for change in changes) and group.assignor
        if group.owned:
            for member_id in group.members:
                self._hear(member_id, group.owned.get(member_id, ()))
        elif starts_elsewhere:
            other = GroupReplay(group, group.assignor or "").run(())
            self._owned = dict(other.before)
        else:
            self._rebalance("start")
            self._steps.clear()

    def _apply(self, change: Change) -> None:
        if isinstance(change, Restart):
            self._restart(static=change.static)
            return
        if isinstance(change, Switch):
            before = dict(self._owned)
            self._assignors.clear()
            self._owned.clear()
            self._rebalance(str(change), before)
            last = self._steps[-1]
            # Whatever the protocol, every member was away once.
            stopped = sum(map(len, before.values()))
            self._steps[-1] = replace(last, stopped=stopped)
            return
        before = dict(self._owned)
        self._group = changed(self._group, change)
        self._forget_the_absent()
        self._rebalance(str(change), before)

    def _forget_the_absent(self) -> None:
        for member_id in [m for m in self._owned if m not in self._group.members]:
            self._forget(member_id)

    def _restart(self, *, static: bool) -> None:
        members = dict(self._group.members)
        for member_id, member in members.items():
            if static:
                waiting = len(self._owned.get(member_id, ()))
                self._steps.append(PlanStep(f"{member_id} restarts", 0, 0, waiting))
                continue
            before = dict(self._owned)
            rest = {other: one for other, one in members.items() if other != member_id}
            self._forget(member_id)
            if rest:
                self._group = replace(self._group, members=rest)
                self._rebalance(f"{member_id} leaves", before)
                before = dict(self._owned)
            self._group = replace(self._group, members={**rest, member_id: member})
            self._rebalance(f"{member_id} is back", before)
        self._group = replace(self._group, members=members)

    def _assignor_of(self, member_id: str) -> Assignor:
        """Each member has its own, as in a real group; making one costs more than using it."""
        found = self._assignors.get(member_id)
        if found is None:
            found = self._assignors[member_id] = self._make()
        return found

    def _forget(self, member_id: str) -> None:
        self._assignors.pop(member_id, None)
        self._owned.pop(member_id, None)

    def _hear(self, member_id: str, partitions: Sequence[TopicPartition]) -> None:
        assignor = self._assignor_of(member_id)
        metadata = ConsumerGroupMetadata("plan", self._generation, member_id)
        assignor.on_assignment(Assignment(partitions), metadata)
        self._owned[member_id] = partitions

    def _rebalance(self, what: str, before: Owned | None = None) -> None:
        """Rounds until nobody has to give anything up; an eager group needs one."""
        before = dict(self._owned) if before is None else before
        rounds = 0
        given_up = True
        while given_up and rounds < self._rounds_max:
            rounds += 1
            result = self._leader.assign(metadata_of(self._group), self._subscriptions())
            self._generation += 1
            given_up = False
            for member_id in self._group.members:
                assignment = result.get(member_id, Assignment())
                owned = self._owned.get(member_id, ())
                if self._protocol is RebalanceProtocol.COOPERATIVE:
                    given_up |= not set(owned) <= set(assignment.partitions)
                self._hear(member_id, assignment.partitions)
        moved = len(moves(before, self._owned))
        eager = self._protocol is RebalanceProtocol.EAGER
        stopped = sum(map(len, before.values())) if eager else moved
        self._steps.append(PlanStep(what, rounds, moved, stopped))

    def _subscriptions(self) -> dict[str, Subscription]:
        cooperative = self._protocol is RebalanceProtocol.COOPERATIVE
        subscriptions = {}
        for member_id, member in self._group.members.items():
            assignor = self._assignor_of(member_id)
            knows = member_id in self._owned
            subscriptions[member_id] = Subscription(
                topics=tuple(member.topics),
                user_data=assignor.subscription_user_data(member.topics),
                # Eager members have given everything up before they join.
                owned_partitions=self._owned.get(member_id, ()) if cooperative else (),
                group_instance_id=member.instance_id,
                generation_id=self._generation if knows else None,
                rack_id=member.rack,
            )
        return subscriptions


def metadata_of(group: PlannedGroup) -> ClusterMetadata:
    """What the leader of the group would know of the cluster."""
    return ClusterMetadata(
        {name: topic.partitions for name, topic in group.topics.items()},
        {name: topic.racks for name, topic in group.topics.items() if topic.racks},
    )


def changed(group: PlannedGroup, change: ChangeAtOnce, *, may_end: bool = False) -> PlannedGroup:
    """The group after a change; with ``may_end`` everybody may leave.

    Raises:
        ValueError: the change does not fit the group.
    """
    members = dict(group.members)
    match change:
        case Join(joining):
            for member_id in joining:
                if member_id in members:
                    raise ValueError(f"member {member_id!r} cannot join: it is in the group")
            return replace(group, members={**members, **joining})
        case Leave(leaving):
            for member_id in leaving:
                if members.pop(member_id, None) is None:
                    raise ValueError(f"member {member_id!r} cannot leave: it is not in the group")
            if not members and not may_end:
                raise ValueError("everybody leaves; there is nothing to plan")
            return replace(group, members=members)
        case Resize(partitions):
            topics = dict(group.topics)
            for name, count in partitions.items():
                topics[name] = replace(topics.get(name, PlannedTopic(0)), partitions=count)
            return replace(group, topics=topics)
        case Resubscribe(wanted):
            for member_id, names in wanted.items():
                if member_id not in members:
                    raise ValueError(f"member {member_id!r} is not in the group")
                members[member_id] = replace(members[member_id], topics=names)
            return replace(group, members=members)


def moves(before: Owned, after: Owned) -> dict[TopicPartition, tuple[str, str]]:
    """Partition → (old, new) member, for partitions that both had an owner and got another."""
    old = {tp: member_id for member_id, owned in before.items() for tp in owned}
    return {
        tp: (old[tp], member_id)
        for member_id, owned in after.items()
        for tp in owned
        if old.get(tp, member_id) != member_id
    }


def loads(group: PlannedGroup, owned: Owned) -> dict[str, Load]:
    """How evenly partitions, lag and bytes are spread over the members."""
    of_members = [owned.get(member_id, ()) for member_id in group.members]
    measured = {"partitions": [float(len(partitions)) for partitions in of_members]}
    for name in ("lag", "bytes_per_s"):
        if any(getattr(topic, name) for topic in group.topics.values()):
            weights = {
                TopicPartition(topic, number): value
                for topic, one in group.topics.items()
                for number, value in enumerate(getattr(one, name))
            }
            measured[name] = [sum(weights.get(tp, 0) for tp in held) for held in of_members]
    return {name: spread(values) for name, values in measured.items()}


def spread(values: Sequence[float]) -> Load:
    """Minimum, maximum, mean and standard deviation."""
    mean = sum(values) / len(values)
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return Load(min(values), max(values), mean, deviation)
