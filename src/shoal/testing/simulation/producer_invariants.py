"""C10: what producers were told about their records holds, and the logs hold nothing else.

    every acknowledged record is in the log, at the offset that was told, and stays there
    records of one producer stand in a partition in the order in which they were sent
    with idempotence each is there once, and one that failed is not there out of its order
    without, what was acknowledged is in order, however often some of it was stored
    after the last fault every record's fate becomes known, and new ones get through

A record's value says who sent it and as which of their records, so whatever stands in a log
can be judged by itself. The model is a list of values per partition. It grows with the high
watermark, because that is what readers see and what must survive.

Rule: a log is looked at whenever it may have changed, and only its new part; after a restart all
of it is read again and compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.records.batch import decode_batch, iter_headers
from shoal.testing.simulation.invariants import demand
from shoal.types import TopicPartition

_READ_BYTES: Final = 1 << 20
_SEPARATOR: Final = "/"
HOLE: Final = b""
"""Stands for a record that is lost and was never promised."""


def value_of(producer: str, number: int) -> bytes:
    return f"{producer}{_SEPARATOR}{number}".encode()


class Promise(NamedTuple):
    """What is demanded of one producer's records."""

    is_idempotent: bool
    has_acks: bool


class _Acknowledged:
    """The acknowledged numbers of one producer in one log, with where they stand."""

    __slots__ = ("_numbers", "_places")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._places: list[tuple[int, int]] = []

    def add(self, number: int, told: int, first: int) -> bool:
        """Whether it stands where its number says, by what was told and by where it came first."""
        at = bisect_left(self._numbers, number)
        before = self._places[at - 1] if at else (-1, -1)
        after = self._places[at] if at < len(self._places) else (told + 1, first + 1)
        self._numbers.insert(at, number)
        self._places.insert(at, (told, first))
        return before[0] < told < after[0] and before[1] < first < after[1]


class _LogModel:
    """One partition of one topic, from its creation to its deletion."""

    __slots__ = ("acknowledged", "first", "last", "values")

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.first: dict[bytes, int] = {}
        self.last: dict[str, int] = {}
        """The highest number of each producer."""
        self.acknowledged: dict[str, _Acknowledged] = {}


