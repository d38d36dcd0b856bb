"""Families of samples → the text that Prometheus scrapes. Pure.

Two formats: Prometheus' own (0.0.4), which everything reads, and OpenMetrics 1.0, which differs in
what a counter is called and in its last line.

Rule: names and help texts are ours; label values are anybody's text and are escaped here, nowhere
else. A group may be called ``x"} 1\\n# TYPE``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Final, Literal, Protocol

Kind = Literal["gauge", "counter", "histogram"]
Labels = tuple[str, ...]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

PIECE_LINES: Final = 1_000
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's state: how many values were at most each bound, all values, and their sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    """One more than there are bounds: the last is of values above them all. Not yet added up."""
    total: float


class Samples(Protocol):
    """A value for each set of label values. A dict is one; where there are very many, they may be
    made one by one."""

    def __len__(self) -> int: ...

    def items(self) -> Iterable[tuple[Labels, float | Buckets]]: ...


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, what it means, its labels, a value for each set of label values.

    The name of a counter is given without ``_total``.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Samples

    @property
    def series(self) -> int:
        """How many time series a scrape of it makes."""
        if self.kind != "histogram":
            return len(self.samples)
        return sum(
            len(one.bounds) + 3 if isinstance(one, Buckets) else 1
            for _, one in self.samples.items()
        )


def gauge(name: str, text: str, value: float) -> Family:
    """A gauge without labels."""
    return Family(name, "gauge", text, (), {(): value})


def render(families: Iterable[Family], *, openmetrics: bool = False, is_end: bool = True) -> bytes:
    """The text of one scrape, or of its beginning."""
    return b"".join(render_pieces(families, openmetrics=openmetrics, is_end=is_end))


def render_pieces(
    families: Iterable[Family], *, openmetrics: bool = False, is_end: bool = True
) -> list[bytes]:
    """The same, not put together."""
    found = [piece for family in families for piece in pieces(family, openmetrics=openmetrics)]
    return [*found, b"# EOF\n"] if openmetrics and is_end else found


def render_both(families: Iterable[Family]) -> dict[bool, list[bytes]]:
    """The beginning of a scrape in pieces, as text and as OpenMetrics. Of most families these are
    the same, and are made and kept once."""
    texts: dict[bool, list[bytes]] = {False: [], True: []}
    for family in families:
        plain = list(pieces(family))
        texts[False] += plain
        texts[True] += pieces(family, openmetrics=True) if family.kind == "counter" else plain
    return texts


def pieces(family: Family, *, openmetrics: bool = False) -> Iterator[bytes]:
    """The text of one family, ``PIECE_LINES`` at a time."""
    shown = family.name
    if family.kind == "counter" and not openmetrics:
        shown += "_total"
    head = (
        f"# HELP {shown} {family.help.translate(_HELP_ESCAPES)}",
        f"# TYPE {shown} {family.kind}",
    )
    lines = chain(head, _lines(family))
    while part := list(islice(lines, PIECE_LINES)):
        # A name may hold what is no text at all; a scrape must not fail for it.
        yield "".join(f"{line}\n" for line in part).encode("utf-8", "replace")


def _lines(family: Family) -> Iterable[str]:
    name = family.name + ("_total" if family.kind == "counter" else "")
    shape = ",".join(f'{key}="%s"' for key in family.labels)
    for labels, value in family.samples.items():
        pairs = shape % tuple(map(_escaped, labels))
        if isinstance(value, Buckets):
            yield from _histogram(name, pairs, value)
        else:
            yield f"{name}{_braces(pairs)} {_number(value)}"


def _histogram(name: str, pairs: str, value: Buckets) -> Iterable[str]:
    seen = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        seen += count
        limit = f'le="{_number(float(bound))}"'
        yield f"{name}_bucket{_braces(f'{pairs},{limit}' if pairs else limit)} {seen}"
    yield f"{name}_count{_braces(pairs)} {seen}"
    yield f"{name}_sum{_braces(pairs)} {_number(value.total)}"


def _braces(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


@lru_cache(1024)  # a group has many lines, and they follow each other
def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
