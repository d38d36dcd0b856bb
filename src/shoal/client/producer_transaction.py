"""The states of a transactional producer: which call is allowed when, and what an error leaves.

                     init_transactions          begin_transaction
    UNINITIALIZED ──► INITIALIZING ──► READY ──────────────────► IN_TRANSACTION
                                         ▲                         │        │
                                         ├──── COMMITTING ◄── commit        │
                                         └──── ABORTING ◄──── abort ◄───────┤
                                                  ▲                         │ error
                                                  └──── abort ──── ABORTABLE_ERROR

From IN_TRANSACTION, ``prepare_transaction`` leads to PREPARED, where everything is stored and only
the end is missing: by commit or abort, or by somebody else. FATAL_ERROR follows from everywhere,
forever. A call whose outcome did not become known in time leaves its state (INITIALIZING,
COMMITTING, ABORTING), in which only the same call may be made again.

Two protocols. With ``transaction.version`` below 2 a partition is added to the transaction by a
request of its own before anything is sent to it, and an epoch lasts until it is bumped. From 2 on
(KIP-890) a produce request adds its partition by itself, and each transaction has its own epoch,
which the answer to EndTxn brings.

Rule: no I/O and no clock. ``transactions.py`` asks, sends and waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from shoal.client.transaction_reactions import TransactionReaction, transaction_reaction
from shoal.errors import (
    ErrorCode,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFatalError,
)
from shoal.types import TopicPartition


class ProducerState(Enum):
    """Names are Java's; values say what to do about it."""

    UNINITIALIZED = "call init_transactions() first"
    INITIALIZING = "init_transactions() has not finished; call it again"
    READY = "no transaction is open; call begin_transaction() first"
    IN_TRANSACTION = "a transaction is open; commit_transaction() or abort_transaction() first"
    PREPARED = "the transaction is prepared; commit_transaction() or abort_transaction() first"
    COMMITTING = "it is not known whether the last commit took effect; call commit_transaction()"
    ABORTING = "the last abort has not finished; call abort_transaction()"
    ABORTABLE_ERROR = "the transaction failed; call abort_transaction()"
    FATAL_ERROR = "close this producer"


S = ProducerState

#: For each call the states it may be made in, and the state it leads to.
CALLS: Final[dict[str, dict[ProducerState, ProducerState]]] = {
    "init_transactions": {S.UNINITIALIZED: S.INITIALIZING, S.INITIALIZING: S.INITIALIZING},
    "begin_transaction": {S.READY: S.IN_TRANSACTION},
    "send": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "send_offsets_to_transaction": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "prepare_transaction": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "commit_transaction": {
        S.IN_TRANSACTION: S.COMMITTING,
        S.PREPARED: S.COMMITTING,
        S.COMMITTING: S.COMMITTING,
    },
    "abort_transaction": {
        S.IN_TRANSACTION: S.ABORTING,
        S.PREPARED: S.ABORTING,
        S.ABORTABLE_ERROR: S.ABORTING,
        S.ABORTING: S.ABORTING,
    },
}
_ENDS: Final = (TransactionReaction.FENCED, TransactionReaction.FATAL)
_FAILS: Final = frozenset({S.IN_TRANSACTION, S.COMMITTING, S.ABORTING})


class EndPlan(NamedTuple):
    """What has to be asked for to end a transaction."""

    end: bool
    """EndTxn: the coordinator knows of the transaction, or may."""
    bump: bool
    """Then InitProducerId: nothing sent so far may be taken for part of the next transaction."""


