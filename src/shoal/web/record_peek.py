"""A look at records: the newest or the oldest that match, within a budget that is told.

Filters are data: a field, an operator, a value. Nothing a browser sends is run.

Rule: bounded in records, bytes and time; and the answer says how far it looked, so that "nothing
found" is never mistaken for "nothing there".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shoal.client.ranges import RangeReader
from shoal.errors import ConfigError
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch

SHOWN_MAX: Final = 100
RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 32 * 1024 * 1024
SECONDS_MAX: Final = 8.0
STEP_RECORDS: Final = 500
PREVIEW_BYTES: Final = 4 * 1024
FILTERS_MAX: Final = 8
_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """One condition: ``key``, ``value``, ``header:NAME`` or ``json:PATH.TO.FIELD``."""

    field: str
    operator: str
    value: str

    @classmethod
    def of(cls, given: Any) -> RecordFilter:
        """From JSON.

        Raises:
            ConfigError: it is not a condition.
        """
        if not isinstance(given, dict) or set(given) != {"field", "operator", "value"}:
            raise ConfigError("a filter is a field, an operator and a value")
        field, operator, value = (given[name] for name in ("field", "operator", "value"))
        if not all(isinstance(one, str) and len(one) <= 1_000 for one in given.values()):
            raise ConfigError("field, operator and value of a filter are short texts")
        kind, colon, name = field.partition(":")
        if (colon and (kind not in ("header", "json") or not name)) or (
            not colon and field not in ("key", "value")
        ):
            raise ConfigError(f"{field!r} is none of key, value, header:NAME, json:PATH")
        if operator not in OPERATORS:
            raise ConfigError(f"{operator!r} is none of {', '.join(OPERATORS)}")
        return cls(field, operator, value)

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a record meets it; what is not there meets nothing."""
        found = self._found(row)
        return found is not None and OPERATORS[self.operator](found, self.value)

    def _found(self, row: Mapping[str, Any]) -> str | None:
        kind, _, name = self.field.partition(":")
        if kind == "header":
            values = [one["value"] for one in row["headers"] or () if one["key"] == name]
            return _text(values[-1]) if values else None
        if kind != "json":
            return _text(row[kind])
        try:
            found = json.loads(row["value"] or b"")
        except (ValueError, RecursionError):
            return None
        for part in name.split("."):
            if not isinstance(found, dict) or part not in found:
                return None
            found = found[part]
        return found if isinstance(found, str) else json.dumps(found)


OPERATORS: Final[dict[str, Callable[[str, str], bool]]] = {
    "contains": lambda found, wanted: wanted.lower() in found.lower(),
    "is": lambda found, wanted: found == wanted,
    "is not": lambda found, wanted: found != wanted,
    "begins with": lambda found, wanted: found.startswith(wanted),
}


@dataclass(frozen=True, slots=True)
class PeekOrder:
    """What to look for."""

    topic: str
    partition: int | None
    is_newest: bool
    filters: Sequence[RecordFilter]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PeekOrder:
        """From JSON.

        Raises:
            ConfigError: it is not one.
        """
        topic, partition = given.get("topic"), given.get("partition")
        if not isinstance(topic, str):
            raise ConfigError("name a topic")
        if partition is not None and (type(partition) is not int or partition < 0):
            raise ConfigError("a partition is a number")
        if given.get("order") not in ("newest", "oldest"):
            raise ConfigError("order is newest or oldest")
        filters = given.get("filters", [])
        if not isinstance(filters, list) or len(filters) > FILTERS_MAX:
            raise ConfigError(f"filters are a list of at most {FILTERS_MAX}")
        chosen = [RecordFilter.of(one) for one in filters]
        return cls(topic, partition, given["order"] == "newest", chosen)


def peek(watch: ClusterWatch, order: PeekOrder) -> dict[str, Any]:
    """Records that match, and how far was looked for them."""
    ranges = _ranges(watch, order)
    total = sum(end - start for start, end in ranges.values())
    found: list[dict[str, Any]] = []
    reached: dict[int, datetime] = {}
    scanned = read_bytes = 0
    stopped = ""
    deadline_s = time.monotonic() + SECONDS_MAX
    with RangeReader(**watch.settings) as reader:
        for step, is_left in _steps(ranges, is_newest=order.is_newest):
            for batch in reader.read(step, columns=_COLUMNS, timeout=SECONDS_MAX):
                read_bytes += batch.nbytes
                for row in batch.to_pylist():
                    number: int = row["partition"]
                    at: datetime = row["timestamp"]
                    last = reached.get(number, at)
                    reached[number] = min(last, at) if order.is_newest else max(last, at)
                    if all(one.matches(row) for one in order.filters):
                        found.append(row)
            scanned += sum(end - start for start, end in step.values())
            open_ends = [at for number, at in reached.items() if number in is_left]
            if _settled(found, open_ends, is_newest=order.is_newest) >= SHOWN_MAX:
                stopped = f"no more than {SHOWN_MAX} are shown"
            stopped = stopped or _spent(scanned, read_bytes, deadline_s)
            if stopped:
                break
    found.sort(key=lambda row: (row["timestamp"], row["offset"]), reverse=order.is_newest)
    return {
        "records": [_shown(row) for row in found[:SHOWN_MAX]],
        "matched": len(found),
        "scanned": scanned,
        "total": total,
        "complete": scanned >= total,
        "stopped": "" if scanned >= total else stopped,
    }


