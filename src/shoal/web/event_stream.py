"""The event stream of one browser: everything at first, then what changed.

Rule: no queue. A stream remembers the version its reader knows; what is sent next is the difference
between that and now, so a slow reader misses steps and never the state. One that takes nothing for
half a minute is cut off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from shoal.web.cluster_watch import ClusterWatch
from shoal.web.gate import Receive, Scope, Send

PATIENCE_S: Final = 30.0
SILENCE_S: Final = 15.0
STREAMS_MAX: Final = 64


class Bell:
    """Wakes everybody who waits for the next state. Rung from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until it rings, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class Encoded:
    """States as lines of a stream, made once however many read them."""

    def __init__(self) -> None:
        self._version = -1
        self._by_version: dict[int, bytes] = {}

    def event(self, watch: ClusterWatch, known: int) -> tuple[int, bytes]:
        """The version there is now, and what leads to it from ``known``."""
        state = watch.state
        if state.version != self._version:
            self._version = state.version
            self._by_version.clear()
        found = self._by_version.get(known)
        if found is None:
            data = json.dumps(state.since(known), separators=(",", ":"))
            found = f"id: {state.version}\nevent: fleet\ndata: {data}\n\n".encode()
            self._by_version[known] = found
        return state.version, found


class EventStream:
    """One answer without an end; an ASGI application of its own."""

    def __init__(
        self,
        watch: ClusterWatch,
        bell: Bell,
        encoded: Encoded,
        *,
        is_welcome: Callable[[], bool],
        opened: set[object],
    ) -> None:
        self._watch = watch
        self._bell = bell
        self._encoded = encoded
        self._is_welcome = is_welcome
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's form
        if len(self._opened) >= STREAMS_MAX:
            await _too_many(send)
            return
        self._opened.add(self)
        sending = asyncio.create_task(self._send(send))
        hearing = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._opened.discard(self)
            for task in (sending, hearing):
                task.cancel()
            await asyncio.gather(sending, hearing, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, b"retry: 2000\n\n")
        known = 0
        while self._is_welcome():
            if self._watch.state.version != known:
                known, text = self._encoded.event(self._watch, known)
                await _write(send, text)
            else:
                await self._bell.wait(SILENCE_S)
                if self._watch.state.version == known:
                    await _write(send, b": still here\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _write(send: Send, data: bytes) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return


async def _too_many(send: Send) -> None:
    body = json.dumps({"error": f"{STREAMS_MAX} browsers look already"}).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
