"""Transactions of one producer: the requests behind its calls, one at a time.

Order, as Kafka wants it: what is sent reaches a partition only after the partition is part of the
transaction; EndTxn leaves only when the fate of every batch is known and nothing that adds
partitions is under way, because one that came late would open a transaction nobody ends.

Rule: what is allowed and what an error means is decided by ``producer_transaction.py`` and
``transaction_reactions.py``. Everything here is coroutines on the engine's loop, so a simulated
producer awaits the same ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from shoal.client.accumulator import Accumulator
from shoal.client.cluster import RETRIED, Cluster, TransactionalId
from shoal.client.config import ProducerConfig
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.producer_batch import NO_SEQUENCE, ProducerBatch
from shoal.client.producer_transaction import ProducerState, ProducerTransaction
from shoal.client.sender import Sender
from shoal.client.tallies import SendTally
from shoal.client.transaction_reactions import TransactionReaction, transaction_reaction
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    RetriableError,
    TransactionAbortableError,
    TransactionFatalError,
    error_for,
)
from shoal.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)
from shoal.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from shoal.wire.schema import ResponseT

logger = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_FEATURE: Final = "transaction.version"
# A transaction that has just ended is being written down: so soon that is over, as a rule.
_CONCURRENT_MS: Final = 20
# The newest versions that speak the protocol in which partitions are added explicitly.
_END_V1: Final = 4
_OFFSETS_V1: Final = 4
_ADD_FOR_CLIENTS: Final = 3
_INIT_STABLE: Final = 5
_FIRST_THAT_BUMPS: Final = 3
_FIRST_WITH_MEMBERS: Final = 3


class Transactions:
    """Lives on the engine's loop, beside the sender."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        sender: Sender,
        core: ProducerTransaction,
        tally: SendTally | None = None,
    ) -> None:
        self._tally = tally or SendTally()
        assert config.transactional_id is not None
        self.core = core
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._sender = sender
        self._id = config.transactional_id
        self._key = TransactionalId(self._id)
        self._one_by_one = asyncio.Lock()
        self._adding: asyncio.Task[None] | None = None
        sender.on_partitions_wanted = self._add_soon
        sender.on_batch_failed = self._batch_failed
        self._shut()

    # --- calls of the user ---

    async def init(self) -> None:
        """A producer id and epoch; whoever had this transactional id before is shut out."""
        deadline = self._call("init_transactions")
        with self._tally.timing("txn-init"):
            producer = await self._finish(
                "init_transactions", self._init_producer_id(None, deadline), deadline
            )
        self.core.initialized(*producer)
        self._sender.renew(producer)

    async def begin(self) -> None:
        self._call("begin_transaction")
        with self._tally.timing("txn-begin"):
            # Read here and never within a transaction: half of one in each protocol is none.
            self.core.begun(is_v2=self._cluster.feature_level(_FEATURE) >= 2)
            self._sender.begin()
            self._accumulator.accept()

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        deadline = self._call("send_offsets_to_transaction")
        if offsets:
            work = self._send_offsets(offsets, group, deadline)
            with self._tally.timing("txn-send-offsets"):
                await self._finish("send_offsets_to_transaction", work, deadline)

    @property
    def has_ended(self) -> bool:
        """Whether what was begun is committed or aborted, and the next one may begin."""
        return self.core.state is ProducerState.READY

    async def prepare(self) -> PreparedTransaction | None:
        deadline = self._call("prepare_transaction")
        self._shut()
        return await self._finish("prepare_transaction", self._prepare(), deadline)

    async def commit(self) -> None:
        deadline = self._call("commit_transaction")
        self._shut()
        with self._tally.timing("txn-commit"):
            await self._finish("commit_transaction", self._commit(deadline), deadline)

    async def abort(self, deadline: Deadline | None = None) -> None:
        limit = self._call("abort_transaction")
        self._shut()
        self._sender.abandon(TransactionAbortableError("the transaction was aborted before this"))
        limit = deadline or limit
        with self._tally.timing("txn-abort"):
            await self._finish("abort_transaction", self._abort(limit), limit)

    async def close(self, deadline: Deadline) -> None:
        """Abort what is open: nobody else would before ``transaction_timeout_ms``."""
        self._shut()
        if self.core.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
            logger.warning("close() inside a transaction of %r: it is aborted", self._id)
            try:
                await self.abort(deadline)
            except (RequestTimeoutError, TransactionAbortableError, TransactionFatalError) as error:
                logger.warning("close: the transaction of %r was not aborted: %s", self._id, error)
        elif self.core.state is ProducerState.PREPARED:
            logger.info("close: the transaction of %r stays prepared", self._id)
        elif self.core.state is ProducerState.COMMITTING:
            logger.warning("close: whether the last commit of %r took effect is unknown", self._id)
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)

    def _call(self, call: str) -> Deadline:
        self.core.called(call)
        return Deadline(self._config.max_block_ms / 1000)

    async def _finish(self, call: str, work: Awaitable[T], deadline: Deadline) -> T:
        """``work`` within its time.

        Raises:
            RequestTimeoutError: not known in time; the same call may be made again.
            TransactionAbortableError: the transaction has to be aborted.
            TransactionFatalError: the end of this producer.
        """
        try:
            async with asyncio.timeout(deadline.left_s):
                return await work
        except TransactionFatalError as error:
            self._shut()
            self._sender.abandon(error)
            raise
        except ConnectionFailedError:
            raise  # nobody listens there; it says so, and whether it was waited for
        except (*RETRIED, TimeoutError) as error:
            is_offsets = call == "send_offsets_to_transaction"
            then = "abort_transaction()" if is_offsets else f"call {call}() again"
            if is_offsets:
                self._fail(TransactionReaction.ABORT, f"{call}() had no answer in time", None)
            why = f"; last failure: {error}" if str(error) else ""
            raise RequestTimeoutError(
                f"{call}() did not finish within {deadline.timeout_s:g} s, and whether it took "
                f"effect is not known; {then}{why}"
            ) from error

    def _shut(self) -> None:
        """``send`` is refused from here on, in words that fit the state of that moment."""
        self._accumulator.refuse(
            lambda: self.core.refusal("send") or RuntimeError("send(): try again")
        )

    # --- requests ---

    async def _ask(
        self,
        api: str,
        request: Versioned[ResponseT],
        code_of: Callable[[ResponseT], tuple[int, str]],
        deadline: Deadline,
        *,
        group_id: str | None = None,
        on_unanswered: Callable[[], None] = lambda: None,
    ) -> tuple[ResponseT, ErrorCode]:
        """An answer that is final, good or bad; everything else is tried again in time."""
        key = self._key if group_id is None else group_id
        concurrent = RetryBackoff(_CONCURRENT_MS, self._config.retry_backoff_max_ms)

        async def attempt() -> tuple[ResponseT, ErrorCode]:
            while True:
                try:
                    answer = await self._cluster.ask_coordinator(key, request, deadline)
                except (*RETRIED, InvalidFrameError, asyncio.CancelledError):
                    on_unanswered()
                    raise
                number, detail = code_of(answer)
                code = ErrorCode.of(number)
                reaction = transaction_reaction(api, number)
                if reaction is TransactionReaction.REDISCOVER:
                    self._cluster.forget_coordinator(key)
                elif reaction is not TransactionReaction.RETRY:
                    return answer, code
                elif code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    await deadline.sleep(concurrent.next_s())
                    if not deadline.has_passed:
                        continue
                raise RetriableError(code, f"{api} for {self._key} {detail}".rstrip())

        try:
            return await self._cluster.retrying(attempt, deadline)
        except RETRIED:
            raise
        except BrokerError as error:
            # Not an answer to this: the coordinator cannot be found, or speaks no such version.
            raise self._fail(TransactionReaction.FATAL, f"{api}: {error}", error) from error

    def _judge(self, api: str, code: ErrorCode, detail: str = "") -> None:
        """Raise what a final ``code`` means for the transaction."""
        reaction = transaction_reaction(api, code)
        if reaction is not TransactionReaction.ACCEPT:
            error = error_for(code, f"{api} for {self._key} {detail}".rstrip())
            raise self._fail(reaction, str(error), error)

    def _fail(
        self, reaction: TransactionReaction, reason: str, cause: BaseException | None
    ) -> Exception:
        was = self.core.state
        code = cause.code if isinstance(cause, BrokerError) else None
        error = self.core.failed(reaction, reason, code, cause)
        self._shut()
        if self.core.state is not was:
            self._sender.abandon(error)
        return error

    def _batch_failed(self, batch: ProducerBatch, error: Exception) -> None:
        if isinstance(error, TransactionAbortableError | TransactionFatalError):
            # It fails because the transaction did; but what became of a copy of it?
            if batch.base_sequence != NO_SEQUENCE:
                self.core.in_doubt()
            return
        code = error.code if isinstance(error, BrokerError) else None
        reaction = TransactionReaction.ABORT
        if code is not None:
            reaction = transaction_reaction("Produce", code)
        if reaction is TransactionReaction.ABORT and batch.base_sequence != NO_SEQUENCE:
            reaction = TransactionReaction.ABORT_AND_BUMP  # its number will be missing
        was = self.core.state
        self.core.batch_failed(reaction, f"records for {batch.tp} failed: {error}", code, error)
        if self.core.state is not was:
            self._shut()
            refusal = self.core.refusal("send")
            assert refusal is not None
            self._sender.abandon(refusal)

    async def _init_producer_id(
        self, known: tuple[int, int] | None, deadline: Deadline
    ) -> tuple[int, int]:
        def build(version: int) -> InitProducerIdRequest:
            request = InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
            )
            if known is not None:
                if version < _FIRST_THAT_BUMPS:
                    raise BrokerError(
                        ErrorCode.UNSUPPORTED_VERSION,
                        "this broker cannot give a producer its next epoch (KIP-360)",
                    )
                request.producer_id, request.producer_epoch = known
            return request

        request = Versioned(ApiKey.INIT_PRODUCER_ID, build, up_to=_INIT_STABLE)
        async with self._one_by_one:
            answer, code = await self._ask(
                "InitProducerId", request, lambda answer: (answer.error_code, ""), deadline
            )
        self._judge("InitProducerId", code)
        return answer.producer_id, answer.producer_epoch

    # --- adding ---

    def _add_soon(self) -> None:
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_wanted())

    async def _add_wanted(self) -> None:
        """Add partitions the sender waits for, as many at a time as there are."""
        try:
            while self.core.wanted:
                await self._add(frozenset(self.core.wanted))
                self._sender.wake()
        except (TransactionAbortableError, TransactionFatalError):
            logger.debug("partitions were not added", exc_info=True)  # batches and calls say it
        except (*RETRIED, InvalidFrameError) as error:
            self._fail(TransactionReaction.ABORT_AND_BUMP, f"AddPartitionsToTxn: {error}", error)
        finally:
            self._adding = None
            self._sender.wake()

    async def _add(self, tps: frozenset[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(tps):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        producer_id, epoch = self._producer

        def build(_: int) -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.Topic(name=name, partitions=numbers)
                    for name, numbers in by_topic.items()
                ],
            )

        request = Versioned(ApiKey.ADD_PARTITIONS_TO_TXN, build, up_to=_ADD_FOR_CLIENTS)
        deadline = Deadline(self._config.max_block_ms / 1000)
        async with self._one_by_one:
            self.core.asks()
            _, code = await self._ask("AddPartitionsToTxn", request, _first_refused, deadline)
            if transaction_reaction("AddPartitionsToTxn", code) is TransactionReaction.ACCEPT:
                self.core.added(tps)
                return
            self.core.refused()
        self._judge("AddPartitionsToTxn", code, f"({', '.join(str(tp) for tp in sorted(tps))})")

    async def _send_offsets(
        self, offsets: Offsets, group: ConsumerGroupMetadata, deadline: Deadline
    ) -> None:
        producer_id, epoch = self._producer
        if not self.core.is_v2 and group.group_id not in self.core.groups:
            added = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group.group_id,
            )
            adding = Versioned(ApiKey.ADD_OFFSETS_TO_TXN, lambda _: added)
            async with self._one_by_one:
                self.core.asks()
                _, code = await self._ask(
                    "AddOffsetsToTxn", adding, lambda answer: (answer.error_code, ""), deadline
                )
                if code:
                    self.core.refused()
            self._judge("AddOffsetsToTxn", code, f"(group {group.group_id!r})")
        self.core.added_offsets(group.group_id)
        commit = _offset_commit(self._id, (producer_id, epoch), group, offsets)
        up_to = None if self.core.is_v2 else _OFFSETS_V1
        request = Versioned(ApiKey.TXN_OFFSET_COMMIT, commit, up_to=up_to)
        _, code = await self._ask(
            "TxnOffsetCommit", request, _first_not_committed, deadline, group_id=group.group_id
        )
        self._judge("TxnOffsetCommit", code, f"(group {group.group_id!r})")

    # --- the end ---

    @property
    def _producer(self) -> tuple[int, int]:
        assert self.core.producer is not None
        return self.core.producer

    async def _prepare(self) -> PreparedTransaction | None:
        await self._sender.drain()
        refusal = self.core.refusal("prepare_transaction")
        if refusal is not None:
            raise refusal  # something that was sent has failed
        if not self.core.prepared():
            return None
        return PreparedTransaction(self._id, *self._producer, is_v2=self.core.is_v2)

    async def _commit(self, deadline: Deadline) -> None:
        await self._sender.drain()
        refusal = self.core.refusal("commit_transaction")
        if refusal is not None:
            raise refusal  # something that was sent has failed
        await self._end(deadline, commit=True)

    async def _abort(self, deadline: Deadline) -> None:
        await self._sender.drain()
        if self._adding is not None:
            await asyncio.wait([self._adding])
        refusal = self.core.refusal("abort_transaction")
        if refusal is not None:
            raise refusal  # what was under way has told that we are fenced
        await self._end(deadline, commit=False)

    async def _end(self, deadline: Deadline, *, commit: bool) -> None:
        producer = self._producer
        if self.core.end_plan().end:
            producer = await self._end_txn(deadline, commit=commit)
            self.core.end_confirmed()
        if self.core.end_plan().bump:
            try:
                producer = await self._init_producer_id(self._producer, deadline)
            except TransactionFatalError as error:
                if not (commit and self.core.is_end_confirmed):
                    raise
                # An answer that was lost with its coordinator makes the repeated question look
                # like a zombie's. The next call says that this producer is at its end; this one
                # must not be taken for a commit that failed.
                logger.warning("%r committed its last transaction: %s", self._id, error)
                return
        if producer != self._producer:
            self.core.producer = producer
            self._sender.renew(producer)
        self.core.ended()

    async def _end_txn(self, deadline: Deadline, *, commit: bool) -> tuple[int, int]:
        producer_id, epoch = self._producer
        ending = EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        up_to = None if self.core.is_v2 else _END_V1
        request = Versioned(ApiKey.END_TXN, lambda _: ending, up_to=up_to)
        async with self._one_by_one:
            answer, code = await self._ask(
                "EndTxn",
                request,
                lambda answer: (answer.error_code, ""),
                deadline,
                on_unanswered=self.core.unconfirmed_end,
            )
        if self.core.ended_without(code):
            return self._producer
        self._judge("EndTxn", code, "(commit)" if commit else "(abort)")
        if answer.producer_id >= 0:
            return answer.producer_id, answer.producer_epoch
        return self._producer


