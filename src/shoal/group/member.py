"""One member of a classic consumer group, without sockets, clocks or threads.

Rule: every call takes ``now_ms`` and returns what the shell has to do, in order; nothing happens
between calls. Orders (``Send``, ``FindCoordinator``, ``RefreshMetadata``) may come out of any
call; steps (``CommitPositions``, ``Revoked``, ``Assigned``, ``Lost``, ``Failed``) come only out
of the calls made for the user's thread: ``poll``, ``callback_done``, ``unsubscribe``, ``close``.

How to drive it::

    member = Member(config, assignors=[...], chance=random.random)

    # the engine, in its loop:
    perform(member.tick(now))                      # not later than member.next_deadline()
    perform(member.receive(ticket, response, now)) # an answer to a Send
    perform(member.connection_lost(now))           # the connection to the coordinator broke
    perform(member.coordinator_found(now))         # FindCoordinator succeeded
    perform(member.coordinator_not_found(code, now))
    perform(member.update_metadata(topics, now))   # every Metadata response
    perform(member.positions_committed(verdict, now))

    # the user's thread, inside poll(), for as long as it waits there:
    perform(member.subscribe(topics, now))
    perform(member.poll(now))       # at once, whenever member.wants_poll, and at least once per
                                    # heartbeat interval: it also feeds max.poll.interval.ms
    perform(member.close(now))

``perform`` walks the outputs. For a ``Revoked``, ``Assigned`` or ``Lost`` it runs the user's
callback and then performs ``member.callback_done(now, error)``, from which the next step comes.
There is at most one such step in a list, and it is the last one. While a callback runs the engine
goes on ticking: heartbeats do not stop for user code.

A commit is not the member's business, but whom to commit as is: ``commit_as()`` gives the
identity or the reason why not, ``commit_answered(code, sent_as, now)`` says what an answer means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.group.membership import (
    ClusterTopics,
    CommitVerdict,
    MemberConfig,
    MemberState,
    Output,
)
from shoal.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from shoal.assign.model import Assignor


class Member:
    """The state machine. See the module's docstring for how to drive it."""

    def __init__(
        self,
        config: MemberConfig,
        *,
        assignors: Sequence[Assignor],
        chance: Callable[[], float],
    ) -> None:
        """``chance`` gives numbers in [0, 1) for the jitter of backoffs."""
        raise NotImplementedError

    # --- what can be asked at any time ---------------------------------------------------------

    @property
    def state(self) -> MemberState: ...

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """Sorted; what the last completed ``Assigned``, ``Revoked`` or ``Lost`` left."""

    @property
    def identity(self) -> ConsumerGroupMetadata: ...

    @property
    def wants_poll(self) -> bool:
        """Whether ``poll`` would do something now: wake up a user who waits in poll."""

    @property
    def holds_records(self) -> bool:
        """True from ``CommitPositions(hold=True)`` to the revocation: return no records."""

    def next_deadline(self) -> int | None:
        """When ``tick`` is due, or ``None``: only an input can change anything."""

    # --- calls for the user's thread -----------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[Output]: ...

    def subscribe_pattern(self, pattern: re.Pattern[str], now_ms: int) -> list[Output]: ...

    def unsubscribe(self, now_ms: int) -> list[Output]:
        """Give up everything: a revoked or lost step, then LeaveGroup after ``callback_done``."""

    def poll(self, now_ms: int) -> list[Output]: ...

    def callback_done(self, now_ms: int, error: Exception | None = None) -> list[Output]: ...

    def callback_interrupted(self, now_ms: int) -> list[Output]:
        """A wakeup cut the callback short: the next ``poll`` gives the same step again."""

    def enforce_rebalance(self, reason: str, now_ms: int) -> list[Output]: ...

    def close(self, now_ms: int) -> list[Output]:
        """Like ``unsubscribe``, and for ever."""

    # --- calls for the engine --------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Output]: ...

    def receive(self, ticket: int, response: object, now_ms: int) -> list[Output]: ...

    def connection_lost(self, now_ms: int) -> list[Output]: ...

    def coordinator_found(self, now_ms: int) -> list[Output]: ...

    def coordinator_not_found(self, code: ErrorCode, now_ms: int) -> list[Output]: ...

    def update_metadata(self, topics: ClusterTopics, now_ms: int) -> list[Output]: ...

    # --- commits -----------------------------------------------------------------------------------

    def commit_as(self) -> ConsumerGroupMetadata | ErrorCode:
        """Whom to send in OffsetCommit, or why none can be sent now.

        REBALANCE_IN_PROGRESS: poll, then try again. ILLEGAL_GENERATION: not in the group.
        """

    def commit_answered(
        self, code: ErrorCode, sent_as: ConsumerGroupMetadata, now_ms: int
    ) -> tuple[CommitVerdict, list[Output]]:
        """What an answer (the first error of its partitions, or NONE) means."""

    def positions_committed(self, verdict: CommitVerdict, now_ms: int) -> list[Output]:
        """The commit asked for by ``CommitPositions`` was answered.

        RETRY makes the member ask again (until the rebalance timeout); anything else goes on.
        """
