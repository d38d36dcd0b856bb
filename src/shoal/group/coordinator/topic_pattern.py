"""Regular expressions over topic names, in RE2's syntax, in time that grows with the name only.

A member may send any expression (KIP-848), and the coordinator compares it with every topic. One
that goes back and tries again, as Python's own do, would let a line of text stop a broker. So the
expression becomes a list of states, and a name is read once: where could we be after each letter?

Two things keep it small. The whole name must match and nobody asks which part matched what, so
greedy and lazy are the same, and groups are brackets. And names have 65 letters: a class like
``\\w`` or ``[^0-9]`` is the set of those it holds.

    text → nodes (``_Parser``) → states (``_Program``) → sets of states, made when first reached

Rule: what RE2 refuses is refused (back references, look-around, ``a**``); no name makes it slow.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

ALPHABET: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
"""Topic names have no other characters."""

TEXT_MAX: Final = 10_000
STATES_MAX: Final = 5_000
REPEAT_MAX: Final = 1_000
DEPTH_MAX: Final = 100
SETS_MAX: Final = 2_000
"""Sets of states that are kept; beyond it they are made again."""

_DIGITS: Final = frozenset("0123456789")
_WORD: Final = ALPHABET - frozenset(".-")
_PERL: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset[str]()}
_LETTERS: Final = frozenset(each for each in ALPHABET if each.isalpha())
_POSIX: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(each for each in _LETTERS if each.islower()),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(each for each in _LETTERS if each.isupper()),
    "word": _WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
# Written as one text each: a name a word.
_OTHER_SCRIPTS: Final = (
    "Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Han Hangul Hebrew "
    "Hiragana Inherited Katakana Khmer Lao Mongolian Myanmar Tamil Telugu Thai Tibetan"
)
_CATEGORIES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps "
    "S Sc Sk Sm So Z Zl Zp Zs"
)
_SCRIPTS: Final = {"Latin": _LETTERS, "Common": ALPHABET - _LETTERS, "Any": ALPHABET} | {
    name: frozenset[str]() for name in _OTHER_SCRIPTS.split()
}
_OCTAL: Final = frozenset("01234567")
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_EMPTY_WIDTH: Final = {"A": "begin", "z": "end", "b": "boundary", "B": "no boundary"}


# --- Nodes -------------------------------------------------------------------------------------


class _Letters(NamedTuple):
    """One character out of these."""

    letters: frozenset[str]


class _Assertion(NamedTuple):
    name: str


class _Sequence(NamedTuple):
    parts: tuple[_Node, ...]


class _Choice(NamedTuple):
    options: tuple[_Node, ...]


class _Repeat(NamedTuple):
    node: _Node
    low: int
    high: int | None


_Node = _Letters | _Assertion | _Sequence | _Choice | _Repeat


@dataclass(slots=True)
class _Flags:
    ignore_case: bool = False


class _Parser:
    """Recursive descent. Raises ``ValueError`` with what is wrong."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = _Flags()
        self._names: set[str] = set()

    def parse(self) -> _Node:
        node = self._choice(0)
        if self._at < len(self._text):
            raise ValueError("unexpected )")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self._at += len(text)
        return found

    def _next(self, otherwise: str) -> str:
        if self._at >= len(self._text):
            raise ValueError(otherwise)
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self, depth: int) -> _Node:
        if depth > DEPTH_MAX:
            raise ValueError(f"brackets are nested more than {DEPTH_MAX} deep")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                parts += self._quoted()
                if parts:
                    parts[-1] = self._repeated(parts[-1])
                continue
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _quoted(self) -> list[_Node]:
        text, end, rest = self._text[self._at :].partition("\\E")
        self._at = len(self._text) - len(rest) if end else len(self._text)
        return [self._literal(each) for each in text]

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")  # Lazy: the same, for a whole match.
        if self._bounds() is not None:
            raise ValueError("invalid nested repetition operator")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._peek("{"):
            return None
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not _is_count(low) or (comma and high and not _is_count(high)):
            return None  # Not a repetition, so it stands for itself.
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise ValueError(f"invalid repeat count {{{inside}}}")
        self._at += len(inside) + 2
        return least, most

    def _atom(self, depth: int) -> _Node | None:
        char = self._next("")
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case ".":
                return _Letters(ALPHABET)
            case "^":
                return _Assertion("begin")
            case "$":
                return _Assertion("end")
            case "*" | "+" | "?":
                raise ValueError(f"missing argument to repetition operator: {char}")
            case "\\":
                return self._escape()
        if char == "{":
            self._at -= 1
            if self._bounds() is not None:
                raise ValueError("missing argument to repetition operator: {")
            self._at += 1
        return self._literal(char)

    def _group(self, depth: int) -> _Node | None:
        outside = _Flags(self._flags.ignore_case)
        if self._take("?"):
            if self._peek("P<") or (
                self._peek("<") and not self._peek("<=") and not self._peek("<!")
            ):
                self._name()
            elif not self._set_flags():
                return None  # (?i) counts for the rest of the group around it.
        node = self._choice(depth + 1)
        if not self._take(")"):
            raise ValueError("missing closing )")
        self._flags = outside
        return node

    def _name(self) -> None:
        self._take("P")
        self._take("<")
        name, closed, _ = self._text[self._at :].partition(">")
        if (
            not closed
            or not name
            or not all(c.isascii() and (c.isalnum() or c == "_") for c in name)
        ):
            raise ValueError("invalid named capture")
        if name in self._names:
            raise ValueError(f"duplicate capture group name {name}")
        self._names.add(name)
        self._at += len(name) + 1

    def _set_flags(self) -> bool:
        """After ``(?``. True if a group follows."""
        is_set, anything = True, False
        while True:
            char = self._next("missing closing )")
            if char in ":)":
                if not is_set and not anything:
                    raise ValueError("invalid or unsupported Perl syntax: (?-")
                return char == ":"
            if char == "-" and is_set:
                is_set, anything = False, False
            elif char in "imsU":
                anything = True
                if char == "i":
                    self._flags.ignore_case = is_set
            else:
                raise ValueError(f"invalid or unsupported Perl syntax: (?{char}")

    def _literal(self, char: str) -> _Letters:
        if self._flags.ignore_case:
            return _Letters(frozenset(each for each in ALPHABET if _same(each, char)))
        return _Letters(frozenset(char) & ALPHABET)

    def _escape(self) -> _Node:
        char = self._next("trailing backslash at end of expression")
        if char in _EMPTY_WIDTH:
            return _Assertion(_EMPTY_WIDTH[char])
        found = self._escaped_class(char)
        return _Letters(found) if found is not None else self._literal(self._escaped(char))

    def _escaped_class(self, char: str) -> frozenset[str] | None:
        if char.lower() in _PERL:
            letters = _PERL[char.lower()]
            return letters if char.islower() else ALPHABET - letters
        if char in "pP":
            return self._unicode_class(negated=char == "P")
        return None

    def _unicode_class(self, *, negated: bool) -> frozenset[str]:
        if self._take("{"):
            name, closed, _ = self._text[self._at :].partition("}")
            if not closed:
                raise ValueError("invalid character class range")
            self._at += len(name) + 1
        else:
            name = self._next("invalid character class range")
        if name.startswith("^"):
            name, negated = name[1:], not negated
        letters = _SCRIPTS.get(name)
        if letters is None:
            if name not in _CATEGORIES.split():
                raise ValueError(f"invalid character class range: \\p{{{name}}}")
            letters = frozenset(
                each for each in ALPHABET if unicodedata.category(each).startswith(name)
            )
        return ALPHABET - letters if negated else letters

    def _escaped(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char in _OCTAL:
            digits = char
            while (
                len(digits) < 3
                and self._at < len(self._text)
                and self._text[self._at] in "01234567"
            ):
                digits += self._next("")
            if char != "0" and len(digits) == 1:
                raise ValueError(f"invalid escape sequence: \\{char}")
            return chr(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise ValueError(f"invalid escape sequence: \\{char}")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            length = len(digits) + 1
        else:
            digits, closed, length = self._text[self._at : self._at + 2], "}", 2
            closed = closed if len(digits) == 2 else ""
        if not closed or not digits or any(c not in "0123456789abcdefABCDEF" for c in digits):
            raise ValueError("invalid escape sequence: \\x")
        self._at += length
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise ValueError("invalid escape sequence: \\x")
        return chr(code)

    def _class(self) -> _Letters:
        """After ``[``."""
        negated = self._take("^")
        letters: set[str] = set()
        is_first = True
        while is_first or not self._peek("]"):
            is_first = False
            letters |= self._class_item()
        self._at += 1
        return _Letters(ALPHABET - letters if negated else frozenset(letters))

    def _class_item(self) -> frozenset[str]:
        missing = "missing closing ]"
        if self._peek("[:"):
            name, closed, _ = self._text[self._at + 2 :].partition(":]")
            if closed:
                self._at += len(name) + 4
                negated, name = name.startswith("^"), name.removeprefix("^")
                if name not in _POSIX:
                    raise ValueError(f"invalid character class range: [:{name}:]")
                return ALPHABET - _POSIX[name] if negated else _POSIX[name]
        char = self._next(missing)
        if char == "\\":
            char = self._next("trailing backslash at end of expression")
            found = self._escaped_class(char)
            if found is not None:
                return found
            char = self._escaped(char)
        last = char
        if self._peek("-") and not self._peek("-]"):
            self._at += 1
            last = self._next(missing)
            if last == "\\":
                last = self._escaped(self._next(missing))
            if last < char:
                raise ValueError(f"invalid character class range: {char}-{last}")
        return self._range(char, last)

    def _range(self, first: str, last: str) -> frozenset[str]:
        if self._flags.ignore_case:
            return frozenset(
                each
                for each in ALPHABET
                if first <= each.lower() <= last or first <= each.upper() <= last
            )
        return frozenset(each for each in ALPHABET if first <= each <= last)


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0") and len(text) < 9


# --- States ------------------------------------------------------------------------------------


class _State(NamedTuple):
    """Where a reader can be: before a letter, before an assertion, at a fork, or done."""

    letters: frozenset[str] | None = None
    assertion: str | None = None
    following: tuple[int, ...] = ()


_DONE: Final = 0


class _Program:
    """States, built from the end: each node knows what comes behind it."""

    def __init__(self, node: _Node) -> None:
        self.states: list[_State] = [_State()]
        self.start = self._add(node, _DONE)

    def _new(self, state: _State) -> int:
        if len(self.states) >= STATES_MAX:
            raise ValueError("expression is too large")
        self.states.append(state)
        return len(self.states) - 1

    def _add(self, node: _Node, behind: int) -> int:
        """The state before a node, given the one behind it."""
        match node:
            case _Letters(letters):
                return self._new(_State(letters=letters, following=(behind,)))
            case _Assertion(name):
                return self._new(_State(assertion=name, following=(behind,)))
            case _Sequence(parts):
                for part in reversed(parts):
                    behind = self._add(part, behind)
                return behind
            case _Choice(options):
                entries = tuple(self._add(each, behind) for each in options)
                return self._new(_State(following=entries))
            case _Repeat(inner, low, high):
                return self._add_repeat(inner, low, high, behind)

    def _add_repeat(self, inner: _Node, low: int, high: int | None, behind: int) -> int:
        if high is None:
            loop = self._new(_State())
            self.states[loop] = _State(following=(self._add(inner, loop), behind))
            behind = loop
        else:
            end = behind
            for _ in range(high - low):
                behind = self._new(_State(following=(self._add(inner, behind), end)))
        for _ in range(low):
            behind = self._add(inner, behind)
        return behind


_BEGIN, _AFTER_WORD, _AFTER_OTHER = range(3)


class TopicPattern:
    """One expression, ready to be compared with names.

    Raises:
        ValueError: RE2 would not take it either, or it is too large.
    """

    __slots__ = ("_moves", "_start", "_states", "text", "work")

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise ValueError(f"expression is longer than {TEXT_MAX} characters")
        self.text = text
        program = _Program(_Parser(text).parse())
        self._states = program.states
        self._start = (frozenset({program.start}), _BEGIN)
        self._moves: dict[tuple[tuple[frozenset[int], int], str], tuple[frozenset[int], int]] = {}
        self.work = 0
        """States looked at so far: what matching has cost."""

    @property
    def size(self) -> int:
        """States: what making it has cost."""
        return len(self._states)

    def matches(self, name: str) -> bool:
        """Whether all of the name matches."""
        at = self._start
        moves = self._moves
        self.work += len(name)
        for char in name:
            move = moves.get((at, char))
            if move is None:
                move = self._move(at, char)
            at = move
            if not at[0]:
                return False
        return _DONE in self._reached(at, None)

    def _move(self, at: tuple[frozenset[int], int], char: str) -> tuple[frozenset[int], int]:
        states = self._states
        behind = frozenset(
            states[each].following[0]
            for each in self._reached(at, char)
            if (letters := states[each].letters) is not None and char in letters
        )
        if len(self._moves) >= SETS_MAX:
            self._moves.clear()
        move = (behind, _AFTER_WORD if char in _WORD else _AFTER_OTHER)
        self._moves[at, char] = move
        return move

    def _reached(self, at: tuple[frozenset[int], int], upcoming: str | None) -> set[int]:
        """All states from here without reading; ``upcoming`` is what comes next, if anything."""
        entries, before = at
        reached = set(entries)
        left = list(entries)
        while left:
            state = self._states[left.pop()]
            if state.letters is not None or not _holds(state.assertion, before, upcoming):
                continue
            for each in state.following:
                if each not in reached:
                    reached.add(each)
                    left.append(each)
        self.work += len(reached)
        return reached


def _holds(assertion: str | None, before: int, upcoming: str | None) -> bool:
    match assertion:
        case None:
            return True
        case "begin":
            return before == _BEGIN
        case "end":
            return upcoming is None
    is_boundary = (before == _AFTER_WORD) != (upcoming is not None and upcoming in _WORD)
    return is_boundary == (assertion == "boundary")
