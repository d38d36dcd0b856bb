"""Who is logged in: a secret opens a session, and a session's name is a cookie.

Rule: secrets are compared in constant time and are never logged; wrong ones cost time, so that a
password cannot be guessed by trying.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

SESSIONS_MAX: Final = 64
LIFE_S: Final = 7 * 86_400.0
WRONG_S: Final = 1.0
WAITING_MAX: Final = 8


class WebSessions:
    """The sessions of one server."""

    def __init__(
        self,
        secret: str,
        *,
        wrong_s: float = WRONG_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert secret, "a dashboard without a secret would be everybody's"
        self._secret = secret.encode()
        self._wrong_s = wrong_s
        self._clock = clock
        self._opened: dict[str, float] = {}
        self._wrong = asyncio.Lock()
        self._waiting = 0

    async def open(self, given: str) -> str | None:
        """A new session, if the secret is right; ``None`` after a while if not."""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._secret):
            await self._slow_down()
            return None
        while len(self._opened) >= SESSIONS_MAX:
            del self._opened[min(self._opened, key=self._opened.__getitem__)]
        name = secrets.token_urlsafe(32)
        self._opened[name] = self._clock()
        return name

    def knows(self, name: str) -> bool:
        """Whether a session of this name is open."""
        found = False
        for one, opened_s in self._opened.items():
            is_equal = hmac.compare_digest(one.encode(), name.encode("utf-8", "replace"))
            found |= is_equal and self._clock() - opened_s < LIFE_S
        return found

    def close(self, name: str) -> None:
        """End a session."""
        self._opened.pop(name, None)

    async def _slow_down(self) -> None:
        """One wrong secret after the other; when many wait already, at once."""
        if self._waiting >= WAITING_MAX:
            return
        self._waiting += 1
        try:
            async with self._wrong:
                await asyncio.sleep(self._wrong_s)
        finally:
            self._waiting -= 1
