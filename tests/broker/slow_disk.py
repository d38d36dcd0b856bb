"""What a real broker may stand on in tests: a disk whose syncs wait, fail, and lose their power.

Files of the log are in memory (``SimDisk``), the journal of the catalogue is a real file that a
power cut cuts to what was synced. Each has a gate, and every sync off the event loop passes it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import time_ns
from typing import Any
from uuid import uuid4

from shoal.broker.audit import Audit
from shoal.broker.broker import Broker
from shoal.broker.config import BrokerConfig, Listener
from shoal.broker.journal import FILE_NAME, Entry, Journal
from shoal.testing.disk import SimDisk, _all_inodes
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.registry import API
from shoal.wire.frames import decode_response, encode_request
from tests.patience import PATIENCE_S


class Gate:
    """Who comes passes, waits or fails, as the test says."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._fails = False
        self._lock = threading.Lock()
        self.waiting = 0

    def stall(self) -> None:
        self._open.clear()

    def let_pass(self) -> None:
        self._fails = False
        self._open.set()

    def fail(self) -> None:
        self._fails = True
        self._open.set()

    def enter(self) -> None:
        if not self._open.is_set():
            with self._lock:
                self.waiting += 1
            assert self._open.wait(PATIENCE_S), "nobody opened the gate"
            with self._lock:
                self.waiting -= 1
        if self._fails:
            raise OSError(errno.EIO, "the disk of this test cannot write")

    async def is_waited_for(self, *answers: asyncio.Task[Any]) -> None:
        """Return when a sync stands before the gate. None of the answers may come before that."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.waiting:
                assert not any(answer.done() for answer in answers), "it did not wait for the disk"
                await asyncio.sleep(0.001)


class SlowDisk(SimDisk):
    """A disk in memory with a gate in front of every sync that is made off the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.unreadable: str | None = None
        self._owner = threading.get_ident()

    def called(self, call: str, path: str, size: int = 0) -> int:
        if call == "list" and path == self.unreadable:
            raise OSError(errno.EIO, "the disk of this test cannot read")
        if call.startswith("sync") and threading.get_ident() != self._owner:
            self.gate.enter()
        return super().called(call, path, size)

    def forget_unsynced(self) -> None:
        """After a sync that failed the kernel may drop the pages it could not write."""
        for inode in _all_inodes(self._top):
            inode.pending.clear()
            inode.content[:] = inode.durable


class SlowJournal(Journal):
    """The journal of the catalogue, with a gate in front of its syncs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = path
        self._stored = 0
        self.gate = Gate()

    def rewrite(self, entries: Iterable[Entry]) -> None:
        super().rewrite(entries)
        self._stored = self._file.stat().st_size

    def sync(self) -> None:
        size = self._file.stat().st_size
        self.gate.enter()
        super().sync()
        self._stored = size

    def lose_power(self) -> None:
        os.truncate(self._file, self._stored)


class SlowPlatform:
    """One life of a broker on a slow disk; ``next_life`` is what a power cut leaves."""

    loaders = 0

    def __init__(self, directory: Path, disk: SimDisk | None = None) -> None:
        self._path = directory / FILE_NAME
        self.slow_disk = SlowDisk()
        if disk is not None:
            self.slow_disk._top, self.slow_disk.used_bytes = disk._top, disk.used_bytes
        self.slow_journal = SlowJournal(self._path)

    def disk(self) -> SlowDisk:
        return self.slow_disk

    def journal(self) -> SlowJournal:
        return self.slow_journal

    def has_journal(self) -> bool:
        return self._path.exists()

    def audit(self) -> Audit:
        return Audit(None)

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def new_id(self) -> str:
        return str(uuid4())

    def sync_workers(self) -> None:
        return None

    def next_life(self) -> SlowPlatform:
        self.slow_journal.lose_power()
        return SlowPlatform(self._path.parent, self.slow_disk.crash())


class Client:
    """A connection to a broker on the same loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def ask(self, request: Any, version: int | None = None) -> asyncio.Task[Any]:
        """Send now; the task ends with the answer. One at a time."""
        key = request.API_KEY
        chosen = API[key].max_version if version is None else version
        self._writer.write(b"".join(encode_request(key, chosen, 1, "slow", request)))
        return asyncio.create_task(self._receive(key, chosen))

    async def _receive(self, key: int, version: int) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self._reader.readexactly(4))
            return decode_response(await self._reader.readexactly(size), key, version)[1]

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Serving:
    """A broker on this loop, and its clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        port = self._broker.listeners[0].port
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        self._clients.append(client)
        return client

    async def settle(self) -> None:
        """Return when the broker has said whatever it was going to say at once."""
        client = await self.connect()
        for _ in range(5):
            await client.ask(ApiVersionsRequest(), 0)
            await asyncio.sleep(0.005)

    async def disconnect(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def serving(platform: SlowPlatform, **settings: Any) -> AsyncIterator[Serving]:
    """A broker that ends as in a power cut."""
    config = BrokerConfig(
        data_dir="in-memory", durability="group", listeners=(Listener(port=0),), **settings
    )
    broker = Broker(config, platform)
    await broker.start()
    served = Serving(broker)
    try:
        yield served
    finally:
        broker.abandon()
        platform.slow_disk.gate.fail()
        platform.slow_journal.gate.fail()
        broker.syncer.close()
        await served.disconnect()
