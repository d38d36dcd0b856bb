"""The real broker on a disk in memory, in virtual time, behind connections that break.

Catalogue, changes, dispatch, handlers, logs, group commit and recovery are the broker's own; what
is replaced is what it stands on: the socket, the disk, the threads and the clock. A life of it
ends by a kill, which leaves what was written, or by a power cut, which leaves what was synced and
some of the rest.

Rule: a dead broker does nothing. Its disk refuses every call, its connections are gone, and the
next life starts from what the disk kept.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, Final, Protocol

from shoal.broker.audit import Audit
from shoal.broker.broker import Broker
from shoal.broker.config import (
    BrokerConfig,
    BrokerLimits,
    GroupSettings,
    Listener,
    TopicDefaults,
    TransactionSettings,
)
from shoal.broker.connection import ClientConnection
from shoal.broker.dispatch import Call
from shoal.broker.journal import Entry, Journal
from shoal.broker.server import BoundListener
from shoal.errors import ErrorCode
from shoal.testing.disk import (
    SimDisk,
    Write,
    _all_directories,
    _all_inodes,
    _survivors,
)
from shoal.testing.faults import Fault, FaultPlan
from shoal.testing.simulation import network
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.simulated_cluster import EPOCH_MS
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT
from shoal.wire.apis.registry import API

INTERNAL_PARTITIONS: Final = 2
"""Of each internal topic."""
_CHECKPOINT_MS: Final = 7_000
_RESERVE_BYTES: Final = 1 << 16


class BrokerDisk(SimDisk):
    """A disk of one life of a broker; its next life gets another one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self.next_sync_fails = False

    def called(self, call: str, path: str, size: int = 0) -> int:
        if self.is_gone:
            raise OSError(errno.EIO, "the process that asks is dead")
        if self.next_sync_fails and call == "sync" and path.endswith(".log"):
            self.next_sync_fails = False
            raise OSError(errno.EIO, "the simulated disk cannot write")
        return super().called(call, path, size)

    def fill(self, left_bytes: int) -> None:
        self.capacity_bytes = self.used_bytes + left_bytes

    def empty(self) -> None:
        self.capacity_bytes = 1 << 50

    def killed(self) -> BrokerDisk:
        """What a process leaves that is killed: all it wrote, synced or not."""
        left = BrokerDisk()
        left._top, left.used_bytes = self._top, self.used_bytes
        self.is_gone = True
        return left

    def without_power(self, random: Random) -> BrokerDisk:
        """What a power cut leaves: of each file some of what was not synced, maybe torn."""
        writes = {
            id(inode): _torn(inode.pending, random)
            for inode in _all_inodes(self._top)
            if inode.pending
        }
        names: dict[int, Sequence[int]] = {
            id(directory): range(_kept(len(directory.pending), random))
            for directory in _all_directories(self._top)
            if directory.pending
        }
        left = BrokerDisk()
        for path, content in _survivors(self._top, writes, names).items():
            left._plant(path, content)
        self.is_gone = True
        return left


def _torn(pending: Sequence[Write], random: Random) -> list[Write]:
    """All of the writes, or none, or a prefix with the last of them perhaps in part."""
    kept = list(pending[: _kept(len(pending), random)])
    if 0 < len(kept) < len(pending) and kept[-1].data and random.random() < 0.5:
        last = kept.pop()
        assert last.data is not None
        kept.append(Write(last.position, last.data[: random.randrange(len(last.data))]))
    return kept


def _kept(count: int, random: Random) -> int:
    return random.choice((0, count, count, random.randrange(count + 1)))