def _settled(
    found: Sequence[Mapping[str, Any]], open_ends: Sequence[datetime], *, is_newest: bool
) -> int:
    """How many of the records found come before all that was not looked at yet.

    A busy partition has many newer records than a quiet one: as long as it has more to show, what
    is older there may have to come first.
    """
    if not open_ends:
        return len(found)
    if is_newest:
        edge = max(open_ends)
        return sum(row["timestamp"] >= edge for row in found)
    edge = min(open_ends)
    return sum(row["timestamp"] <= edge for row in found)


def _spent(scanned: int, read_bytes: int, deadline_s: float) -> str:
    if scanned >= RECORDS_MAX:
        return f"a look goes through {RECORDS_MAX:,} offsets at most"
    if read_bytes >= BYTES_MAX:
        return f"a look reads {BYTES_MAX // 1024 // 1024} MiB at most"
    return f"a look takes {SECONDS_MAX:g} s at most" if time.monotonic() > deadline_s else ""


def _ranges(watch: ClusterWatch, order: PeekOrder) -> dict[TopicPartition, tuple[int, int]]:
    described = watch.admin.describe_topics(order.topic)[order.topic]
    tps = [
        TopicPartition(order.topic, one.partition)
        for one in described.partitions
        if order.partition in (None, one.partition)
    ]
    if not tps:
        raise ConfigError(f"{order.topic} has no partition {order.partition}")
    first = watch.admin.list_offsets(dict.fromkeys(tps, "earliest"))
    last = watch.admin.list_offsets(dict.fromkeys(tps, "latest"))
    found = {}
    for tp in tps:
        low, high = first[tp], last[tp]
        if low is not None and high is not None:
            found[tp] = (low.offset, high.offset)
    return found


def _steps(
    ranges: Mapping[TopicPartition, tuple[int, int]], *, is_newest: bool
) -> Iterator[tuple[dict[TopicPartition, tuple[int, int]], set[int]]]:
    """Ranges in pieces, from one end to the other, all partitions side by side; and the
    partitions of which something is left after each."""
    left = {tp: one for tp, one in ranges.items() if one[0] < one[1]}
    while left:
        size = max(1, STEP_RECORDS // len(left))
        step = {}
        for tp, (start, end) in list(left.items()):
            if is_newest:
                cut = max(start, end - size)
                step[tp], left[tp] = (cut, end), (start, cut)
            else:
                cut = min(end, start + size)
                step[tp], left[tp] = (start, cut), (cut, end)
            if left[tp][0] >= left[tp][1]:
                del left[tp]
        yield step, {tp.partition for tp in left}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    at: datetime = row["timestamp"]
    return {
        "partition": row["partition"],
        "offset": str(row["offset"]),
        "at_ms": int(at.timestamp() * 1000),
        "key": _preview(row["key"]),
        "value": _preview(row["value"]),
        "headers": [{"name": one["key"], **_preview(one["value"])} for one in row["headers"] or ()],
    }


def _preview(data: bytes | None) -> dict[str, Any]:
    """A field as people read it: JSON indented, text as it is, anything else in hexadecimal."""
    if data is None:
        return {"kind": "null", "text": "", "bytes": 0, "cut": False}
    cut = data[:PREVIEW_BYTES]
    found: dict[str, Any] = {"bytes": len(data), "cut": len(data) > len(cut)}
    try:
        text = cut.decode("utf-8", "ignore" if found["cut"] else "strict")
        if found["cut"]:
            data.decode("utf-8")
    except UnicodeDecodeError:
        return {**found, "kind": "hex", "text": cut[:512].hex(" ")}
    if not found["cut"] and text[:1] in ("{", "["):
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
            return {**found, "kind": "json", "text": text, "pretty": pretty}
        except (ValueError, RecursionError):
            pass
    return {**found, "kind": "text", "text": text}
