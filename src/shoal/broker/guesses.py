"""Wrong passwords slow down whoever sends them: per user name and address, known or not.

A few mistakes are free. After them the attempts of one address at one name wait for their turn,
and turns come ever more slowly, whatever number of connections asks for them. Nobody is locked
out: the right password passes in its turn, and others' addresses do not wait at all.

Rule: pure; the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_FREE: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.2
_PAUSE_MAX_SECONDS: Final = 5.0
# Whoever would wait longer is refused.
_WAIT_MAX_SECONDS: Final = 10.0
_FORGOTTEN_AFTER_SECONDS: Final = 60.0
_REMEMBERED_MAX: Final = 10_000


class _Tally:
    __slots__ = ("failures", "last", "next_turn")

    def __init__(self) -> None:
        self.failures = 0
        self.last = 0.0
        self.next_turn = 0.0


class Guesses:
    """Who was wrong lately, and how often."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[tuple[str, str], _Tally] = OrderedDict()

    def turn_in(self, user: str, address: str, now: float) -> float | None:
        """Seconds until this attempt may be looked at; None if that is too long."""
        tally = self._tallies.get((user, address))
        if tally is None or tally.failures < _FREE:
            return 0.0
        if now - max(tally.last, tally.next_turn) > _FORGOTTEN_AFTER_SECONDS:
            del self._tallies[user, address]
            return 0.0
        turn = max(now, tally.next_turn)
        if turn - now > _WAIT_MAX_SECONDS:
            return None
        doubled = min(tally.failures - _FREE, 10)
        tally.next_turn = turn + min(_PAUSE_MAX_SECONDS, _FIRST_PAUSE_SECONDS * 2**doubled)
        return turn - now

    def was_wrong(self, user: str, address: str, now: float) -> None:
        tally = self._tallies.setdefault((user, address), _Tally())
        tally.failures += 1
        tally.last = now
        self._tallies.move_to_end((user, address))
        if len(self._tallies) > _REMEMBERED_MAX:
            self._tallies.popitem(last=False)

    def was_right(self, user: str, address: str) -> None:
        self._tallies.pop((user, address), None)
