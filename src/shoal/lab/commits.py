"""What became of every commit: stored once, stored again, or nowhere.

A commit here is one offset of one partition. It is *lost* if it was stored nowhere: refused, or
gone with a connection. It is *repeated* if it was stored a second time, because the member had no
answer and sent it again.

Rule: members say what they send and what was answered, the place where offsets are kept says what
it stored. Nobody counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from shoal.types import TopicPartition

_UNDER_WAY_MS: Final = 1_000
"""A commit this young at the end of a run is neither."""


class _Commit:
    __slots__ = ("made_ms", "stored")

    def __init__(self, made_ms: int) -> None:
        self.made_ms = made_ms
        self.stored = 0


class CommitBook:
    """Commits that were not answered yet."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._open: dict[tuple[TopicPartition, int], _Commit] = {}
        self.made_count = 0
        self.lost = 0
        self.repeated = 0

    def made(self, offsets: Iterable[tuple[TopicPartition, int]]) -> None:
        """A member sends these, or sends them again."""
        for key in offsets:
            if key not in self._open:
                self.made_count += 1
                self._open[key] = _Commit(self._now())

    def stored(self, tp: TopicPartition, offset: int) -> None:
        commit = self._open.get((tp, offset))
        if commit is not None:
            self.repeated += commit.stored > 0
            commit.stored += 1

    def answered(self, offsets: Iterable[tuple[TopicPartition, int]]) -> None:
        """The member knows what became of them."""
        for key in offsets:
            commit = self._open.pop(key, None)
            if commit is not None:
                self.lost += commit.stored == 0

    def finish(self) -> None:
        """Whatever nobody answered is lost, unless it was stored all the same."""
        for commit in self._open.values():
            is_under_way = self._now() - commit.made_ms < _UNDER_WAY_MS
            self.lost += commit.stored == 0 and not is_under_way
        self._open.clear()
