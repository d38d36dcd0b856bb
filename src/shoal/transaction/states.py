"""The states of a transactional id and every move between them.

Rule: whether an id *may* change state is decided in this file and nowhere else; ``coordinator.py``
decides *when*. Kafka has two states more, Dead and PrepareEpochFence, which exist only while a
record is on its way to the log. Here a record is appended and replayed before the next request is
looked at, so nobody can meet them: an id that expired is gone, and a fence and its abort are one
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """Values are the ones in ``__transaction_state``."""

    is_prepared: bool
    """Decided, and not every partition knows it yet."""
    is_idle: bool
    """Nothing is open: a transaction may begin, and the id may expire."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """Kafka's spelling, as DescribeTransactions and ListTransactions report it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

# Found out once: every request of a transaction asks for them, several times.
for _state in TransactionState:
    _state.is_prepared = _state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
    _state.is_idle = not _state.is_prepared and _state is not _S.ONGOING

MOVES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        # From an idle state straight to Complete*: an abort of nothing, which only bumps (KIP-890).
        _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
        _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT}),
        _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT}),
    }
)
assert MOVES.keys() == set(TransactionState), "every state has a row"


def may_move(before: TransactionState, after: TransactionState) -> bool:
    return after in MOVES[before]
