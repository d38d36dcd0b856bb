"""A fetch session: after the first request only what changed is sent (KIP-227).

Rule: pure bookkeeping. ``next_request`` says what to put on the wire, ``answered`` and ``reset``
say what became of it. Broker and client must agree on the partitions of the session; the epoch
counts requests so that both notice when they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from shoal.types import TopicPartition

P = TypeVar("P")

_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1


class SessionRequest(NamedTuple, Generic[P]):
    """What one Fetch request has to say about the session."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, P]
    forget: dict[TopicPartition, P]


class FetchSession(Generic[P]):
    """The session with one broker. ``P`` is what is said of a partition, compared by value."""

    def __init__(self, replaces: Callable[[P, P], bool] = lambda *_: False) -> None:
        """``replaces`` says whether a partition is another one though its name is the same."""
        self._replaces = replaces
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, P] = {}

    @property
    def is_open(self) -> bool:
        return self._session_id != _NO_SESSION

    def next_request(self, wanted: Mapping[TopicPartition, P]) -> SessionRequest[P]:
        """The request that makes the broker fetch exactly ``wanted``."""
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(wanted)
            return SessionRequest(self._session_id, self._epoch, dict(wanted), {})
        changed = {tp: want for tp, want in wanted.items() if self._known.get(tp) != want}
        gone = {tp: was for tp, was in self._known.items() if tp not in wanted}
        for tp, want in changed.items():
            was = self._known.get(tp)
            if was is not None and self._replaces(was, want):
                gone[tp] = was
        self._known = dict(wanted)
        return SessionRequest(self._session_id, self._epoch, changed, gone)

    def answered(self, session_id: int) -> None:
        """An answer without a session error came; a broker may refuse a session with id 0."""
        if session_id == _NO_SESSION:
            self._session_id, self._epoch = _NO_SESSION, _FIRST_EPOCH
            return
        self._session_id = session_id
        self._epoch = 1 if self._epoch >= 0x7FFFFFFF else self._epoch + 1

    def reset(self) -> None:
        """The session is gone or in doubt (error, lost connection): start again.

        The old id goes along with the first request of the new one, so that the broker can
        drop what it kept for it.
        """
        self._epoch = _FIRST_EPOCH
        self._known = {}

    def final_request(self) -> SessionRequest[P] | None:
        """Tells the broker to forget the session; ``None`` if there is none."""
        if not self.is_open:
            return None
        return SessionRequest(self._session_id, _FINAL_EPOCH, {}, {})
