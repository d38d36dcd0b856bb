"""What a run leaves behind: every message, who held what when, and what became of the records.

Rule: a trace holds facts with times and no judgement; ``metrics`` counts and ``timeline`` draws.
Times are milliseconds; zero is when the group had settled, so the warm-up is negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from shoal.types import TopicPartition


class SentMessage(NamedTuple):
    """One message, or several (``times``) that were sent in one go."""

    sent_ms: int
    arrives_ms: int
    sender: str
    receiver: str
    what: str
    times: int = 1
    detail: str = ""
    is_pushed: bool = False
    """Nobody had asked for it: a notification."""
    place: str = ""
    """Which server of the registry, or which broker."""


class Holding(Enum):
    """What a member does with a partition it believes to own."""

    READING = "reads"
    IDLE = "idle"
    """Its process or its user stands still: nobody reads."""
    FENCED = "fenced"
    """It reads, but the group has gone on: its commits would be refused."""
    LEADERLESS = "waits for a leader of"
    """The broker that led the partition is gone, and no other leads yet."""


class Span(NamedTuple):
    """A member held a partition."""

    member: str
    tp: TopicPartition
    begin_ms: int
    end_ms: int
    holding: Holding


class Gap(NamedTuple):
    """Nobody read a partition (or nobody whose work counts)."""

    tp: TopicPartition
    begin_ms: int
    end_ms: int


class Double(NamedTuple):
    """Several members read a partition, and a commit of each would have been accepted."""

    tp: TopicPartition
    members: tuple[str, ...]
    begin_ms: int
    end_ms: int


class Move(NamedTuple):
    """A partition went to another member than it had before."""

    at_ms: int
    tp: TopicPartition
    giver: str
    taker: str


class Mark(NamedTuple):
    """Something worth a word in the picture."""

    at_ms: int
    member: str | None
    what: str
    why: str = ""


@dataclass(slots=True)
class Trace:
    """Everything that happened, in order."""

    scheme: str
    scenario: str
    seed: int
    begin_ms: int
    end_ms: int
    authorities: tuple[str, ...]
    """Who is asked: the registry, the coordinator, or both; the one that decides is the first."""
    messages: list[SentMessage] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    doubles: list[Double] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    """What the scenario did, with the times of this seed."""
    records_processed: int = 0
    records_twice: int = 0
    records_lost: int = 0
    """Committed as done, and never processed by anybody."""
    commits_refused: int = 0
    commits_backwards: int = 0
    """Offsets that an accepted commit moved back."""
    uncovered: int = 0
    """Partitions that nobody read at the end."""
    commits: int = 0
    """Offsets of partitions that members committed."""
    commits_lost: int = 0
    """Of these, how many were stored nowhere: refused, or lost on the way."""
    commits_repeated: int = 0
    """Of these, how often one was stored again, because its answer was lost."""
    stale_decisions: int = 0
    """How often a member decided on a list of members that was not the current one."""
    between_servers: int = 0
    """Messages between the servers of the registry."""
    leaders_moved: int = 0
    """How often another broker became the leader of a partition."""
    takeovers: list[tuple[int, int]] = field(default_factory=list)
    """When the registry or coordinator was gone, and when there was one again."""

    @property
    def authority(self) -> str:
        """Who decides."""
        return self.authorities[0]

    @property
    def members(self) -> list[str]:
        """Everybody who was there, in the order of their numbers."""
        names = {span.member for span in self.spans}
        names |= {mark.member for mark in self.marks if mark.member is not None}
        return sorted(names, key=lambda name: (len(name), name))

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted({span.tp for span in self.spans} | {gap.tp for gap in self.gaps})

    def digest(self) -> int:
        """A checksum of all of it: equal runs have equal ones."""
        total = 0
        for part in (self.messages, self.spans, self.gaps, self.doubles, self.moves, self.marks):
            for each in part:
                total = crc32(repr(each).encode(), total)
        numbers = (self.records_processed, self.records_twice, self.records_lost, self.uncovered,
                   self.commits, self.commits_lost, self.commits_repeated)  # fmt: skip
        return crc32(repr(numbers).encode(), total)
