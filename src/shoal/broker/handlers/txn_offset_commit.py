"""TxnOffsetCommit: a group's offsets as part of a transaction.

Three look at it: this file at the partitions, the transaction's coordinator at the producer, the
group's coordinator at the member. The offsets are staged in the group until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from shoal.broker.handlers import LATER, Deferred
from shoal.broker.handlers.group_request import ask
from shoal.errors import ErrorCode
from shoal.group.coordinator.refusals import refusal
from shoal.transaction.requests import TV2, AddPartitions, VerifyPartitions
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call
    from shoal.broker.transactions import Reported

_Topic = TxnOffsetCommitRequest.Topic
_Codes = dict[tuple[str, int], int]
_ABORTABLE_FROM: Final = 4
_ADDS_FROM: Final = 5

refuse = refusal


def handle(
    broker: Broker, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Deferred:
    asked = request.topics
    refused: _Codes = {}
    request.topics = _accepted(call, asked, refused)
    if not request.topics:
        return _merged(asked, refused)
    if not request.group_id:
        return _merged(asked, refused, ErrorCode.INVALID_GROUP_ID)
    question = VerifyPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset({broker.groups.partition_of(request.group_id)}),
    )
    if call.api_version < _ADDS_FROM:
        error = broker.transactions.verify(question)
        if error is not ErrorCode.NONE:
            return _merged(asked, refused, _told(error, call.api_version))
        return ask(broker, call, request.group_id, request, _Answer(call, asked, refused))
    added = broker.transactions.add(
        AddPartitions(
            question.transactional_id,
            question.producer_id,
            question.epoch,
            question.partitions,
            TV2,
        )
    )

    def commit(error: ErrorCode) -> None:
        with call.answered_or_cut():
            # It counts from now on, not from when it was asked: the transaction may be over.
            error = error or broker.transactions.verify(question)
            if error is not ErrorCode.NONE:
                call.reply(_merged(asked, refused, _told(error, call.api_version)))
                return
            ask(broker, call, request.group_id, request, _Answer(call, asked, refused, added))

    if added.code is None and broker.transactions.verify(question) is ErrorCode.NONE:
        # Both records are stored in one round.
        commit(ErrorCode.NONE)
    else:
        added.when_told(commit)
    return LATER


def _accepted(call: Call, asked: Sequence[_Topic], refused: _Codes) -> list[_Topic]:
    """What the coordinators are asked about; the others are noted in ``refused``."""
    accepted = []
    for topic in asked:
        known = call.topic(topic.name)
        fault = known if isinstance(known, ErrorCode) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if isinstance(known, ErrorCode) else known.partition_count
        kept = []
        for each in topic.partitions:
            if 0 <= each.partition_index < count:
                kept.append(each)
            else:
                refused[topic.name, each.partition_index] = fault
        if kept:
            accepted.append(_Topic(name=topic.name, partitions=kept))
    return accepted


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """What a transaction's coordinator says, in words of this request."""
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Of another coordinator than the one the client would look up then.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.CONCURRENT_TRANSACTIONS if version < _ADDS_FROM:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.TRANSACTION_ABORTABLE if version < _ABORTABLE_FROM:
            return ErrorCode.INVALID_TXN_STATE
        case _:
            return error


class _Answer:
    """Waits for the group's coordinator, and for the addition if there was one."""

    __slots__ = ("_added", "_asked", "_call", "_refused")

    def __init__(
        self,
        call: Call,
        asked: Sequence[_Topic],
        refused: _Codes,
        added: Reported | None = None,
    ) -> None:
        self._call = call
        self._asked = asked
        self._refused = refused
        self._added = added

    def reply(self, response: TxnOffsetCommitResponse) -> None:
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        codes.update(self._refused)

        def send(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._call.reply(_merged(self._asked, codes))
            else:
                told = _told(error, self._call.api_version)
                self._call.reply(_merged(self._asked, self._refused, told))

        if self._added is None:
            send(ErrorCode.NONE)
        else:
            self._added.when_told(send)


def _merged(
    asked: Sequence[_Topic], codes: _Codes, otherwise: ErrorCode = ErrorCode.NONE
) -> TxnOffsetCommitResponse:
    """In the order of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.Topic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.Partition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index), otherwise),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in asked
        ]
    )
