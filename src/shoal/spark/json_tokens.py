"""JSON as tokens, by the rules Spark's ``from_json`` reads it with.

Those rules are Jackson's: single quotes, ``NaN`` and ``Infinity`` are taken; what follows the first
document is not looked at; a value is read as far as its first character together with its name,
and the rest of a string only when somebody asks for it. The last point decides which part of a
broken document is still read, so it is kept here to the letter: after an error the caller may ask
for the next token, and gets what Spark would get.

Rule: this is the slow path, a character at a time. ``json_rows.py`` makes values of the tokens;
``json_columns.py`` reads whole columns at once and comes here only with the rows it cannot judge.
"""

from __future__ import annotations

import re
import string
import unicodedata
from base64 import b64decode
from typing import Final

ROOT: Final = ""
OBJECT: Final = "{"
ARRAY: Final = "["
END_OBJECT: Final = "}"
END_ARRAY: Final = "]"
NAME: Final = "name"
STRING: Final = "string"
INTEGER: Final = "integer"
FLOAT: Final = "float"
TRUE: Final = "true"
FALSE: Final = "false"
NULL: Final = "null"

DEPTH_MAX: Final = 1000
DIGITS_MAX: Final = 1000
"""Jackson's limits: deeper documents and longer numbers are malformed to it."""

_SPACE: Final = " \n\r\t"
_ESCAPES: Final = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "f": "\f",
    "r": "\r",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "'": "'",
}
_NUMBER: Final = re.compile(r"-?([0-9]+)(\.[0-9]*)?([eE][+-]?[0-9]*)?")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_PLAIN_SINGLE: Final = re.compile(r"[^'\\\x00-\x1f]*")
_BASE64: Final = frozenset(string.ascii_letters + string.digits + "+/=")
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


class MalformedError(ValueError):
    """The text is not JSON; says where and why."""


