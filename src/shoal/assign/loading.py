"""What a user wrote becomes assignors that may run; what they return becomes what may be used.

Rule: whatever a custom assignor does wrong is found here, before the group adopts it, and the
error names the assignor. The built-in ones pass through the same checks in tests, not at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from typing import Final, TypeAlias

from shoal.assign.model import (
    AssignFunction,
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.errors import InvalidAssignmentError
from shoal.types import ConsumerGroupMetadata, TopicPartition

ENTRY_POINT_GROUP: Final = "shoal.assignors"

# Known without asking the installed packages: reading entry points costs more than an assignment.
BUILT_IN: Final[dict[str, tuple[str, str]]] = {
    "range": ("shoal.assign.range", "RangeAssignor"),
    "roundrobin": ("shoal.assign.roundrobin", "RoundRobinAssignor"),
    "sticky": ("shoal.assign.sticky", "StickyAssignor"),
    "cooperative-sticky": ("shoal.assign.sticky", "CooperativeStickyAssignor"),
}

AssignorLike: TypeAlias = "str | Assignor | type[Assignor] | AssignFunction"


class FunctionAssignor:
    """A plain function as an assignor: eager, without user data or memory."""

    version = 0
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self, function: AssignFunction, name: str | None = None) -> None:
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._function = function

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        return None

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        result = self._function(metadata, subscriptions)
        if not isinstance(result, Mapping):
            raise InvalidAssignmentError(
                self.name, f"a mapping of member ids was expected, not {type(result).__name__}"
            )
        return {
            member_id: given if isinstance(given, Assignment) else Assignment(tuple(given))
            for member_id, given in result.items()
        }

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        pass


def load(assignors: Iterable[AssignorLike]) -> list[Assignor]:
    """Assignors by name, class, object or plain function, in order of preference.

    Raises:
        ValueError: an unknown name, two of one name, or none at all.
        TypeError: something that is no assignor.
    """
    loaded = [_load_one(given) for given in assignors]
    if not loaded:
        raise ValueError("at least one assignor is needed")
    names = [assignor.name for assignor in loaded]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two assignors are called {name!r}; names must differ")
    return loaded


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The highest protocol that all of them support.

    Raises:
        ValueError: they have none in common.
    """
    shared = set(RebalanceProtocol)
    names = []
    for assignor in assignors:
        shared &= set(assignor.supported_protocols)
        names.append(assignor.name)
    if not shared:
        raise ValueError(f"the assignors {', '.join(names)} support no common rebalance protocol")
    return max(shared)


def _load_one(given: AssignorLike) -> Assignor:
    if isinstance(given, str):
        return _made(_by_name(given), name=given)
    return _made(given, name=None)


def _by_name(name: str) -> object:
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name]
        return getattr(import_module(module), attribute)
    # Slow to import and needed for custom names only.
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINT_GROUP)
    if name in found.names:
        return found[name].load()
    known = ", ".join(sorted({*BUILT_IN, *found.names}))
    raise ValueError(f"no assignor is called {name!r}; known: {known}")


def _made(given: object, *, name: str | None) -> Assignor:
    made = given() if isinstance(given, type) else given
    if isinstance(made, Assignor):
        return made
    if callable(made) and not isinstance(given, type):
        function: Callable[..., Mapping[str, Iterable[TopicPartition]]] = made
        return FunctionAssignor(function, name)
    raise TypeError(
        f"{name or getattr(given, '__name__', given)} is no assignor: it needs name, version, "
        "supported_protocols, subscription_user_data, assign and on_assignment, or to be a plain "
        "function"
    )


def validate(
    assignor: Assignor,
    result: Mapping[str, Assignment],
    metadata: ClusterMetadata,
    subscriptions: GroupSubscription,
) -> GroupAssignment:
    """``result`` as the group may adopt it; members left out of it get nothing.

    Raises:
        InvalidAssignmentError: an unknown member, a partition twice, a partition that does not
            exist or whose topic the member did not ask for, or (cooperative only) a partition
            taken from one member and given to another in the same round.
    """
    made_here = BUILT_IN.get(assignor.name) == (type(assignor).__module__, type(assignor).__name__)
    if made_here and isinstance(result, GroupAssignment):
        return result
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in result.items():
        if member_id not in subscriptions:
            raise InvalidAssignmentError(assignor.name, f"no member {member_id!r} in the group")
        _check_member(assignor.name, member_id, assignment, metadata, subscriptions, owners)
    if RebalanceProtocol.COOPERATIVE in assignor.supported_protocols:
        _check_two_phases(assignor.name, result, subscriptions)
    nothing = Assignment()
    complete = {member_id: result.get(member_id, nothing) for member_id in subscriptions}
    return GroupAssignment(
        {member_id: given.partitions for member_id, given in complete.items()},
        {member_id: given.user_data for member_id, given in complete.items()},
    )


def _check_member(
    name: str,
    member_id: str,
    assignment: Assignment,
    metadata: ClusterMetadata,
    subscriptions: GroupSubscription,
    owners: dict[TopicPartition, str],
) -> None:
    topics = set(subscriptions[member_id].topics)
    for given in assignment.partitions:
        tp = TopicPartition(*given)
        if tp.topic not in topics:
            raise InvalidAssignmentError(
                name, f"{member_id!r} got {tp} but does not subscribe to {tp.topic!r}"
            )
        if not 0 <= tp.partition < metadata.partition_counts.get(tp.topic, 0):
            raise InvalidAssignmentError(name, f"{member_id!r} got {tp}, which does not exist")
        if tp in owners:
            raise InvalidAssignmentError(
                name, f"{tp} went to both {owners[tp]!r} and {member_id!r}"
            )
        owners[tp] = member_id


def _check_two_phases(
    name: str, result: Mapping[str, Assignment], subscriptions: GroupSubscription
) -> None:
    """A partition must be given up in one round and handed out in the next (KIP-429)."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, subscription in subscriptions.items():
        owned = set(subscription.owned_partitions)
        given = result[member_id].partitions if member_id in result else ()
        added.update({tp: member_id for tp in given if tp not in owned})
        revoked |= owned.difference(given)
    for tp in sorted(revoked & added.keys()):
        raise InvalidAssignmentError(
            name,
            f"{tp} was given to {added[tp]!r} while another member still owns it; a cooperative "
            "assignor must leave it out until its owner has given it up",
        )
