"""Where a consumer stands in each of its partitions.

A partition is in one of three states: it needs a position (nothing known yet: look for a
committed offset), it awaits a reset (beginning, end or a time: ask the leader), or it has a
position and can be fetched. ``seek`` moves between them and never asks anybody.

Rule: ``position`` is the next offset the user gets; ``fetch_offset`` runs ahead of it by what is
buffered. Whatever moves the position by force raises ``lap``, so that answers to fetches of an
earlier lap are recognised and dropped.

Two threads meet here without a lock: the engine's adds chunks, the user's takes them. Each field
has one writer at a time: ``position`` and ``taken_bytes`` belong to the user's thread while it
takes, everything else to the engine, which changes positions only in calls that thread waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shoal.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from shoal.client.tallies import PartitionTally

EARLIEST = -2
LATEST = -1


class AssignedPartition:
    """One partition of the assignment."""

    __slots__ = (
        "added_bytes",
        "checked_epoch",
        "end_offset",
        "fetch_epoch",
        "fetch_offset",
        "found_at",
        "is_doubtful",
        "is_held",
        "is_paused",
        "lap",
        "leader_epoch",
        "log_start_offset",
        "position",
        "read_from",
        "read_from_until",
        "reset_to",
        "retry_at",
        "taken_bytes",
        "tally",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position: int | None = None
        self.fetch_offset = 0
        self.found_at: int | None = None
        """A position that was found since the last poll: nobody has read from there yet."""
        self.lap = 0
        self.reset_to: int | None = None
        """EARLIEST, LATEST or ``None``: no reset is due."""
        self.leader_epoch: int | None = None
        """Of the record before ``position``; committed with it."""
        self.fetch_epoch: int | None = None
        """Of the record before ``fetch_offset``."""
        self.checked_epoch: int | None = None
        """The leader epoch in which ``fetch_offset`` is known to be in the log."""
        self.is_doubtful = False
        """The leader changed and the log may have been cut: no records, no fetches yet."""
        self.is_paused = False
        self.is_held = False
        """About to be revoked: no records, no fetches (KAFKA-14196)."""
        self.end_offset: int | None = None
        """Where reading ends for now, as the last fetch said: the high watermark, or for
        ``read_committed`` the last stable offset."""
        self.log_start_offset: int | None = None
        self.read_from: int | None = None
        """A replica the leader pointed us to, nearer than itself (KIP-392)."""
        self.read_from_until = 0.0
        """On the loop's clock: then the leader is asked again, which knows who keeps up."""
        self.retry_at = 0.0
        """On the loop's clock: not fetched before, because the last answer was an error."""
        self.added_bytes = 0
        self.taken_bytes = 0
        self.tally: PartitionTally | None = None
        """What was read of it, once something was; it outlives an assignment."""

    @property
    def buffered_bytes(self) -> int:
        return self.added_bytes - self.taken_bytes

    @property
    def needs_position(self) -> bool:
        return self.position is None and self.reset_to is None

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        self.position = self.fetch_offset = offset
        self.leader_epoch = self.fetch_epoch = leader_epoch
        self.checked_epoch = None
        self.is_doubtful = False
        self.reset_to = None
        self.found_at = None
        self.lap += 1
        self.retry_at = 0.0

    def find(self, offset: int, leader_epoch: int | None) -> None:
        """The position that was looked for while the user was doing something else."""
        self.seek(offset, leader_epoch)
        self.found_at = offset

    def reset(self, to: int) -> None:
        """Ask the leader for ``to`` (EARLIEST, LATEST) before the next fetch."""
        self.position = None
        self.reset_to = to
        self.is_doubtful = False
        self.lap += 1
        self.read_from = None


class Positions:
    """The assignment: which partitions are ours and where we stand in each."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, AssignedPartition] = {}

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: object) -> bool:
        return tp in self._states

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        return self._states.get(tp)

    def __getitem__(self, tp: TopicPartition) -> AssignedPartition:
        state = self._states.get(tp)
        if state is None:
            raise ValueError(f"{tp} is not assigned to this consumer")
        return state

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Own exactly these; what was owned before keeps its state, the rest is forgotten."""
        old = self._states
        # A new dict, not a changed one: the user's thread may be walking the old.
        self._states = {tp: old.get(tp) or AssignedPartition(tp) for tp in partitions}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        for tp in gone:
            state = self._states.get(tp)
            if state is not None:
                state.lap += 1
        self._states = {tp: s for tp, s in self._states.items() if tp not in gone}

    def polled(self) -> None:
        """The user polls: what was found is where reading begins."""
        for state in self:
            state.found_at = None

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What there is to commit: the positions of all partitions that have one.

        Not those that were found in the background and never polled: a commit of them could
        replace one the user has made, and skip records.
        """
        return {
            state.tp: OffsetAndMetadata(state.position, leader_epoch=state.leader_epoch)
            for state in self
            if state.position is not None and state.position != state.found_at
        }