class CatalogueJournal(Journal):
    """Entries in memory; those that were not synced are gone after a power cut."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        super().__init__(None)
        self._entries = list(entries)
        self._synced = len(self._entries)

    def load(self) -> list[Entry]:
        return list(self._entries)

    def append(self, entries: Sequence[Entry]) -> None:
        super().append(entries)
        self._entries.extend(entries)

    def sync(self) -> None:
        self._synced = len(self._entries)

    def next_life(self, *, has_power: bool) -> CatalogueJournal:
        return CatalogueJournal(self._entries if has_power else self._entries[: self._synced])


class _ListeningSocket(socket.socket):
    """Nobody connects to it: clients of a simulation are brought to the server."""

    def __init__(self) -> None:
        """Not of the kernel."""

    def getsockname(self) -> tuple[str, int]:
        return HOST, SENDING_PORT


class _Socket(socket.socket):
    """The broker's end of a simulated connection, as far as it uses a socket."""

    def __init__(self, number: int, connection: network.SimulatedConnection, host: Host) -> None:
        """Not of the kernel either."""
        self._number = number
        self._host = host
        self._connection = connection
        self._received = bytearray()

    def fileno(self) -> int:
        return self._number

    def put(self, frame: bytes) -> None:
        self._received += len(frame).to_bytes(4, "big") + frame

    def recv_into(self, buffer: Any, *_: int) -> int:
        if not self._received:
            raise BlockingIOError
        count = min(len(buffer), len(self._received))
        buffer[:count] = self._received[:count]
        del self._received[:count]
        return count

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: Any) -> None:
        """There is nothing to tune."""

    def send(self, data: Any, *_: Any) -> int:
        self._host.looked_at()  # what is promised must be there
        self._connection.answer(bytes(data))
        return len(data)

    def sendmsg(self, parts: Any, *_: Any) -> int:
        """One at a time: gathering is for the kernel."""
        return self.send(next(iter(parts)))

    def close(self) -> None:
        self._connection.cut(survivors=0, late_ms=0, notice_ms=1)


class Host(Protocol):
    """The world a broker lives in, as far as it matters here."""

    @property
    def clock(self) -> VirtualClock: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def note(self, who: str, what: str, /) -> None: ...
    def disk_delay(self) -> int: ...
    def resume_ms(self) -> int | None:
        """When the broker's process goes on; ``None`` if it runs."""
        ...

    def is_new(self, client_id: str) -> bool:
        """Whether nothing of this producer is stored."""
        ...

    def looked_at(self) -> None:
        """Something may have changed: look at the logs."""
        ...

    def new_id(self) -> str:
        """One that was never given out."""
        ...


class _Workers(Executor):
    """The syncer's threads: their work takes its time and is done in the end of it."""

    def __init__(self, disk: BrokerDisk, host: Host) -> None:
        self._disk = disk
        self._host = host

    def submit(self, work: Callable[..., Any], /, *shares: Any, **_: Any) -> Future[Any]:
        (share,) = shares
        self._host.clock.after(self._host.disk_delay(), self._run, (work, share))
        return Future()  # the syncer is told by the work itself

    def _run(self, job: tuple[Callable[[Any], None], Any]) -> None:
        if self._disk.is_gone:
            return
        resume_ms = self._host.resume_ms()
        if resume_ms is not None:
            self._host.clock.at(resume_ms, self._run, job)
            return
        work, share = job
        work(share)
        # The result is taken by the loop, in its next turn.
        self._host.clock.after(0, lambda _: self._host.looked_at())


class _Door:
    """Takes the requests of one connection to the broker, also those that come late."""

    def __init__(self, broker: SimulatedBroker, host: Host) -> None:
        self._broker = broker
        self._host = host
        self.connection: ClientConnection | None = None
        self.socket: _Socket | None = None

    def asked(self, connection: network.SimulatedConnection, message: Any) -> None:
        if self._broker.disk.is_gone:
            return
        resume_ms = self._host.resume_ms()
        if resume_ms is not None:
            self._host.clock.at(resume_ms, self._asked_again, (connection, message))
            return
        assert self.connection is not None
        assert self.socket is not None
        if not self.connection.is_closed:
            self._host.note("broker", API[int.from_bytes(message[:2], "big")].name)
            self.socket.put(message)
            self.connection.on_readable()
            self._host.looked_at()

    def _asked_again(self, message: tuple[network.SimulatedConnection, Any]) -> None:
        self.asked(*message)


class _Overruled(Call):
    """A request that is served, and answered with an error all the same."""

    __slots__ = ()

    def reply(self, response: Any) -> None:
        for topic in response.responses:
            for each in topic.partition_responses:
                each.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                each.base_offset = -1
        super().reply(response)


