"""Administration of quotas: one coroutine per question."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.access.quotas import CLIENT_ID, USER, QuotaEntity, quota_entity
from shoal.client.cluster import Cluster
from shoal.client.deadlines import Deadline
from shoal.client.topic_admin import ask_controller
from shoal.wire.apis.alter_client_quotas import AlterClientQuotasRequest
from shoal.wire.apis.describe_client_quotas import DescribeClientQuotasRequest


def entity_of(
    user: str | None, client_id: str | None, *, default_user: bool, default_client_id: bool
) -> QuotaEntity:
    """Whom a quota is for.

    Raises:
        ValueError: Nobody is named, or both a name and the default.
    """
    if (user is not None and default_user) or (client_id is not None and default_client_id):
        raise ValueError("name somebody or the default, not both")
    parts: list[tuple[str, str | None]] = []
    if user is not None or default_user:
        parts.append((USER, user))
    if client_id is not None or default_client_id:
        parts.append((CLIENT_ID, client_id))
    if not parts:
        raise ValueError("whom is the quota for? Name user=, client_id=, or a default of them")
    return quota_entity(parts)


async def describe_quotas(
    cluster: Cluster, deadline: Deadline
) -> dict[QuotaEntity, dict[str, float]]:
    async def attempt() -> dict[QuotaEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(components=[], strict=False)
        answer = await cluster.ask(request, deadline=deadline)
        cluster.check("Admin", answer.error_code, answer.error_message or "quotas")
        return {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity): {
                one.key: one.value for one in entry.values
            }
            for entry in answer.entries or ()
        }

    return await cluster.retrying(attempt, deadline)


async def alter_quotas(
    cluster: Cluster, entity: QuotaEntity, values: Mapping[str, float | None], deadline: Deadline
) -> None:
    """None removes a quota."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(
                        key=key, value=value or 0.0, remove=value is None
                    )
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for one in answer.entries:
            cluster.check("Admin", one.error_code, one.error_message or "quotas")

    await cluster.retrying(attempt, deadline)
