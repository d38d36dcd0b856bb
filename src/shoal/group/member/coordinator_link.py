"""A member's view of its coordinator: known or not, looked for or not, what it has been asked.

Rule: an answer counts only while its ticket is valid. Whatever makes the coordinator doubtful
voids all tickets at once, so a late answer from an old connection cannot reach the state machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from shoal.group.member.member_interface import (
    Disconnect,
    FindCoordinator,
    MemberConfig,
    MemberRequest,
    Output,
    Send,
)
from shoal.group.member.pacing import Backoff


class MemberGeneration(NamedTuple):
    """Who a member is in which generation; Kafka's -1 and "" stand for "none yet"."""

    generation_id: int
    member_id: str
    protocol_name: str | None

    @property
    def is_reset(self) -> bool:
        return self.generation_id == -1 or not self.member_id


NO_GENERATION: Final = MemberGeneration(-1, "", None)


class InFlight(NamedTuple):
    """A request without an answer, and the generation that was current when it was sent."""

    request: MemberRequest
    generation: MemberGeneration
    deadline_ms: int


class CoordinatorLink:
    """Tickets and lookups."""

    def __init__(self, config: MemberConfig, chance: Callable[[], float]) -> None:
        self.is_known = False
        self._is_looking = False
        self._is_wanted = False
        self._lookup_at_ms = 0
        # A coordinator that never answered is found again only after a wait: one that accepts
        # and drops connections must not be hammered (KAFKA-6362).
        self._was_heard = True
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._last_ticket = 0
        self._in_flight: dict[int, InFlight] = {}

    @property
    def is_idle(self) -> bool:
        return not self._in_flight

    def next_deadline(self) -> int | None:
        deadline = None
        if self._in_flight:
            deadline = min([flight.deadline_ms for flight in self._in_flight.values()])
        if self.is_known or not self._is_lookup_pending:
            return deadline
        return self._lookup_at_ms if deadline is None else min(deadline, self._lookup_at_ms)

    def is_overdue(self, now_ms: int) -> bool:
        return any(flight.deadline_ms <= now_ms for flight in self._in_flight.values())

    # --- requests ------------------------------------------------------------------------------

    def send(
        self,
        request: MemberRequest,
        generation: MemberGeneration,
        deadline_ms: int,
        out: list[Output],
    ) -> None:
        assert self.is_known
        self._last_ticket += 1
        self._in_flight[self._last_ticket] = InFlight(request, generation, deadline_ms)
        out.append(Send(self._last_ticket, request))

    def take(self, ticket: int) -> InFlight | None:
        """The request that is answered now; ``None`` if nobody waits for the answer any more."""
        flight = self._in_flight.pop(ticket, None)
        if flight is not None:
            self._was_heard = True
            self._backoff.reset()
        return flight

    def void(self, *kinds: type[MemberRequest]) -> None:
        """Answers to requests of these kinds do not matter any more."""
        for ticket in [t for t, f in self._in_flight.items() if isinstance(f.request, kinds)]:
            del self._in_flight[ticket]

    # --- lookups -------------------------------------------------------------------------------

    @property
    def _is_lookup_pending(self) -> bool:
        return self._is_wanted and not self.is_known and not self._is_looking

    def want(self, now_ms: int, out: list[Output]) -> None:
        """Somebody needs the coordinator: look it up as soon as it may be."""
        self._is_wanted = True
        self.look_up(now_ms, out)

    def unwant(self) -> None:
        self._is_wanted = False

    def look_up(self, now_ms: int, out: list[Output]) -> None:
        if not self.is_known and self._is_lookup_pending and now_ms >= self._lookup_at_ms:
            self._is_looking = True
            out.append(FindCoordinator())

    def found(self) -> None:
        self._is_looking = False
        self.is_known = True
        self._was_heard = False

    def not_found(self, now_ms: int) -> None:
        self._is_looking = False
        self._lookup_at_ms = now_ms + self._backoff.next_ms()

    def lose(self, now_ms: int, out: list[Output], *, disconnect: bool) -> list[InFlight]:
        """The coordinator is unknown from now on; returns what will never be answered."""
        if not self.is_known:
            return []
        self.is_known = False
        if disconnect:
            out.append(Disconnect())
        lost = list(self._in_flight.values())
        self._in_flight.clear()
        self._lookup_at_ms = now_ms if self._was_heard else now_ms + self._backoff.next_ms()
        self.look_up(now_ms, out)
        return lost
