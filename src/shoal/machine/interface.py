"""A journaled machine, as the shell around it sees it.

Decide, then replay. A call returns a ``Decision``; the shell does what it says::

    decision = machine.handle(request, caller, now_ms)
    if decision.journal:
        try:
            offset = append(decision.journal)              # one batch: all of it or nothing
        except CannotAppend as fault:
            decision = machine.append_failed(decision, fault.code, now_ms)
        else:
            machine.replay_all(decision.journal, offset)
    queue(decision.replies)                                # sent in order, see below

Two rules for the shell:

* *Settle at once.* A journal is appended and replayed, or has failed, before the next call. How
  long it takes to become durable is another matter: many appends may be under way to the disk.
* *Replies leave in order, each after every record appended before it is durable.* A reply may
  tell of state that an earlier, still undurable record made: a heartbeat's NONE, an assignment, a
  fetched offset. If a record turns out not to be durable after all (fsync failed), the state here
  is ahead of the disk: answer what is queued with ``refuse``, ``unload``, and load again.

``tick`` is called when ``next_deadline`` has come, again and again until that is in the future.

Durable state changes in ``replay`` alone, so loading after a crash and running are one code path,
and a machine rebuilt from its records equals the one that wrote them (``durable()``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from shoal.errors import ErrorCode
from shoal.machine.decision import Caller, Decision, Response

RecordT = TypeVar("RecordT")
EventT = TypeVar("EventT")


class Machine(Protocol[RecordT, EventT]):
    """One partition's worth of state: it decides, and changes only by what is replayed to it."""

    def replay(self, record: RecordT, offset: int) -> None:
        """Apply one record that stands in the journal at ``offset``."""
        ...

    def replay_all(self, records: Iterable[RecordT], base_offset: int) -> None:
        """Apply the records of a decision, appended from ``base_offset`` on."""
        ...

    def loaded(self, now_ms: int) -> Decision[RecordT, EventT]:
        """Begin to serve after the last ``replay`` of the journal."""
        ...

    def unload(self, now_ms: int) -> Decision[RecordT, EventT]:
        """Stop serving: answer whoever is parked, and everybody from now on."""
        ...

    def handle(self, request: Any, caller: Caller, now_ms: int) -> Decision[RecordT, EventT]:
        """Decide about one request of ``shoal.wire.apis``.

        If the decision holds no reply for the ticket, the request is parked and a later one does.
        """
        ...

    def append_failed(
        self, decision: Decision[RecordT, EventT], error: ErrorCode, now_ms: int
    ) -> Decision[RecordT, EventT]:
        """Nothing of the decision's journal was written. What to answer instead."""
        ...

    def refuse(self, response: Response, error: ErrorCode) -> Response:
        """What to send in place of a response whose records turned out not to be durable."""
        ...

    def tick(self, now_ms: int) -> Decision[RecordT, EventT]:
        """Do what is due. It stops after the first thing that writes: call until nothing is."""
        ...

    def next_deadline(self) -> int | None:
        """When ``tick`` must be called at the latest, on the clock of ``now_ms``."""
        ...

    def durable(self) -> object:
        """Equal for machines built from the same records. Compare it, do not keep it."""
        ...