def _first_refused(answer: Any) -> tuple[int, str]:
    """The error that says most: OPERATION_NOT_ATTEMPTED only speaks of the others'."""
    codes = [
        (one.partition_error_code, f"({topic.name}-{one.partition_index})")
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
        if one.partition_error_code
    ]
    telling = [one for one in codes if one[0] != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter(telling or codes), (0, ""))


def _first_not_committed(answer: Any) -> tuple[int, str]:
    codes = (
        (one.error_code, f"({topic.name}-{one.partition_index})")
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code
    )
    return next(codes, (0, ""))


def _offset_commit(
    transactional_id: str,
    producer: tuple[int, int],
    group: ConsumerGroupMetadata,
    offsets: Offsets,
) -> Callable[[int], TxnOffsetCommitRequest]:
    topics: dict[str, list[TxnOffsetCommitRequest.Partition]] = {}
    for tp, one in offsets.items():
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequest.Partition(
                partition_index=tp.partition,
                committed_offset=one.offset,
                committed_leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )

    def build(version: int) -> TxnOffsetCommitRequest:
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[
                TxnOffsetCommitRequest.Topic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        if version >= _FIRST_WITH_MEMBERS:
            # KIP-447: a member the group has gone on without must not commit over its successor.
            request.generation_id = group.generation_id
            request.member_id = group.member_id
            request.group_instance_id = group.group_instance_id
        return request

    return build
