"""Spans, gaps, doubles and moves follow from who takes and who gives up; records are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.lab.ledger import Ledger
from shoal.lab.records import RecordBook
from shoal.lab.trace import Double, Gap, Holding, Move, Span, Trace
from shoal.types import TopicPartition

TP = TopicPartition("t", 0)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def ledger() -> tuple[Ledger, Trace, Clock]:
    clock = Clock()
    trace = Trace("scheme", "scenario", 1, 0, 1_000, ("coordinator",))
    made = Ledger(trace, clock)
    made.exists(TP)
    return made, trace, clock


def test_a_partition_without_a_reader_is_a_gap() -> None:
    made, trace, clock = ledger()
    clock.now_ms = 10
    made.hold("a", TP)
    clock.now_ms = 30
    made.release("a", [TP])
    clock.now_ms = 35
    made.hold("b", TP)
    clock.now_ms = 50
    made.finish()
    assert trace.gaps == [Gap(TP, 0, 10), Gap(TP, 30, 35)]
    assert trace.moves == [Move(35, TP, "a", "b")]
    assert [(s.member, s.begin_ms, s.end_ms) for s in trace.spans] == [("a", 10, 30), ("b", 35, 50)]
    assert trace.uncovered == 0


def test_two_readers_at_once_are_two_owners() -> None:
    made, trace, clock = ledger()
    made.hold("a", TP)
    clock.now_ms = 5
    made.hold("b", TP)
    clock.now_ms = 9
    made.release("a", [TP])
    made.finish()
    assert trace.doubles == [Double(TP, ("a", "b"), 5, 9)]


def test_a_fenced_reader_is_no_owner_and_no_help() -> None:
    made, trace, clock = ledger()
    made.hold("a", TP)
    clock.now_ms = 5
    made.set_fenced("a", is_fenced=True)
    clock.now_ms = 8
    made.hold("b", TP)
    clock.now_ms = 20
    made.finish()
    assert trace.doubles == []
    assert trace.gaps == [Gap(TP, 5, 8)]
    assert Span("a", TP, 5, 20, Holding.FENCED) in trace.spans


def test_a_member_that_stands_still_reads_nothing() -> None:
    made, trace, clock = ledger()
    made.hold("a", TP)
    clock.now_ms = 5
    made.set_idle("a", is_idle=True)
    clock.now_ms = 15
    made.set_idle("a", is_idle=False)
    clock.now_ms = 20
    made.finish()
    assert trace.gaps == [Gap(TP, 5, 15)]
    assert [s.holding for s in trace.spans] == [Holding.READING, Holding.IDLE, Holding.READING]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30))
def test_records_processed_twice_are_counted_as_a_counter_would(
    pieces: list[tuple[int, int]],
) -> None:
    book = RecordBook()
    times: dict[int, int] = {}
    for start, length in pieces:
        book.process(TP, start, start + length)
        for offset in range(start, start + length):
            times[offset] = times.get(offset, 0) + 1
    assert book.processed == sum(times.values())
    assert book.twice == sum(count - 1 for count in times.values())
    assert book.missing(TP, 70) == 70 - sum(offset < 70 for offset in times)
