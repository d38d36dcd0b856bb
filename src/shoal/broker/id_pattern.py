"""A pattern for ids that a client sent: matched in time that grows with the id, not beyond it.

Kafka uses RE2, whose matching never goes back. Python's does, so what could make it go back far is
refused: a repetition inside a repetition, a reference to a group, looking around, and more than a
few repetitions without an end.
"""

from __future__ import annotations

import re
from re import _constants as code  # type: ignore[attr-defined]  # no other name for opcodes
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

_REPEATS: Final = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_PLAIN: Final = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN, code.AT)
_OPEN_ENDS_MAX: Final = 4
_REPEAT_MAX: Final = 1_000
_PATTERN_MAX: Final = 1_000
_ID_MAX: Final = 1_000


class IdPattern:
    """A pattern that may be used."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    @classmethod
    def read(cls, text: str) -> IdPattern | None:
        """None if it is not a regular expression, or not one we can match safely."""
        if len(text) > _PATTERN_MAX:
            return None
        try:
            parsed = parser.parse(text)
            if not _is_tame(parsed, inside_repeat=False) or _open_ends(parsed) > _OPEN_ENDS_MAX:
                return None
            return cls(re.compile(text))
        except (re.error, OverflowError, RecursionError):
            return None

    def matches(self, name: str) -> bool:
        """The whole id; one that is longer than anybody's is not looked at."""
        return len(name) <= _ID_MAX and self._pattern.fullmatch(name) is not None


def _is_tame(parts: Any, *, inside_repeat: bool) -> bool:
    for operation, argument in parts:
        if operation in _REPEATS:
            _, most, body = argument
            if inside_repeat or (most is not code.MAXREPEAT and most > _REPEAT_MAX):
                return False
            if not _is_tame(body, inside_repeat=True):
                return False
        elif operation is code.SUBPATTERN:
            if not _is_tame(argument[-1], inside_repeat=inside_repeat):
                return False
        elif operation is code.BRANCH:
            if inside_repeat or not all(
                _is_tame(each, inside_repeat=inside_repeat) for each in argument[1]
            ):
                return False
        elif operation not in _PLAIN:
            return False
    return True


def _open_ends(parts: Any) -> int:
    count = 0
    for operation, argument in parts:
        if operation in _REPEATS:
            count += (argument[1] > 1) + _open_ends(argument[2])
        elif operation is code.SUBPATTERN:
            count += _open_ends(argument[-1])
        elif operation is code.BRANCH:
            count += sum(map(_open_ends, argument[1]))
    return count
