"""Access rules (ACLs): what one says, which are valid, which a filter names.

Rule: this file knows Kafka's words and codes and keeps nothing; ``acl_authorizer.py`` keeps the
rules and decides by them.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from shoal.access.resources import CLUSTER_NAME, Operation, ResourceType

ANY: Final = 1
"""In a filter, for a resource type, an operation and a permission: whichever it is."""
ALL_OPERATIONS: Final = 2
WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"

RESOURCE_NAMES: Final = {
    **{each.value: each.name for each in ResourceType},
    6: "DELEGATION_TOKEN",
    7: "USER",
}
"""What a rule can be about; of tokens and users nothing is ever asked here."""
OPERATION_NAMES: Final = {
    ALL_OPERATIONS: "ALL",
    **{each.value: each.name for each in Operation},
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
}


class PatternType(IntEnum):
    """How the name in a rule stands for names of resources. Only the last two are stored."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One rule: who ``principal`` is may, or may not, do ``operation`` with a resource.

    Acl(ResourceType.TOPIC, "orders", "User:billing", Operation.READ)
    """

    resource: int
    name: str
    principal: str
    operation: int
    permission: int = Permission.ALLOW
    pattern: int = PatternType.LITERAL
    host: str = WILDCARD

    @property
    def text(self) -> str:
        """As a person would say it: ``ALLOW User:ann to READ TOPIC orders from *``."""
        prefix = "prefix " if self.pattern == PatternType.PREFIXED else ""
        return (
            f"{Permission(self.permission).name} {self.principal} to "
            f"{OPERATION_NAMES[self.operation]} {RESOURCE_NAMES[self.resource]} "
            f"{prefix}{self.name} from {self.host}"
        )


class AclFilter(NamedTuple):
    """Names rules. None and ``ANY`` stand for every value."""

    resource: int = ANY
    name: str | None = None
    principal: str | None = None
    operation: int = ANY
    permission: int = ANY
    pattern: int = PatternType.ANY
    host: str | None = None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern in (PatternType.LITERAL, PatternType.PREFIXED):
            return acl.pattern == self.pattern and self.name in (None, acl.name)
        if self.name is None or self.pattern == PatternType.ANY:
            return self.name in (None, acl.name)
        # MATCH: the rules that are asked when somebody wants a resource of this name.
        if acl.pattern == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


def acl_problem(acl: Acl) -> str:
    """Why there can be no such rule; empty if there can."""
    if acl.resource not in RESOURCE_NAMES:
        return f"resource type {acl.resource} is not one that a rule can be about"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"pattern type {acl.pattern} is neither LITERAL (3) nor PREFIXED (4)"
    if acl.operation not in OPERATION_NAMES:
        return f"operation {acl.operation} is not one that a rule can be about"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"permission type {acl.permission} is neither DENY (2) nor ALLOW (3)"
    if not acl.name:
        return "the resource has no name"
    if acl.resource == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"the name of the cluster is {CLUSTER_NAME}, not {acl.name!r}"
    kind, colon, who = acl.principal.partition(":")
    if not (kind and colon and who):
        return f"principal {acl.principal!r} is not of the form Type:name"
    if not acl.host:
        return "the host is empty; * stands for every host"
    return ""


def filter_problem(asked: AclFilter) -> str:
    """Why nothing can be looked for by this filter; empty if it can."""
    for what, code, known in (
        ("resource type", asked.resource, range(1, 8)),
        ("pattern type", asked.pattern, range(1, 5)),
        ("operation", asked.operation, range(1, 15)),
        ("permission type", asked.permission, range(1, 4)),
    ):
        if code not in known:
            return f"{what} {code} is not known"
    return ""


@lru_cache(maxsize=4096)
def canonical_host(host: str) -> str:
    """One text for each address: Java writes IPv6 out, others shorten it or map IPv4 into it."""
    # Imported here: most brokers have no rules, and a start is short.
    from ipaddress import ip_address

    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
