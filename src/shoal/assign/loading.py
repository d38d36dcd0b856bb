"""What a user wrote becomes assignors that may run; what they return becomes what may be used.

Rule: whatever a custom assignor does wrong is found here, before the group adopts it, and the
error names the assignor. The built-in ones pass through the same checks in tests, not at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from shoal.assign.model import (
    AssignFunction,
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.errors import InvalidAssignmentError, did_you_mean
from shoal.types import TopicPartition

ENTRY_POINT_GROUP: Final = "shoal.assignors"

# Known without asking the installed packages: reading entry points costs more than an assignment.
BUILT_IN: Final[dict[str, tuple[str, str]]] = {
    "range": ("shoal.assign.range", "RangeAssignor"),
    "roundrobin": ("shoal.assign.roundrobin", "RoundRobinAssignor"),
    "sticky": ("shoal.assign.sticky", "StickyAssignor"),
    "cooperative-sticky": ("shoal.assign.sticky", "CooperativeStickyAssignor"),
}

# What Java programs write into partition.assignment.strategy.
JAVA_NAMES: Final = {
    f"org.apache.kafka.clients.consumer.{attribute}": name
    for name, (_, attribute) in BUILT_IN.items()
}

_VALUES: Final = ("name", "version", "supported_protocols")
_METHODS: Final = ("subscription_user_data", "assign", "on_assignment")

AssignorLike: TypeAlias = "str | Assignor | type[Assignor] | AssignFunction"


class FunctionAssignor(Assignor):
    """A plain function as an assignor: eager, without user data or memory."""

    def __init__(self, function: AssignFunction, name: str | None = None) -> None:
        self._name = name or str(getattr(function, "__name__", type(function).__name__))
        self._function = function

    @property
    def name(self) -> str:
        return self._name

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        result = self._function(metadata, subscriptions)
        _need_mapping(self.name, result)
        return {
            member_id: given if isinstance(given, Assignment) else Assignment(tuple(given))
            for member_id, given in result.items()
        }


def load(assignors: Iterable[AssignorLike]) -> list[Assignor]:
    """Assignors by name, class, object or plain function, in order of preference.

    A name is a built-in one's, as we or as Java's class names it; or one that an installed package
    offers; or says where to find it: ``package.module:Name`` or ``package.module.Name``.

    Raises:
        ValueError: an unknown name, two of one name, or none at all.
        TypeError: something that is not an assignor.
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
        name = JAVA_NAMES.get(given, given)
        return _made(_by_name(name), name=name)
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
    if name.startswith("org.apache.kafka."):
        # A class of Java's, which is nowhere to be imported from.
        advice = did_you_mean(name, JAVA_NAMES, f"; known: {known}")
        raise ValueError(f"no assignor is called {name!r}{advice}")
    if _is_path(name):
        return object_at(name)
    raise ValueError(f"no assignor is called {name!r}; known: {known}")


def _is_path(name: str) -> bool:
    return "." in name or ":" in name


def object_at(path: str) -> object:
    """What ``package.module:Name`` or ``package.module.Name`` names.

    Raises:
        ValueError: there is no such module, or nothing of that name in it.
    """
    module_name, colon, attributes = path.partition(":")
    if not colon:
        module_name, _, attributes = path.rpartition(".")
    if not module_name or not all(map(str.isidentifier, attributes.split("."))):
        raise ValueError(f"{path!r} names nothing: write package.module:Name")
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it was found, and misses another
        raise ValueError(
            f"{path!r} names nothing: there is no Python module {module_name!r}"
        ) from None
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ValueError(f"{path!r} names nothing: {module_name!r} has no {attribute!r}")
        found = getattr(found, attribute)
    return found


def _made(given: Any, *, name: str | None) -> Assignor:
    made: Any = given() if isinstance(given, type) else given
    missing = [member for member in (*_VALUES, *_METHODS) if not hasattr(made, member)]
    if not missing:
        return _of_good_shape(made)
    if callable(given) and not isinstance(given, type):
        # A function found by its path has a name of its own.
        return FunctionAssignor(made, None if name is None or _is_path(name) else name)
    raise TypeError(
        f"{name or getattr(given, '__name__', given)} is not an assignor: inherit from "
        f"shoal.Assignor, or be a plain function, or have {', '.join(missing)} too"
    )


def _of_good_shape(assignor: Assignor) -> Assignor:
    """``assignor``, whose members are of the kind they should be.

    Raises:
        TypeError: one is not; names the class and the member.
    """
    kind = type(assignor).__name__
    for member in _VALUES:
        if callable(getattr(assignor, member)):
            raise TypeError(
                f"{kind}.{member} must be a value, not a method: write {member} = ... in the "
                "class, or put @property before it"
            )
    for member in _METHODS:
        if not callable(getattr(assignor, member)):
            raise TypeError(f"{kind}.{member} must be a method, not {getattr(assignor, member)!r}")
    if not isinstance(assignor.name, str) or not assignor.name:
        raise TypeError(f"{kind}.name must be a string, not {assignor.name!r}")
    protocols = assignor.supported_protocols
    is_list = isinstance(protocols, Collection) and not isinstance(protocols, str)
    if not is_list or not protocols or not all(one in set(RebalanceProtocol) for one in protocols):
        raise TypeError(
            f"{kind}.supported_protocols must be RebalanceProtocols, such as "
            f"(RebalanceProtocol.EAGER,), not {protocols!r}"
        )
    return assignor


def _made_here(assignor: Assignor) -> bool:
    return BUILT_IN.get(assignor.name) == (type(assignor).__module__, type(assignor).__name__)


def _need_mapping(name: str, result: object) -> None:
    if not isinstance(result, Mapping):
        raise InvalidAssignmentError(
            name, f"a mapping of member ids was expected, not {type(result).__name__}"
        )


def left_out(
    assignor: Assignor,
    result: Mapping[str, Assignment],
    metadata: ClusterMetadata,
    subscriptions: GroupSubscription,
) -> str | None:
    """A sentence about members and topics an assignor forgot; ``None`` if it forgot none.

    Both are allowed, and hardly ever meant. Not forgotten is what waits for its owner to give it
    up first (KIP-429).
    """
    if _made_here(assignor):
        return None
    members = sorted(subscriptions.keys() - result.keys())
    wanted = {topic for asked in subscriptions.values() for topic in asked.topics}
    given = {topic for one in result.values() for topic, _ in one.partitions}
    if RebalanceProtocol.COOPERATIVE in assignor.supported_protocols:
        given |= {topic for asked in subscriptions.values() for topic, _ in asked.owned_partitions}
    topics = sorted(topic for topic in wanted - given if metadata.partition_counts.get(topic))
    forgotten = []
    if topics:
        forgotten.append(f"no partition of {', '.join(map(repr, topics))} to any member")
    if members:
        forgotten.append(f"nothing, not even an empty list, to {', '.join(map(repr, members))}")
    if not forgotten:
        return None
    return f"assignor {assignor.name!r} gave {'; and '.join(forgotten)}"


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
    if _made_here(assignor) and isinstance(result, GroupAssignment):
        return result
    _need_mapping(assignor.name, result)
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in result.items():
        if member_id not in subscriptions:
            raise InvalidAssignmentError(assignor.name, f"no member {member_id!r} in the group")
        if not isinstance(assignment, Assignment):
            raise InvalidAssignmentError(
                assignor.name,
                f"{member_id!r} got a {type(assignment).__name__}; give it Assignment(partitions)",
            )
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