class ProducerTransaction:
    """One transactional producer and its present transaction."""

    def __init__(self) -> None:
        self.state = S.UNINITIALIZED
        self.producer: tuple[int, int] | None = None
        """Producer id and epoch, of the present transaction or the next."""
        self.is_v2 = False
        """Whether produce requests add partitions by themselves."""
        self.partitions: set[TopicPartition] = set()
        self.wanted: set[TopicPartition] = set()
        """Partitions to be added before anything can be sent to them."""
        self.groups: set[str] = set()
        self._error: TransactionAbortableError | TransactionFatalError | None = None
        self._may_exist = False
        """Whether the coordinator may know of this transaction."""
        self._is_in_doubt = False
        """Whether a request that adds something was sent and never answered."""
        self._needs_bump = False
        self._is_forgotten = False
        """Whether the coordinator does not know our producer id any more."""
        self.is_end_confirmed = False
        """Whether the transaction has ended as it was asked to, and only a new epoch is missing."""

    # --- calls ---

    def refusal(self, call: str) -> Exception | None:
        """Why ``call`` is not allowed now; ``None`` if it is."""
        if self.state in CALLS[call]:
            return None
        if self._error is not None:
            return self._error_again()
        if call == "init_transactions":
            return RuntimeError("init_transactions() is called once, and was")
        return RuntimeError(f"{call}(): {self.state.value}")

    def called(self, call: str) -> None:
        """The user calls ``call``.

        Raises:
            RuntimeError: not in this order.
            TransactionAbortableError: only abort_transaction is possible.
            TransactionFatalError: nothing is.
        """
        refusal = self.refusal(call)
        if refusal is not None:
            raise refusal
        self.state = CALLS[call][self.state]

    def _error_again(self) -> Exception:
        """A new one each time: it is raised in several threads, each with its own traceback."""
        assert self._error is not None
        again = type(self._error)(self._error.reason, self._error.code)
        again.__cause__ = self._error.__cause__
        return again

    # --- what the coordinator said ---

    def initialized(self, producer_id: int, epoch: int) -> None:
        assert self.state is S.INITIALIZING
        self.producer = (producer_id, epoch)
        self.state = S.READY

    def begun(self, *, is_v2: bool) -> None:
        """A transaction is open, here; the broker hears of it when something is sent."""
        assert self.state is S.IN_TRANSACTION
        self.is_v2 = is_v2

    def takes(self, tp: TopicPartition) -> bool:
        """Whether records may be sent to ``tp`` now; if not, it is noted as wanted."""
        if self.is_v2 or tp in self.partitions:
            return True
        if self.state in (S.IN_TRANSACTION, S.COMMITTING):
            self.wanted.add(tp)
        return False

    def sends(self, tp: TopicPartition) -> None:
        """Records for ``tp`` leave: from here on the broker may have added it."""
        self.partitions.add(tp)
        self._may_exist = True

    def asks(self) -> None:
        """A request that adds something leaves."""
        self._is_in_doubt = True

    def refused(self) -> None:
        """It was answered, and nothing was added."""
        self._is_in_doubt = False

    def added(self, tps: Iterable[TopicPartition]) -> None:
        self.partitions.update(tps)
        self.wanted.difference_update(self.partitions)
        self._may_exist = True
        self._is_in_doubt = False

    def added_offsets(self, group_id: str) -> None:
        self.groups.add(group_id)
        self._may_exist = True
        self._is_in_doubt = False

    def prepared(self) -> bool:
        """All that was sent is stored; whether that is anything."""
        assert self.state is S.IN_TRANSACTION
        self.state = S.PREPARED
        return self._may_exist

    def end_plan(self) -> EndPlan:
        assert self.state in (S.COMMITTING, S.ABORTING)
        exists = (self._may_exist or self._is_in_doubt) and not self.is_end_confirmed
        bump = self._is_forgotten or (self._needs_bump and not self.is_v2)
        return EndPlan(exists and not self._is_forgotten, bump)

    def unconfirmed_end(self) -> None:
        """EndTxn left and no answer came: before version 2 a late one could end the next."""
        self.in_doubt()

    def end_confirmed(self) -> None:
        """Whatever fails from here on fails the next transaction, not this one."""
        assert self.state in (S.COMMITTING, S.ABORTING)
        self.is_end_confirmed = True

    def ended_without(self, code: ErrorCode) -> bool:
        """Whether a refused EndTxn means that there is nothing (any more) to abort.

        What was in doubt never arrived, or the coordinator has forgotten us altogether.
        """
        if self.state is not S.ABORTING:
            return False
        if transaction_reaction("EndTxn", code) is TransactionReaction.REINITIALIZE:
            self._is_forgotten = True
            return True
        is_nothing = code is ErrorCode.INVALID_TXN_STATE and self._is_in_doubt
        return is_nothing and not self._may_exist

    def in_doubt(self) -> None:
        """Something was sent and its fate will not become known: no later epoch may be its own."""
        self._needs_bump = True

    def ended(self) -> None:
        """The transaction is over."""
        assert self.state in (S.COMMITTING, S.ABORTING)
        self.state = S.READY
        self._error = None
        self.partitions.clear()
        self.wanted.clear()
        self.groups.clear()
        self._may_exist = self._is_in_doubt = self._needs_bump = self._is_forgotten = False
        self.is_end_confirmed = False

    # --- errors ---

    def failed(
        self,
        reaction: TransactionReaction,
        reason: str,
        code: ErrorCode | None = None,
        cause: BaseException | None = None,
    ) -> Exception:
        """Something cannot be mended by trying again; the error to raise for it."""
        if self.state is S.FATAL_ERROR:
            return self._error_again()
        if reaction in _ENDS or self.state not in _FAILS | {S.ABORTABLE_ERROR}:
            kind = (
                ProducerFencedError
                if reaction is TransactionReaction.FENCED
                else TransactionFatalError
            )
            self._error = kind(reason, code)
            self.state = S.FATAL_ERROR
        else:
            self._needs_bump |= reaction is TransactionReaction.ABORT_AND_BUMP
            self._is_forgotten |= reaction is TransactionReaction.REINITIALIZE
            if self.state is S.ABORTABLE_ERROR:
                return self._error_again()  # the first error is the one to tell of
            if self.state is S.ABORTING:
                return TransactionAbortableError(reason, code)  # which is under way
            self._error = TransactionAbortableError(reason, code)
            self.state = S.ABORTABLE_ERROR
        self._error.__cause__ = cause
        self.wanted.clear()
        return self._error_again()

    def batch_failed(
        self, reaction: TransactionReaction, reason: str, code: ErrorCode | None, cause: Exception
    ) -> None:
        """Records are not in the transaction that should be; while it is aborted, they need not."""
        if self.state is S.ABORTING and reaction not in _ENDS:
            self._needs_bump |= reaction is TransactionReaction.ABORT_AND_BUMP
        elif self.state in _FAILS | {S.ABORTABLE_ERROR}:
            self.failed(reaction, reason, code, cause)
