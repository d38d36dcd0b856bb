"""A proxy between clients and the broker that cuts connections: some by a reset, half way through
whatever was passing, some silently, so that only one side notices."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading

_CHUNK = 64 << 10


class CuttingProxy:
    """Forwards 127.0.0.1:``port`` to ``target``; ``cut`` may be called from any thread."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        started = threading.Event()

        def run() -> None:
            self._loop.run_until_complete(self._listen())
            started.set()
            self._loop.run_forever()
            self._loop.run_until_complete(self._close())
            self._loop.close()

        self._thread = threading.Thread(target=run, name="proxy", daemon=True)
        self._thread.start()
        assert started.wait(10)

    def cut(self, rng: random.Random) -> int:
        """Break about two of three connections; how many it were."""
        return asyncio.run_coroutine_threadsafe(self._cut(rng), self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self, rng: random.Random) -> int:
        chosen = [pair for pair in self._pairs if rng.random() < 0.67]
        for pair in chosen:
            for writer in pair if rng.random() < 0.5 else (rng.choice(pair),):
                _reset(writer)
        return len(chosen)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        pair = (writer, there[1])
        self._pairs.add(pair)
        try:
            await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for each in pair:
                each.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    raise ConnectionError("one side hung up; so does the other")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, dropping what is buffered."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
