"""Who holds which partition at this moment, and for how long that has been so.

Schemes report here what members do; spans, gaps and double ownership follow from it. A member
*reads* unless its process or user stands still (idle) or the group would refuse its commits
(fenced). Two owners are two who read: a commit of either would be accepted.

Rule: a scheme cannot say that there are two owners or that a partition stands still. It says who
takes and who gives up; the rest is counted here, in the same way for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.lab.trace import Double, Gap, Holding, Mark, Move, Span, Trace
from shoal.types import TopicPartition


class Ledger:
    """Turns takings and givings into spans."""

    def __init__(self, trace: Trace, now: Callable[[], int]) -> None:
        self._trace = trace
        self._now = now
        self._held: dict[str, dict[TopicPartition, int]] = {}
        """Member → partition → since when in its present state."""
        self._readers: dict[TopicPartition, dict[str, None]] = {}
        self._idle: set[str] = set()
        self._fenced: set[str] = set()
        self._leaderless: set[TopicPartition] = set()
        self._gaps: dict[TopicPartition, int] = {}
        self._doubles: dict[TopicPartition, tuple[int, tuple[str, ...]]] = {}
        self._last_owner: dict[TopicPartition, str] = {}

    def mark(self, member: str | None, what: str, why: str = "") -> None:
        self._trace.marks.append(Mark(self._now(), member, what, why))

    def exists(self, tp: TopicPartition) -> None:
        """The group wants this partition from now on."""
        if tp not in self._readers:
            self._readers[tp] = {}
            self._gaps[tp] = self._now()

    def held(self, member: str) -> list[TopicPartition]:
        return list(self._held.get(member, ()))

    # --- what members do -----------------------------------------------------------------------

    def hold(self, member: str, tp: TopicPartition) -> None:
        held = self._held.setdefault(member, {})
        if tp in held:
            return
        self.exists(tp)
        held[tp] = self._now()
        giver = self._last_owner.get(tp, member)
        if giver != member:
            self._trace.moves.append(Move(self._now(), tp, giver, member))
        self._last_owner[tp] = member
        if self._holding(member, tp) is Holding.READING:
            self._add_reader(tp, member)

    def release(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        held = self._held.get(member, {})
        for tp in partitions:
            if tp in held:
                self._close_span(member, tp, held.pop(tp))
                self._drop_reader(tp, member)

    def gone(self, member: str) -> None:
        """The process is no more: it holds nothing, whatever others still believe."""
        self.release(member, self.held(member))
        self._idle.discard(member)
        self._fenced.discard(member)

    def set_idle(self, member: str, *, is_idle: bool) -> None:
        self._change(member, self._idle, is_idle)

    def set_fenced(self, member: str, *, is_fenced: bool) -> None:
        self._change(member, self._fenced, is_fenced)

    def _change(self, member: str, flags: set[str], value: bool) -> None:
        if (member in flags) == value:
            return
        held = self._held.get(member, {})
        for tp, since_ms in held.items():
            self._close_span(member, tp, since_ms)
            held[tp] = self._now()
        (flags.add if value else flags.discard)(member)
        for tp in held:
            self._count_reader(tp, member)

    def set_leaderless(self, tp: TopicPartition, *, is_leaderless: bool) -> None:
        """No broker can be read from, whoever holds the partition."""
        if (tp in self._leaderless) == is_leaderless:
            return
        holders = [(member, held) for member, held in self._held.items() if tp in held]
        for member, held in holders:
            self._close_span(member, tp, held[tp])
            held[tp] = self._now()
        (self._leaderless.add if is_leaderless else self._leaderless.discard)(tp)
        for member, _ in holders:
            self._count_reader(tp, member)

    def _holding(self, member: str, tp: TopicPartition) -> Holding:
        if member in self._fenced:
            return Holding.FENCED
        if member in self._idle:
            return Holding.IDLE
        return Holding.LEADERLESS if tp in self._leaderless else Holding.READING

    def _count_reader(self, tp: TopicPartition, member: str) -> None:
        reads = self._holding(member, tp) is Holding.READING
        (self._add_reader if reads else self._drop_reader)(tp, member)

    # --- what follows from it ------------------------------------------------------------------

    def _close_span(self, member: str, tp: TopicPartition, since_ms: int) -> None:
        now_ms = self._now()
        if now_ms > since_ms:
            self._trace.spans.append(Span(member, tp, since_ms, now_ms, self._holding(member, tp)))

    def _add_reader(self, tp: TopicPartition, member: str) -> None:
        readers = self._readers[tp]
        if member in readers:
            return
        self._close_double(tp)
        readers[member] = None
        since_ms = self._gaps.pop(tp, None)
        if since_ms is not None and self._now() > since_ms:
            self._trace.gaps.append(Gap(tp, since_ms, self._now()))
        self._open_double(tp)

    def _drop_reader(self, tp: TopicPartition, member: str) -> None:
        readers = self._readers[tp]
        if member not in readers:
            return
        self._close_double(tp)
        del readers[member]
        if not readers:
            self._gaps[tp] = self._now()
        self._open_double(tp)

    def _open_double(self, tp: TopicPartition) -> None:
        readers = self._readers[tp]
        if len(readers) > 1:
            self._doubles[tp] = (self._now(), tuple(sorted(readers)))

    def _close_double(self, tp: TopicPartition) -> None:
        since = self._doubles.pop(tp, None)
        if since is not None and self._now() > since[0]:
            self._trace.doubles.append(Double(tp, since[1], since[0], self._now()))

    def finish(self) -> None:
        """The run is over: close whatever is open."""
        trace, now_ms = self._trace, self._now()
        for member, held in self._held.items():
            for tp, since_ms in held.items():
                self._close_span(member, tp, since_ms)
        trace.uncovered = len(self._gaps)
        trace.gaps += [Gap(tp, since, now_ms) for tp, since in self._gaps.items() if since < now_ms]
        for tp in list(self._doubles):
            self._close_double(tp)
        trace.spans.sort(key=lambda span: (span.begin_ms, span.member, span.tp))
        trace.gaps.sort(key=lambda gap: (gap.begin_ms, gap.tp))
        trace.doubles.sort(key=lambda double: (double.begin_ms, double.tp))
