"""From the subject of a client's certificate to the name of a principal, by rules of the operator.

The syntax is that of Kafka's ``ssl.principal.mapping.rules`` (KIP-371), one rule per text:

    RULE:pattern/replacement/     the whole subject fits the pattern; $1 is its first group
    RULE:pattern/replacement/L    the same in lower case; U in upper case
    DEFAULT                       the subject as it is

Rule: pure. The first rule that fits counts. A subject that no rule fits has no name, and whoever
has no name is not let in: it is never the whole subject by accident.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
# In a replacement: a group, a character that is meant as it is, or plain text.
_PIECE: Final = re.compile(r"\$(\d+)|\\(.)|([^$\\]+|\$)")


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    change: Callable[[str], str] = str

    def name_of(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        return self.change(_filled(self.replacement, match))


def _filled(replacement: str, match: re.Match[str]) -> str:
    """Groups that there are not stay as they are written, as in Kafka."""
    made = []
    for piece in _PIECE.finditer(replacement):
        if piece[1] is not None:
            number = int(piece[1])
            is_group = number <= match.re.groups
            made.append((match[number] or "") if is_group else piece[0])
        else:
            made.append(piece[2] if piece[2] is not None else piece[3])
    return "".join(made)


def read_mapping_rules(rules: Sequence[str]) -> tuple[MappingRule, ...]:
    """Raises ValueError with one line that names the rule that is none."""
    return tuple(_rule(text.strip()) for text in rules)


def _rule(text: str) -> MappingRule:
    if text == "DEFAULT":
        return MappingRule(None)
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
    try:
        pattern = re.compile(match[1])
    except re.error as error:
        raise ValueError(f"{text!r} has a pattern that cannot be read: {error}") from None
    changes: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper}
    return MappingRule(pattern, match[2], changes.get(match[3], str))


def mapped_name(subject: str, rules: Sequence[MappingRule]) -> str | None:
    """The name of the first rule that fits; None if none does, or if it leaves nothing."""
    for rule in rules:
        name = rule.name_of(subject)
        if name is not None:
            return name or None
    return None
