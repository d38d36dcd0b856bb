"""Who may do what, as the rest of the broker asks: principal, host, operation, resource.

Rule: an authorizer decides and audits, and knows nothing of requests. Which request needs what
stands in the table of ``handlers/__init__.py``; ``door.py`` brings the two together.
"""

from __future__ import annotations

from typing import Final, Protocol

from shoal.access.resources import Operation, ResourceType

# What Kafka knows for a resource: an answer that lists what somebody may do speaks of these.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
}


class Authorizer(Protocol):
    """What decides."""

    @property
    def version(self) -> int:
        """Rises with every change of what is allowed: verdicts that were kept end with it."""
        ...

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
        """Whether ``principal`` may do it from ``host`` (an address as text).

        Args:
            audited: somebody asked for this resource by name. Looking through a list for what
                may be shown is not audited, or every list would fill the log.
        """
        ...

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, /
    ) -> bool:
        """Whether there can be a resource of this type with which ``principal`` may do it."""
        ...


class AllowAll:
    """There are no rules: everybody may do everything."""

    version = 0

    def allows(self, *_: object, **__: object) -> bool:
        return True

    def allows_some(self, *_: object) -> bool:
        return True
