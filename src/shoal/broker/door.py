"""The one door to every resource: what a request needs is checked here, by the row of its API.

A row of the table in ``handlers/__init__.py`` says which resources a request of that API names,
which operation each needs, and what a refusal looks like:

* ``whole(READ, GROUP, "group_id")``: the field names the resource (a cluster has no name; a list
  names several, None names none). ``Dispatch`` asks before the handler runs; if one is refused,
  the handler never sees the request and the answer is its module's ``refuse``.
* ``entry(WRITE, TOPIC)``: the request names many. The handler gets each through its ``Call``, as
  the thing or as a code for its entry of the answer: ``call.topic(name or id)``,
  ``call.check(GROUP, name)``. In lists in which nobody named it, it is left out: ``call.shows``.
* ``detail(DESCRIBE_CONFIGS, TOPIC)``: without it a part of the answer is withheld: ``call.may``.

Rule: handlers say what they touch, never which operation that needs; the row alone says it.
Whether a refused topic exists is not looked up, so that nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.access.resources import CLUSTER_NAME, Operation, ResourceType
from shoal.broker.authorizer import OPERATIONS, AllowAll, Authorizer
from shoal.errors import ErrorCode

if TYPE_CHECKING:
    from shoal.broker.catalogue import Catalogue, Topic

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
REFUSAL_TEXTS: Final = {
    code: f"no access rule allows this with the {resource.name.lower().replace('_', ' ')}"
    for resource, code in REFUSALS.items()
}
"""What an answer says beside such a code, where it can say something."""
_NEWEST: Final = 1 << 15


class Form(Enum):
    """What a refusal looks like."""

    WHOLE = "the request is refused as a whole, before its handler"
    ENTRY = "the entry that names the resource says so; lists leave it out"
    DETAIL = "a part of the answer is withheld"


class Instead(NamedTuple):
    """Another right that is enough."""

    operation: Operation
    resource: ResourceType
    # Of the same name or of the cluster; or with any resource of its type that there may be.
    of_any: bool = False


# In Python 3.11 to look a member up takes longer than what is done with it.
_TOPIC: Final = ResourceType.TOPIC
_CLUSTER: Final = ResourceType.CLUSTER


class Need(NamedTuple):
    """One operation that an API needs on the resources of one type that a request names."""

    form: Form
    operation: Operation
    resource: ResourceType
    field: str
    instead: tuple[Instead, ...]
    since: int
    until: int


def whole(
    operation: Operation,
    resource: ResourceType,
    field: str = "",
    *instead: Instead,
    since: int = 0,
    until: int = _NEWEST,
) -> Need:
    """Refused as a whole; only versions ``since`` to ``until`` name it so."""
    assert bool(field) is (resource is not ResourceType.CLUSTER), "all but the cluster have names"
    return Need(Form.WHOLE, operation, resource, field, instead, since, until)


def entry(operation: Operation, resource: ResourceType, *instead: Instead) -> Need:
    """Refused one by one."""
    return Need(Form.ENTRY, operation, resource, "", instead, 0, _NEWEST)


def detail(operation: Operation, resource: ResourceType, *instead: Instead) -> Need:
    """Withheld from the answer."""
    return Need(Form.DETAIL, operation, resource, "", instead, 0, _NEWEST)


class Row:
    """The needs of one API, as they are looked up."""

    __slots__ = ("details", "entries", "wholes")

    def __init__(self, needs: Iterable[Need]) -> None:
        self.wholes: list[Need] = []
        self.entries: dict[ResourceType, Need] = {}
        self.details: dict[tuple[Operation, ResourceType], Need] = {}
        for need in needs:
            if need.form is Form.WHOLE:
                self.wholes.append(need)
            elif need.form is Form.ENTRY:
                assert need.resource not in self.entries, "one operation for one type"
                self.entries[need.resource] = need
            else:
                self.details[need.operation, need.resource] = need


class Door:
    """Asks the authorizer for what rows say."""

    def __init__(self, catalogue: Catalogue, authorizer: Authorizer) -> None:
        self._catalogue = catalogue
        self.authorizer = authorizer

    def install(self, authorizer: Authorizer) -> None:
        """Let another one decide, from the next request on."""
        self.authorizer = authorizer

    def allows(
        self, principal: str, host: str, need: Need, name: str, *, audited: bool = True
    ) -> bool:
        authorizer = self.authorizer
        for operation, resource, of_any in need.instead:
            if of_any:
                if authorizer.allows_some(principal, host, operation, resource):
                    return True
            else:
                known = CLUSTER_NAME if resource is ResourceType.CLUSTER else name
                if authorizer.allows(principal, host, operation, resource, known, audited=False):
                    return True
        return authorizer.allows(
            principal, host, need.operation, need.resource, name, audited=audited
        )

    def refusal(
        self, principal: str, host: str, row: Row, request: Any, version: int
    ) -> ErrorCode | None:
        """Why the request is refused as a whole; None if it is not."""
        if type(self.authorizer) is AllowAll:
            return None  # without a look at what it names: most brokers have no rules
        for need in row.wholes:
            if need.since <= version <= need.until:
                for name in _names(need, request):
                    if not self.allows(principal, host, need, name):
                        return REFUSALS[need.resource]
        return None

    def topic(self, principal: str, host: str, row: Row, key: str | bytes) -> Topic | ErrorCode:
        """The topic of this name or id, or why it is not to be had."""
        if isinstance(key, str):
            name, topic = key, self._catalogue.get(key)
        else:
            topic = self._catalogue.by_id(key)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            name = topic.name
        if not self.allows(principal, host, row.entries[_TOPIC], name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic

    def operations(self, principal: str, host: str, resource: ResourceType, name: str) -> int:
        """What somebody may do with a resource, as Kafka's bits; none if they may not see it."""
        allows = self.authorizer.allows
        if not allows(principal, host, Operation.DESCRIBE, resource, name, audited=False):
            return 0
        return sum(
            1 << operation
            for operation in OPERATIONS[resource]
            if allows(principal, host, operation, resource, name, audited=False)
        )


def _names(need: Need, request: Any) -> Iterable[str]:
    if need.resource is _CLUSTER:
        return (CLUSTER_NAME,)
    named = getattr(request, need.field)
    if named is None:
        return ()
    return (named,) if isinstance(named, str) else named
