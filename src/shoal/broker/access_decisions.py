"""The rules of a broker in force: those of its journal, decisions counted and told.

Rule: a refusal of what somebody asked for by name is a line of the access log, with the rule that
decided. What is allowed is not: it would be a line for every request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shoal.access.acl_authorizer import AclAuthorizer, AclVerdict
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import AuthorizationSettings
from shoal.broker.counters import Counters


def rules_in_force(
    settings: AuthorizationSettings,
    rules: Iterable[tuple[Any, ...]],
    audit: Callable[..., None],
    counters: Counters,
) -> AclAuthorizer:
    """The authorizer of these rules."""

    def note(
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        verdict: AclVerdict,
    ) -> None:
        if verdict.is_allowed:
            return
        counters.denied += 1
        audit(
            "denied",
            principal=principal,
            peer=host,
            operation=operation.name,
            resource=f"{resource.name} {name}",
            rule=verdict.rule.text if verdict.rule is not None else verdict.reason,
        )

    authorizer = AclAuthorizer(
        settings.super_users, allow_everyone=settings.allow_everyone_if_no_acl_found, audit=note
    )
    authorizer.replace(Acl(*fields) for fields in rules)
    return authorizer
