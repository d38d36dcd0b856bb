"""AlterClientQuotas: limits per second for users and client ids, in force for the next request.

A bad entry is refused alone; all good ones of a request are stored together.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.access.quotas import IP, QuotaEntity, entity_problem, quota_entity, value_problem
from shoal.broker.door import REFUSAL_TEXTS
from shoal.broker.journal import Entry
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Asked = AlterClientQuotasRequest.EntryData
_Result = AlterClientQuotasResponse.EntryData


async def handle(
    broker: Broker, call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    results = []
    counts = Counter(quota_entity(_parts(asked)) for asked in request.entries)
    async with broker.changes.turn:
        changed: dict[QuotaEntity, dict[str, float]] = {}
        # Somebody who is named twice is refused once.
        for asked in {quota_entity(_parts(asked)): asked for asked in request.entries}.values():
            is_twice = counts[quota_entity(_parts(asked))] > 1
            problem = "the entity is named twice in one request" if is_twice else _problem(asked)
            if problem:
                results.append(_answer(asked, ErrorCode.INVALID_REQUEST, problem))
                continue
            results.append(_answer(asked, ErrorCode.NONE, None))
            entity = quota_entity(_parts(asked))
            values = changed.setdefault(entity, dict(broker.quotas.of(entity)))
            for change in asked.ops:
                if change.remove:
                    values.pop(change.key, None)
                else:
                    values[change.key] = change.value
        entries: list[Entry] = [
            {"kind": "quotas", "entity": entity, "values": values}
            for entity, values in changed.items()
        ]
        if entries and not request.validate_only:
            await broker.changes.commit(entries)
            for entity, values in changed.items():
                named = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)
                broker.audit("quota set", user=call.session.principal, entity=named, quota=values)
    return AlterClientQuotasResponse(entries=results)


def _parts(asked: _Asked) -> list[tuple[str, str | None]]:
    """Whom it is for; of a type that is named twice the last counts, as in Kafka."""
    return list({item.entity_type: item.entity_name for item in asked.entity}.items())


def _problem(asked: _Asked) -> str:
    if problem := entity_problem(_parts(asked)):
        return problem
    keys = [change.key for change in asked.ops]
    if len(set(keys)) < len(keys):
        return "a quota is named twice for one entity"
    of_ip = any(kind == IP for kind, _ in _parts(asked))
    found = (
        value_problem(op.key, None if op.remove else op.value, of_ip=of_ip) for op in asked.ops
    )
    return next(filter(None, found), "")


def _answer(asked: _Asked, code: ErrorCode, text: str | None) -> _Result:
    return _Result(
        error_code=code,
        error_message=text,
        entity=[
            AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
            for kind, name in _parts(asked)
        ],
    )


def refuse(
    request: AlterClientQuotasRequest, code: ErrorCode, version: int
) -> AlterClientQuotasResponse:
    text = REFUSAL_TEXTS.get(code)
    return AlterClientQuotasResponse(
        entries=[_answer(asked, code, text) for asked in request.entries]
    )