def decoded(data: bytes) -> str:
    """Bytes as Java decodes them: what is not UTF-8 becomes a replacement character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java makes one of a whole encoded surrogate, where Python makes one of each byte.
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode(errors="replace")


def encodable(text: str) -> str:
    """Text as Java would encode it: pairs of surrogates joined, single ones a question mark."""
    return _SURROGATES.sub(_join, text)


def _join(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) == 1:
        return "?"
    return chr(0x10000 + ((ord(found[0]) - 0xD800) << 10) + ord(found[1]) - 0xDC00)


class _Scope:
    """An object or array that is open, or the root."""

    __slots__ = ("index", "kind", "name")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index = -1
        self.name: str | None = None


class Tokens:
    """One text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._scopes = [_Scope(ROOT)]
        self._after_name: str | None = None
        self._unread = False
        self._string = ""
        self.token: str | None = None
        self.number = ""
        """The text of the number, if the token is one."""

    @property
    def name(self) -> str | None:
        """The name of the field the token belongs to."""
        scope = self._scopes[-1]
        if self.token in (OBJECT, ARRAY) and len(self._scopes) > 1:
            scope = self._scopes[-2]
        return scope.name

    @property
    def has_text(self) -> bool:
        """Is the string that is the token not empty?"""
        return bool(self.string())

    def string(self) -> str:
        """The value of the string that is the token."""
        if self._unread:
            self._unread = False
            self._string = self._read_string('"', _PLAIN)
        return self._string

    def base64(self) -> bytes:
        """The bytes that the string in base 64 stands for.

        It is decoded as it is read. An error leaves the rest unread, behind the quote if that is
        where it was found: the next token is then looked for in the wrong place, as by Jackson.

        Raises:
            MalformedError: it is not in base 64.
        """
        if not self._unread:
            return _whole_base64(self._string)
        groups: list[bytes] = []
        while (group := self._base64_group()) is not None:
            groups.append(group)
        self._unread = False
        return b"".join(groups)

    def _base64_group(self) -> bytes | None:
        """The next one to three bytes, or the end of the string."""
        while (char := self._base64_char()) <= " ":
            pass
        if char == "quote":
            return None
        group = ""
        for place in range(4):
            char = self._base64_char() if place else char
            if char == "quote" and place > 1:
                self._at -= 1
            if char not in _BASE64 or (place < 2 and char == "="):
                raise self._error("the text is not in base 64")
            group += char
            if char == "=" and place == 2:
                if self._base64_char() != "=":
                    raise self._error("the text is not in base 64")
                group += "="
                break
        return b64decode(group)

    def _base64_char(self) -> str:
        char = self._text[self._at : self._at + 1]
        if not char:
            raise self._error("a quote is missing")
        self._at += 1
        if char == '"':
            return "quote"
        return self._escaped() if char == "\\" else char

    def next(self) -> str | None:
        """Go to the next token; ``None`` at the end.

        Raises:
            MalformedError: there is none.
        """
        if self.token is NAME:
            self.token, self._after_name = self._after_name, None
            if self.token in (OBJECT, ARRAY):
                self._open(self.token)
            return self.token
        if self._unread:
            self.string()
        char = self._next_char()
        if not char:
            if len(self._scopes) > 1:
                raise self._error("the document ends too early")
            self.token = None
            return None
        if char in "]}":
            return self._close(char)
        scope = self._scopes[-1]
        scope.index += 1
        if scope.kind != ROOT and scope.index > 0:
            if char != ",":
                raise self._error("a comma is missing")
            char = self._next_char()
            if not char:
                raise self._error("the document ends too early")
        if scope.kind != OBJECT:
            token = self._value(char)
            if token in (OBJECT, ARRAY):
                self._open(token)
            self.token = token
            return token
        scope.name = self._read_name(char)
        self.token = NAME
        self._after_name = self._value(self._after_colon())
        return self.token

    def skip_children(self) -> None:
        """If the token opens an object or array, go to its end."""
        if self.token not in (OBJECT, ARRAY):
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                if len(self._scopes) > 1:
                    raise self._error("the document ends too early")
                return
            if token in (OBJECT, ARRAY):
                depth += 1
            elif token in (END_OBJECT, END_ARRAY):
                depth -= 1

    def _error(self, reason: str) -> MalformedError:
        return MalformedError(f"{reason}, at character {self._at}")

    def _open(self, kind: str) -> None:
        self._scopes.append(_Scope(kind))
        if len(self._scopes) > DEPTH_MAX + 1:
            raise self._error(f"more than {DEPTH_MAX} levels")

    def _close(self, char: str) -> str:
        opened = OBJECT if char == END_OBJECT else ARRAY
        if self._scopes[-1].kind != opened:
            raise self._error(f"{char} closes nothing")
        self._scopes.pop()
        self.token = END_OBJECT if char == END_OBJECT else END_ARRAY
        return self.token

    def _next_char(self) -> str:
        """The next character that is not white space, or nothing; it counts as read."""
        text, at = self._text, self._at
        while at < len(text) and text[at] in _SPACE:
            at += 1
        self._at = min(at + 1, len(text))
        char = text[at : at + 1]
        if char and char < " ":
            raise self._error(f"{char!r} stands between values")
        if char == "/":
            raise self._error("a comment is not JSON")
        return char

    def _after_colon(self) -> str:
        if (char := self._next_char()) != ":":
            raise self._error("a colon is missing" if char else "the document ends too early")
        if not (char := self._next_char()):
            raise self._error("the document ends too early")
        return char

    def _read_name(self, char: str) -> str:
        if char == '"':
            return self._read_string('"', _PLAIN)
        if char == "'":
            return self._read_string("'", _PLAIN_SINGLE)
        raise self._error(f"a name is missing, or {char!r} should be a quote")

    def _read_string(self, quote: str, plain: re.Pattern[str]) -> str:
        text = self._text
        parts: list[str] = []
        while True:
            match = plain.match(text, self._at)
            assert match is not None
            parts.append(match[0])
            self._at = match.end()
            char = text[self._at : self._at + 1]
            if not char:
                raise self._error("a quote is missing")
            self._at += 1
            if char == quote:
                return "".join(parts)
            if char != "\\":
                raise self._error(f"{char!r} stands in a string; it must be escaped")
            parts.append(self._escaped())

    def _escaped(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in _ESCAPES and char:
            return _ESCAPES[char]
        if char != "u":
            raise self._error(f"\\{char} is not an escape")
        code = 0
        for _ in range(4):
            digit = self._text[self._at : self._at + 1]
            self._at += 1
            if not digit or digit not in "0123456789abcdefABCDEF":
                raise self._error("\\u needs four hexadecimal digits")
            code = code << 4 | int(digit, 16)
        return chr(code)

    def _value(self, char: str) -> str:
        """The kind of the value that begins with a character; only strings are not read yet."""
        if char == '"':
            self._unread = True
            return STRING
        if char in "[{":
            return OBJECT if char == OBJECT else ARRAY
        if char == "-" or char in "0123456789":
            return self._read_number()
        if char == "'":
            self._string = self._read_string("'", _PLAIN_SINGLE)
            return STRING
        if char in "tfn":
            word = {"t": TRUE, "f": FALSE, "n": NULL}[char]
            self._match(word, 1)
            return word
        if char in "NI":
            word = "NaN" if char == "N" else "Infinity"
            self._match(word, 1)
            self.number = word
            return FLOAT
        if char == "+":
            return self._infinity("+")
        if _is_word(char) and not char.isdigit():
            self._skip_word()
        raise self._error(f"{char!r} begins no value")

    def _read_number(self) -> str:
        start = self._at - 1
        match = _NUMBER.match(self._text, start)
        if match is None:
            return self._infinity("-")
        whole, fraction, exponent = match.groups()
        if len(whole) > 1 and whole[0] == "0":
            self._at = match.start(1) + 1
            raise self._error("a number begins with zero")
        self._at = match.end()
        if fraction == "." or (exponent is not None and not exponent[-1].isdigit()):
            raise self._error("a number ends too early")
        digits = len(whole) + len(fraction or ".") - 1 + len((exponent or "e").lstrip("eE+-"))
        if digits > DIGITS_MAX:
            raise self._error(f"a number has more than {DIGITS_MAX} digits")
        self.number = match[0]
        return FLOAT if fraction or exponent else INTEGER

    def _infinity(self, sign: str) -> str:
        """After a sign that no digit follows."""
        for word in ("INF", "Infinity"):
            if self._text.startswith(word[:2], self._at):
                self._at += 2
                self._match(word, 2)
                self.number = f"{sign}Infinity"
                return FLOAT
        self._at += 1
        raise self._error("a number has no digit")

    def _match(self, word: str, done: int) -> None:
        text, start = self._text, self._at - done
        for char in word[done:]:
            if text[self._at : self._at + 1] != char:
                raise self._no_value(start)
            self._at += 1
        after = text[self._at : self._at + 1]
        if after and after >= "0" and after not in "]}" and _is_word(after):
            raise self._no_value(start)

    def _no_value(self, start: int) -> MalformedError:
        self._skip_word()
        return self._error(f"{self._text[start : self._at][:40]!r} is not a JSON value")

    def _skip_word(self) -> None:
        while self._at < len(self._text) and _is_word(self._text[self._at]):
            self._at += 1


def _whole_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedError(f"the text is not in base 64: {error}") from None


def _is_word(char: str) -> bool:
    """May the character stand in a name of Java's?"""
    if char.isalnum() or char in "_$":
        return True
    category = unicodedata.category(char)
    return category in ("Sc", "Pc", "Mn", "Mc", "Nl", "Cf") or (
        category == "Cc" and char not in "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
    )
