"""When a member does something again: backoffs, and the three clocks of a heartbeat.

Rule: nothing here reads a clock; every call is told the time, and a deadline is a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.group.member.member_interface import MemberConfig

_GROWTH: Final = 2
_JITTER: Final = 0.2


class Backoff:
    """Waits that double from the first to the longest, each spread by a fifth up or down."""

    __slots__ = ("_attempts", "_chance", "_first_ms", "_longest_ms")

    def __init__(self, first_ms: int, longest_ms: int, chance: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._chance = chance
        self._attempts = 0

    def next_ms(self) -> int:
        wait_ms = min(self._first_ms * _GROWTH**self._attempts, self._longest_ms)
        if wait_ms < self._longest_ms:
            self._attempts += 1
        spread = 1 - _JITTER + 2 * _JITTER * self._chance()
        return min(self._longest_ms, int(wait_ms * spread))

    def reset(self) -> None:
        self._attempts = 0


class HeartbeatClocks:
    """When to send the next heartbeat, when the session is over, when the user has stalled.

    The first two run while the member is in the group; the third runs from poll to poll and is
    not reset by anything else, so a stuck application cannot hide behind rebalances.
    """

    __slots__ = (
        "_backoff",
        "_interval_ms",
        "_poll_ms",
        "_session_ms",
        "poll_ends_ms",
        "send_at_ms",
        "session_ends_ms",
    )

    def __init__(self, config: MemberConfig, chance: Callable[[], float]) -> None:
        self._interval_ms = config.heartbeat_interval_ms
        self._session_ms = config.session_timeout_ms
        self._poll_ms = config.max_poll_interval_ms
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self.send_at_ms = 0
        self.session_ends_ms = 0
        self.poll_ends_ms = 0

    def joined(self, now_ms: int) -> None:
        """JoinGroup was answered: heartbeats begin."""
        self.send_at_ms = now_ms + self._interval_ms
        self.session_ends_ms = now_ms + self._session_ms
        self._backoff.reset()

    def polled(self, now_ms: int) -> None:
        self.poll_ends_ms = now_ms + self._poll_ms

    def sent(self, now_ms: int) -> None:
        self.send_at_ms = now_ms + self._interval_ms

    def answered(self, now_ms: int) -> None:
        self.session_ends_ms = now_ms + self._session_ms
        self._backoff.reset()

    def failed(self, now_ms: int) -> None:
        """Try again soon: the session runs on."""
        self.send_at_ms = now_ms + self._backoff.next_ms()

    def coordinator_found(self, now_ms: int) -> None:
        """A new coordinator deserves a whole session before it is doubted."""
        self.session_ends_ms = now_ms + self._session_ms
