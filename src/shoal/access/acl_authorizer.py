"""The authorizer that decides by access rules, in the order of Apache Kafka's StandardAuthorizer.

1. A super user may do everything.
2. A rule applies if its pattern covers the name, its principal is the one who asks or everybody,
   its host is theirs or any, and its operation is the one asked for, or ALL. A rule that *allows*
   more than looking also allows to look (``_IMPLIED``); one that denies implies nothing.
3. Any DENY that applies wins, however exact the ALLOWs are; else any ALLOW is enough.
4. Without one: denied if there is a rule for the resource at all, for whomever; if there is none,
   ``allow_everyone`` decides.

Rules are found by principal first, then by the name and those of its prefixes whose length occurs,
so that a decision costs the same with ten rules and with a hundred thousand. Decisions are kept
until a rule changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import (
    ALL_OPERATIONS,
    EVERYBODY,
    WILDCARD,
    Acl,
    PatternType,
    Permission,
    canonical_host,
)

_KEPT_MAX: Final = 200_000

_IMPLIED: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class AclVerdict(NamedTuple):
    """A decision and what it rests on."""

    is_allowed: bool
    rule: Acl | None
    reason: str


_SUPER_USER: Final = AclVerdict(True, None, "is a super user")
_NO_RULE: Final = AclVerdict(False, None, "no rule allows it")
_NOBODY_ASKS: Final = AclVerdict(True, None, "the resource has no rule and everybody is allowed")


class _Named:
    """Rules by the names they are about."""

    __slots__ = ("by_length", "lengths", "literals")

    def __init__(self) -> None:
        self.literals: dict[str, list[Acl]] = {}
        self.by_length: dict[int, dict[str, list[Acl]]] = {}
        self.lengths: tuple[int, ...] = ()

    def add(self, acl: Acl) -> None:
        self._place(acl).setdefault(acl.name, []).append(acl)

    def remove(self, acl: Acl) -> None:
        place = self._place(acl)
        place[acl.name].remove(acl)
        if not place[acl.name]:
            del place[acl.name]
        if acl.pattern == PatternType.PREFIXED and not place:
            del self.by_length[len(acl.name)]
            self.lengths = tuple(sorted(self.by_length))

    def _place(self, acl: Acl) -> dict[str, list[Acl]]:
        if acl.pattern == PatternType.LITERAL:
            return self.literals
        length = len(acl.name)
        if length not in self.by_length:
            self.by_length[length] = {}
            self.lengths = tuple(sorted(self.by_length))
        return self.by_length[length]

    def covering(self, name: str) -> Iterator[Acl]:
        """The rules whose pattern covers this name."""
        yield from self.literals.get(name, ())
        if name != WILDCARD:
            yield from self.literals.get(WILDCARD, ())
        for length in self.lengths:
            if length > len(name):
                break
            yield from self.by_length[length].get(name[:length], ())

    def all(self) -> Iterator[Acl]:
        for place in (self.literals, *self.by_length.values()):
            for acls in place.values():
                yield from acls


class AclAuthorizer:
    """Rules, and what follows from them."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_everyone: bool = False,
        audit: Callable[[str, str, Operation, ResourceType, str, AclVerdict], None] | None = None,
    ) -> None:
        """
        Args:
            super_users: principals that no rule is asked for, e.g. ``User:admin``.
            allow_everyone: whether what no rule is about is open to everybody
                (``allow.everyone.if.no.acl.found``).
            audit: told of every decision about a resource that somebody named.
        """
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._audit = audit
        self._acls: set[Acl] = set()
        self._by_principal: dict[tuple[int, str], _Named] = {}
        self._by_resource: dict[int, _Named] = {}
        self._kept: dict[tuple[str, str, int, int, str], AclVerdict] = {}
        self.version = 0

    # --- rules ----------------------------------------------------------------------------------

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    @property
    def count(self) -> int:
        """How many rules there are. No ``len``: without rules it would be false, as if absent."""
        return len(self._acls)

    def replace(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """One change: nobody is judged by half of it."""
        for acl in removed:
            if acl in self._acls:
                self._acls.remove(acl)
                for named in self._places(acl):
                    named.remove(acl)
        for acl in added:
            if acl not in self._acls:
                self._acls.add(acl)
                for named in self._places(acl):
                    named.add(acl)
        self._kept.clear()
        self.version += 1

    def _places(self, acl: Acl) -> tuple[_Named, _Named]:
        return (
            self._by_principal.setdefault((acl.resource, acl.principal), _Named()),
            self._by_resource.setdefault(acl.resource, _Named()),
        )

    # --- decisions ------------------------------------------------------------------------------

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        /,
        *,
        audited: bool,
    ) -> bool:
        # Looked up here as well: it is what nearly every request comes to.
        verdict = self._kept.get((principal, host, operation, resource, name)) or self.verdict(
            principal, host, operation, resource, name
        )
        if audited and self._audit is not None:
            self._audit(principal, host, operation, resource, name, verdict)
        return verdict.is_allowed

    def verdict(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str, /
    ) -> AclVerdict:
        """What is decided, and by which rule."""
        asked = (principal, host, operation, resource, name)
        verdict = self._kept.get(asked)
        if verdict is None:
            verdict = self._decide(*asked)
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[asked] = verdict
        return verdict

    def _decide(
        self, principal: str, host: str, operation: int, resource: int, name: str
    ) -> AclVerdict:
        if principal in self._super_users:
            return _SUPER_USER
        host = canonical_host(host)
        allowing: Acl | None = None
        for acl in self._of(principal, resource, lambda named: named.covering(name)):
            if not _is_for(acl, host, operation):
                continue
            if acl.permission == Permission.DENY:
                return AclVerdict(False, acl, "denied by a rule")
            allowing = allowing or acl
        if allowing is not None:
            return AclVerdict(True, allowing, "allowed by a rule")
        if self._allow_everyone and not self._has_rule(resource, name):
            return _NOBODY_ASKS
        return _NO_RULE

    def _of(
        self, principal: str, resource: int, choose: Callable[[_Named], Iterator[Acl]]
    ) -> Iterator[Acl]:
        for who in {principal, EVERYBODY}:
            named = self._by_principal.get((resource, who))
            if named is not None:
                yield from choose(named)

    def _has_rule(self, resource: int, name: str) -> bool:
        named = self._by_resource.get(resource)
        return named is not None and next(named.covering(name), None) is not None

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, /
    ) -> bool:
        """Whether a resource can be thought of that is allowed and that no DENY takes away.

        Here an operation implies no other.
        """
        if principal in self._super_users:
            return True
        host = canonical_host(host)
        rules = [
            acl
            for acl in self._of(principal, resource, _Named.all)
            if acl.operation in (operation, ALL_OPERATIONS) and _is_from(acl, host)
        ]
        denying = [acl for acl in rules if acl.permission == Permission.DENY]
        if any(_is_everything(acl) for acl in denying):
            return False
        if self._allow_everyone and not self._is_all_ruled(resource):
            return True
        return any(
            not any(_takes_away(deny, acl) for deny in denying)
            for acl in rules
            if acl.permission == Permission.ALLOW
        )

    def _is_all_ruled(self, resource: int) -> bool:
        """Whether a rule covers every name there may be."""
        named = self._by_resource.get(resource)
        return named is not None and WILDCARD in named.literals


def _is_from(acl: Acl, host: str) -> bool:
    return acl.host == WILDCARD or canonical_host(acl.host) == host


def _is_for(acl: Acl, host: str, operation: int) -> bool:
    if not _is_from(acl, host):
        return False
    if acl.operation in (operation, ALL_OPERATIONS):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in _IMPLIED.get(operation, ())


def _is_everything(acl: Acl) -> bool:
    return acl.pattern == PatternType.LITERAL and acl.name == WILDCARD


def _takes_away(deny: Acl, allow: Acl) -> bool:
    """Whether everything that ``allow`` covers is denied by ``deny``."""
    if deny.pattern == PatternType.PREFIXED:
        # Of every name, some are not denied; of a wildcard, too.
        return not _is_everything(allow) and allow.name.startswith(deny.name)
    return allow.pattern == PatternType.LITERAL and allow.name == deny.name