class Deliveries:
    """Watches the logs of a broker and what producers are told."""

    def __init__(self) -> None:
        self.stored = 0
        self.duplicates = 0
        """Of producers that may have some."""
        self.acknowledged = 0
        self.failed = 0
        self.heard_of: set[str] = set()
        """Producers of which something was stored."""
        self._promises: dict[str, Promise] = {}
        self._sent: dict[str, list[TopicPartition]] = {}
        self._logs: dict[TopicPartition, list[tuple[bytes, _LogModel]]] = {}
        """Every topic of that name there ever was, by its id; the last one is there now."""

    # --- producers -----------------------------------------------------------------------------

    def started(self, producer: str, promise: Promise) -> None:
        self._promises[producer] = promise
        self._sent[producer] = []

    def next_number(self, producer: str) -> int:
        return len(self._sent[producer])

    def sent(self, producer: str, tp: TopicPartition) -> None:
        """The next number went to ``tp``; known before any log can have it."""
        self._sent[producer].append(tp)

    def was_failed(self, count: int) -> None:
        self.failed += count

    def was_acknowledged(
        self, producer: str, tp: TopicPartition, number: int, offset: int | None
    ) -> None:
        self.acknowledged += 1
        what = f"{producer}'s record {number}"
        if not self._promises[producer].has_acks:
            demand(offset is None, "C10", f"{what} is at {offset} by nobody's word")
            return
        demand(offset is not None, "C10", f"{what} was acknowledged in {tp}, nobody knows where")
        assert offset is not None
        value = value_of(producer, number)
        for _, model in reversed(self._logs.get(tp, [])):
            if offset < len(model.values) and model.values[offset] == value:
                known = model.acknowledged.setdefault(producer, _Acknowledged())
                in_order = known.add(number, offset, model.first[value])
                demand(in_order, "C10", f"{what} stands in {tp} at {offset}, out of its order")
                return
        demand(False, "C10", f"{what} was acknowledged in {tp} at {offset}, where it is not")

    # --- logs ----------------------------------------------------------------------------------

    def look(self, tp: TopicPartition, topic_id: bytes, log: PartitionLog) -> None:
        """Read what has become visible since the last time."""
        model = self._model(tp, topic_id)
        if log.high_watermark > len(model.values):
            for value in _values(log, len(model.values), tp):
                self._found(tp, model, value)

    def reopened(self, tp: TopicPartition, topic_id: bytes, log: PartitionLog) -> None:
        """After a restart everything that was ever visible must be there, as it was."""
        model = self._model(tp, topic_id)
        known = model.values
        there = _values(log, 0, tp, lambda at: at >= len(known) or known[at] == HOLE)
        for offset, value in enumerate(known):
            now = there[offset] if offset < len(there) else None
            demand(now == value, "C10", f"{tp} had {value!r} at {offset}, now {now!r}")
        is_whole = not there or there[-1] != HOLE
        demand(is_whole, "C10", f"{tp} ends in a hole at {len(there) - 1}, and nothing follows")
        for value in there[len(known) :]:
            if value == HOLE:
                known.append(value)
            else:
                self._found(tp, model, value)

    def missing(self, tp: TopicPartition, topic_id: bytes) -> None:
        """After a restart there is no log of it: then nobody may have seen anything in it."""
        model = self._model(tp, topic_id)
        demand(not model.values, "C10", f"{tp} had {len(model.values)} records and is gone")

    def _model(self, tp: TopicPartition, topic_id: bytes) -> _LogModel:
        lives = self._logs.setdefault(tp, [])
        if not lives or lives[-1][0] != topic_id:
            lives.append((topic_id, _LogModel()))
        return lives[-1][1]

    def _found(self, tp: TopicPartition, model: _LogModel, value: bytes) -> None:
        producer, _, digits = value.decode().partition(_SEPARATOR)
        number, offset = int(digits), len(model.values)
        sent = self._sent[producer]
        what = f"{producer}'s record {number}"
        demand(number < len(sent), "C10", f"{what} is in {tp} and was never sent")
        demand(sent[number] == tp, "C10", f"{what} is in {tp}, it was sent to {sent[number]}")
        self.stored += 1
        self.heard_of.add(producer)
        model.values.append(value)
        is_new = value not in model.first
        if self._promises[producer].is_idempotent:
            demand(is_new, "C10", f"{what} is in {tp} at {offset}, a second time")
            last = model.last.get(producer, -1)
            demand(number > last, "C10", f"{what} is in {tp} at {offset}, behind record {last}")
            model.last[producer] = number
        if is_new:
            model.first[value] = offset
        else:
            self.duplicates += 1


def _values(
    log: PartitionLog,
    offset: int,
    tp: TopicPartition,
    may_miss: Callable[[int], bool] = lambda _: False,
) -> list[bytes]:
    """From ``offset`` up to the high watermark.

    Of what nobody was promised a power cut may have taken a part in front of what it left, in the
    segment before; the log names such a hole and does not mend it (L4).
    """
    found: list[bytes] = []
    while offset < log.high_watermark:
        read = log.read(offset, _READ_BYTES)
        if read.error is ErrorCode.CORRUPT_MESSAGE and may_miss(offset):
            found.append(HOLE)
            offset += 1
            continue
        demand(read.error is ErrorCode.NONE, "C10", f"{tp} cannot be read at {offset}")
        data = read.read_bytes()
        began = offset
        for position, header in iter_headers(data):
            for record in decode_batch(data, position):
                if record.offset >= offset:
                    demand(record.offset == offset, "C10", f"{tp} has no offset {offset}")
                    assert record.value is not None
                    found.append(bytes(record.value))
                    offset += 1
            assert header.next_offset == offset
        demand(offset > began, "C10", f"{tp} ends at {offset}, not {log.high_watermark}")
    return found
