"""A machine's own time, which stands still while nobody calls.

``next_deadline`` is never further away than a pulse while anything is timed, so a call that comes
much later shows that the process was paused. Clients could not be heard meanwhile, so the pause
does not count, and for one pulse after it nothing is due: what waits in the sockets is heard
first. A wall clock that jumps is the same to us.
"""

from __future__ import annotations


class OwnTime:
    """Turns the wall clock of the calls into a clock on which nobody was silent in a pause."""

    __slots__ = (
        "_last_call_ms",
        "_listen_until_ms",
        "_promised_ms",
        "_pulse_ms",
        "_stood_still_ms",
    )

    def __init__(self, pulse_ms: int) -> None:
        self._pulse_ms = pulse_ms
        self._stood_still_ms = 0
        self._last_call_ms = 0
        self._promised_ms = 0
        self._listen_until_ms = 0
        """On our own clock: until then nothing is due, after a pause."""

    def begin(self, now_ms: int) -> None:
        self._last_call_ms = self._promised_ms = now_ms

    def clock_ms(self, now_ms: int) -> int:
        return now_ms - self._stood_still_ms

    @property
    def last_clock_ms(self) -> int:
        """Our own clock at the last call."""
        return self._last_call_ms - self._stood_still_ms

    def may_be_due(self, clock_ms: int) -> bool:
        return clock_ms >= self._listen_until_ms

    def advance(self, now_ms: int) -> int:
        """A call comes: notice a pause, and return its length."""
        late_ms = now_ms - self._promised_ms
        paused_ms = 0
        if now_ms < self._last_call_ms:
            self._stood_still_ms += now_ms - self._last_call_ms
        elif late_ms > self._pulse_ms:
            paused_ms = late_ms
            last_clock_ms = self.last_clock_ms
            self._stood_still_ms += late_ms
            if last_clock_ms >= self._listen_until_ms:
                # What came meanwhile is still in the sockets: hear it before anybody expires.
                # Not twice in a row, or who is always late would never expire anybody.
                self._listen_until_ms = now_ms - self._stood_still_ms + self._pulse_ms
        self._last_call_ms = now_ms
        return paused_ms

    def promise(self, deadline_ms: int) -> None:
        """Until then at the latest the next call comes, unless the process is paused."""
        self._promised_ms = deadline_ms

    def deadline_ms(self, clock_ms: int, *, pulses: bool) -> int:
        """A deadline of our own clock on the clock of the calls.

        ``pulses``: something is timed whose silence would count, so a pause must be noticed.
        """
        last_call_ms = self._last_call_ms
        if clock_ms < self._listen_until_ms:
            clock_ms = self._listen_until_ms
        deadline_ms = clock_ms + self._stood_still_ms
        if pulses and deadline_ms > last_call_ms + self._pulse_ms:
            deadline_ms = last_call_ms + self._pulse_ms
        return max(last_call_ms, deadline_ms)