class ProduceFaults(FaultPlan):
    """Produce requests that are refused, lost, or stored and then refused."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.dispatch, broker.loop.call_later)
        self._broker = broker
        self._overruled = 0
        self._newcomer: ErrorCode | None = None

    def refuse_newcomer(self, code: ErrorCode) -> None:
        """Refuse the first records of the next producer of which nothing is stored yet."""
        self._newcomer = code
        self.begin()

    def overrule(self, times: int) -> None:
        self._overruled = max(self._overruled, times)
        self.begin()

    def add(self, fault: Fault) -> None:
        # They must not come faster than requests do: then nothing would ever get through.
        if self.is_empty:
            super().add(fault)
            self.begin()

    def begin(self) -> None:
        self._broker.dispatch.faults = self

    def intercept(self, call: Call, api: str, frame: memoryview) -> bool:
        served = self._broker.dispatch.api(call.api_key)
        assert served is not None
        if api == "Produce":
            if self._newcomer is not None and self._broker.is_new(call.client_id or ""):
                request = served.request.decode(frame, call.api_version)
                call.reply(served.refuse(request, self._newcomer, call.api_version))
                self._newcomer = None
                return True
            if self._overruled:
                self._overruled -= 1
                call.__class__ = _Overruled
                self._broker.dispatch.run(call, served, frame)
                return True
        taken = super().intercept(call, api, frame)
        if self.is_empty and not self._overruled and self._newcomer is None:
            self._broker.dispatch.faults = None  # the quick way is open again
        return taken


class SimulatedPlatform:
    """A disk in memory, virtual time, and workers whose syncs take their time."""

    loaders = 0

    def __init__(self, host: Host, disk: BrokerDisk, journal: CatalogueJournal) -> None:
        self._host = host
        self._disk = disk
        self._journal = journal

    def disk(self) -> BrokerDisk:
        return self._disk

    def journal(self) -> CatalogueJournal:
        return self._journal

    def has_journal(self) -> bool:
        return True

    def audit(self) -> Audit:
        return Audit(None)

    def now_ms(self) -> int:
        return EPOCH_MS + self._host.clock.now_ms

    def new_id(self) -> str:
        return self._host.new_id()

    def sync_workers(self) -> _Workers:
        return _Workers(self._disk, self._host)


class SimulatedBroker(Broker):
    """One life of a broker."""

    def __init__(
        self,
        host: Host,
        durability: str,
        configs: dict[str, str],
        disk: BrokerDisk,
        journal: CatalogueJournal,
    ) -> None:
        self._host = host
        self._sockets = 0
        self.is_new = host.is_new
        self.disk = disk
        self._journal = journal
        config = BrokerConfig(
            data_dir=HOST,
            durability=durability,
            disk_reserve_bytes=_RESERVE_BYTES,
            limits=BrokerLimits(topics=100, partitions=1_000, segment_bytes_min=14),
            groups=GroupSettings(offsets_partitions=INTERNAL_PARTITIONS),
            transactions=TransactionSettings(state_partitions=INTERNAL_PARTITIONS),
            topics=TopicDefaults(auto_create=False, configs=configs),
        )
        super().__init__(config, SimulatedPlatform(host, disk, journal))
        self.open(host.loop)
        self._listener = BoundListener(Listener(HOST, SENDING_PORT), _ListeningSocket(), None)
        self.faults = ProduceFaults(self)
        host.clock.after(_CHECKPOINT_MS, self._checkpoint)

    def _checkpoint(self, _: None) -> None:
        if not self.disk.is_gone:
            self.spawn(self.run_job(self.directory.checkpoint(self.now_ms())))
            self._host.clock.after(_CHECKPOINT_MS, self._checkpoint)

    def accept(
        self, connect: Callable[[network.SimulatedServer], network.SimulatedConnection]
    ) -> network.SimulatedConnection:
        """A client has come."""
        door = _Door(self, self._host)
        connection = connect(door)
        self._sockets += 1
        door.socket = _Socket(self._sockets, connection, self._host)
        door.connection = self.server.admit(self._listener, door.socket, HOST, self._sockets)
        assert door.connection is not None, "a simulation stays below the limits"
        return connection

    def die(self, *, has_power: bool, random: Random) -> tuple[BrokerDisk, CatalogueJournal]:
        """The process ends here; what the next one finds."""
        disk = self.disk.killed() if has_power else self.disk.without_power(random)
        self.abandon()
        return disk, self._journal.next_life(has_power=has_power)
