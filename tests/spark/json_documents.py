"""Values of a topic that should hold JSON: good ones, odd ones, and broken ones, from one seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator

PLAIN = (
    "a bigint, i int, s smallint, b tinyint, f float, d double, t string, o boolean, "
    "m decimal(20,5), w timestamp, l timestamp_ntz, y date, "
    "n struct<p:int,q:string,r:timestamp>, v array<int>, u array<struct<k:string,z:double>>"
)
"""Types that are read a whole column at a time."""
EVERYTHING = PLAIN + ", x binary, g map<string,int>, h map<string,struct<p:int>>"

_WORDS = (
    "",
    "a",
    "plain text",
    "ключ",
    "😀",
    "two\nlines",
    "tab\t",
    '"quoted"',
    "back\\slash",
    "\x00",
    "\x7f",
    "NaN",
    "Inf",
    "-Infinity",
    "+INF",
    "1",
    "1.5",
    "true",
    "null",
    "1,234.5",
    "AAEC",
    "AA==",
    "A",
    "2024-05-06",
    "2024-05-06 07:08:09",
    "2024-03-10 02:30:00",
    "2024-11-03 01:30:00",
    "2024-05-06T07:08:09.123456",
    "2024-05-06T07:08:09.1234567Z",
    "2024-05-06T07:08:09+05:30",
    "2024-05-06T07:08:09 Europe/Paris",
    "2024-05-06T07:08:09GMT+1",
    "2024-5-6 7:8:9",
    "2024-05",
    "2024",
    "2024-02-30",
    "2024-13-01 00:00:00",
    "2024-05-06 25:00:00",
    "0001-01-01 00:00:00",
    "1883-11-18 12:00:00",
    "9999-12-31 23:59:59.999999",
    "-0005-01-01",
    "+123456-01-01 00:00:00",
    " 2024-05-06 ",
    "2024-05-06 12",
    "2024-05-06 12:30",
    "2024-05-06T",
    "12345678",
    "123",
)
_NUMBERS = (
    "0",
    "-0",
    "0.0",
    "-0.0",
    "1",
    "-1",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "32768",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "123456789012345678901234567890",
    "0.1",
    "1.10",
    "1e5",
    "1E+2",
    "1e-7",
    "12345678.9",
    "0.00012",
    "16777217",
    "3.4028236e38",
    "1e39",
    "1e308",
    "1e309",
    "-1e999",
    "4.9e-324",
    "123456789012345.67890",
    "123456789012345.678905",
    "1234567890123456.7",
    "NaN",
    "Infinity",
    "-Infinity",
    "+INF",
    "-INF",
    "Inf",
    "01",
    "1.",
    ".5",
    "+1",
    "1e",
    "0x1",
    "- 1",
)
_NAMES = ("a", "i", "s", "b", "f", "d", "t", "o", "m", "w", "l", "y", "n", "v", "u", "x", "g", "h")
_NOISE = b"{}[]:,\"'\\ \n\t\r0123456789-+.eEtrufalsnNIy\x00\x01\x1f\x7f\xff\xc3\xa9\xed\xa0\x80/#"

# Spark writes out every digit of such a number if it is to be a decimal, which takes minutes.
_COSTLY = re.compile(rb"[eE][+-]?[0-9]{4,}")

Maker = Callable[[random.Random], str]


def documents(count: int, seed: int) -> Iterator[bytes]:
    """So many values; runs of good ones among them, as in a topic."""
    chance = random.Random(seed)
    made = 0
    while made < count:
        good = chance.random() < 0.5
        for _ in range(min(chance.choice((1, 5, 40, 300)), count - made)):
            document = _good(chance) if good else _any(chance)
            while _COSTLY.search(document):
                document = _any(chance)
            yield document
            made += 1


def _any(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.35:
        return _object(chance, _odd).encode("utf-8", "surrogatepass")
    if kind < 0.45:
        return _good(chance)
    if kind < 0.5:
        return chance.choice(_WHOLE)
    if kind < 0.6:
        return _good(chance) + chance.choice((b"", b" ", b"\n", b",", b"}")) + _any(chance)
    if kind < 0.65:
        return _good(chance) + b'}{"r":' + _good(chance)
    return _broken(chance)


_WHOLE = (
    b"",
    b" \n\t",
    b"null",
    b"true",
    b"5",
    b"[]",
    b'[{"a":1}]',
    b'"text"',
    b"{}",
    b"{",
    b"not json",
    b"\xff",
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":1}\x00',
    b'null,"r":{"a":1}',
    b'{"a":1},"x":NaN',
    b"{'a':1,'t':'it\\'s'}",
)


def _good(chance: random.Random) -> bytes:
    return _object(chance, _fitting).encode()


def _broken(chance: random.Random) -> bytes:
    data = bytearray(_object(chance, chance.choice((_fitting, _odd))).encode("utf-8", "replace"))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(data) + 1)
        what = chance.random()
        if what < 0.4:
            data[at : at + chance.choice((1, 1, 2, 5))] = b""
        elif what < 0.7:
            data[at:at] = bytes([chance.choice(_NOISE)])
        elif what < 0.9:
            data[at : at + 1] = bytes([chance.choice(_NOISE)])
        else:
            del data[at:]
    return bytes(data)


def _object(chance: random.Random, value: Callable[[random.Random, str], str]) -> str:
    names = chance.sample(_NAMES, chance.randrange(8))
    if chance.random() < 0.1:
        names += chance.choices(("zz", "r", "A", "a", "_corrupt_record", "\\u0061"), k=2)
    space = chance.choice(("", "", "", " ", "\n  "))
    fields = (f'"{name}"{space}:{space}{value(chance, name)}' for name in names)
    return "{" + space + f",{space}".join(fields) + space + "}"


def _fitting(chance: random.Random, name: str) -> str:
    if chance.random() < 0.05:
        return "null"
    return _FITTING.get(name, _MAKERS[0])(chance)


def _odd(chance: random.Random, name: str) -> str:
    if chance.random() < 0.3:
        return _fitting(chance, name)
    return chance.choice(_MAKERS)(chance)


def _text(chance: random.Random) -> str:
    return json.dumps(chance.choice(_WORDS), ensure_ascii=chance.random() < 0.5)


def _odd_text(chance: random.Random) -> str:
    return chance.choice(('"\\ud800"', '"\\ud83d\\ude00"', "'single'", '"\\/"', '"\\u00e9\\b"'))


def _number(chance: random.Random) -> str:
    return chance.choice(_NUMBERS)


def _nested(chance: random.Random) -> str:
    inner = chance.choice(_MAKERS)
    if chance.random() < 0.5:
        return "[" + ", ".join(inner(chance) for _ in range(chance.randrange(4))) + "]"
    names = chance.choices(("p", "q", "r", "k", "z", "other"), k=chance.randrange(4))
    return "{" + ",".join(f'"{name}": {inner(chance)}' for name in names) + "}"


_MAKERS: tuple[Maker, ...] = (
    _text,
    _number,
    _nested,
    _odd_text,
    lambda chance: chance.choice(("true", "false", "null", "tru", "nulls")),
)


def _moment(chance: random.Random, zone: str) -> str:
    day = f"20{chance.randrange(100):02}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
    clock = ":".join(f"{chance.randrange(most):02}" for most in (24, 60, 60))
    fraction = chance.choice(("", "", ".5", f".{chance.randrange(10**6):06}"))
    return f'"{day}{chance.choice("T ")}{clock}{fraction}{zone}"'


def _struct(chance: random.Random) -> str:
    return f'{{"p":{chance.randrange(9)},"q":"{chance.randrange(9)}","r":{_moment(chance, "Z")}}}'


_FITTING: dict[str, Maker] = {
    "a": lambda chance: str(chance.randrange(-(2**63), 2**63)),
    "i": lambda chance: str(chance.randrange(-(2**31), 2**31)),
    "s": lambda chance: str(chance.randrange(-(2**15), 2**15)),
    "b": lambda chance: str(chance.randrange(-128, 128)),
    "f": lambda chance: repr(chance.uniform(-1e6, 1e6)),
    "d": lambda chance: repr(chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300)),
    "t": _text,
    "o": lambda chance: chance.choice(("true", "false")),
    "m": lambda chance: f"{chance.randrange(-(10**15), 10**15)}.{chance.randrange(10**5):05}",
    "w": lambda chance: _moment(chance, chance.choice(("", "", "Z", "+05:30", "-11:00"))),
    "l": lambda chance: _moment(chance, ""),
    "y": lambda chance: _moment(chance, "")[:11] + '"',
    "n": _struct,
    "v": lambda chance: str([chance.randrange(99) for _ in range(chance.randrange(4))]),
    "u": lambda chance: f'[{{"k":{_text(chance)},"z":{chance.random()}}}, {{"z":1}}]',
    "x": lambda chance: '"' + "AAEC" * chance.randrange(4) + '"',
    "g": lambda chance: f'{{"k":{chance.randrange(9)},"k":2}}',
    "h": lambda chance: f'{{"k":{{"p":{chance.randrange(9)}}}}}',
}
