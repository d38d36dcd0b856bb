"""The broker: owns the parts, starts and stops them. The only place where they meet.

Rule: nothing here decides. It opens the directory, loads what was, wires the parts together and
runs the clockwork (checkpoints, retention, compaction); what a request means is in ``handlers/``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.audit import Audit
from shoal.broker.changes import OFFSETS_CONFIGS, Changes
from shoal.broker.config import BrokerConfig
from shoal.broker.connection import Connection
from shoal.broker.counters import Counters, LagProbe
from shoal.broker.dispatch import Dispatch
from shoal.broker.fetch_sessions import Sessions
from shoal.broker.journal import FILE_NAME as JOURNAL_FILE
from shoal.broker.journal import Entry, Journal
from shoal.broker.partitions import Partition, Partitions, log_config
from shoal.broker.sasl import ANONYMOUS, Session
from shoal.broker.server import BoundListener, Server, bind
from shoal.broker.topics import OFFSETS_TOPIC, Catalogue, Topic
from shoal.broker.waiting import WaitingRoom
from shoal.errors import ErrorCode, StorageError
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.durability import Syncer
from shoal.log.jobs import Job

if TYPE_CHECKING:
    from shoal.broker.groups import Groups
    from shoal.broker.users import Users

logger = logging.getLogger("shoal.broker")

_CHECKPOINT_SECONDS: Final = 60.0
# Users may be added before the first start; their module is not loaded for its file's name.
_COMPANIONS: Final = (JOURNAL_FILE, "users.json", "audit.log")
# JoinGroup and SyncGroup.
_PARKED_APIS: Final = frozenset({11, 14})


class Broker:
    """One node. ``start`` returns when it serves, ``stop`` when everything is on disk."""

    def __init__(self, config: BrokerConfig) -> None:
        assert config.data_dir is not None, "a broker needs a directory"
        self.config = config.checked()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.counters = Counters()
        self._shift_ms = 0
        self._path = Path(config.data_dir)
        self._pending_users: dict[str, str] = {}
        self._decoy_secret = os.urandom(32)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._sync_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.syncs_in_intervals = config.durability == "interval"

    # --- starting -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory, load everything, listen."""
        self.loop = asyncio.get_running_loop()
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(
                f"cannot use {self._path} as a data directory: {error.strerror}; choose another"
            ) from None
        self._had_journal = (self._path / JOURNAL_FILE).exists()
        self.journal = Journal(self._path / JOURNAL_FILE)
        self.catalogue = Catalogue(
            self.config.topics.configs,
            topics_max=self.config.limits.topics,
            partitions_max=self.config.limits.partitions,
        )
        self._is_loaded = False
        directory = LogDirectory.open(
            str(self._path),
            now_ms=self.now_ms(),
            durability=Durability(self.config.durability),
            config_for=self._config_for,
            reserve_bytes=self.config.disk_reserve_bytes,
            node_id=self.node_id,
            cluster_id=self.config.cluster_id,
            companions=_COMPANIONS,
        )
        self.directory = directory
        try:
            self._compose(directory)
            self._listen()
        except BaseException:
            directory.close()
            raise

    def _config_for(self, topic_name: str) -> LogConfig:
        # Called while the directory opens, when it is locked: only now may the journal be read.
        self._load_catalogue()
        topic = self.catalogue.get(topic_name)
        return log_config(self.catalogue, topic) if topic is not None else LogConfig()

    def _load_catalogue(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            for entry in self.journal.load():
                self.catalogue.replay(entry)

    def _compose(self, directory: LogDirectory) -> None:
        self._load_catalogue()
        if not self._had_journal:
            self._adopt_topics(directory)
        self.journal.rewrite(self.catalogue.entries())
        self.cluster_id = directory.meta["cluster.id"]
        self.audit = Audit(self._path)
        self._users: Users | None = None
        if self._pending_users or any(listener.sasl for listener in self.config.listeners):
            for user, password in self._pending_users.items():
                self.users.set_password(user, password)
            self.users.names()
        self.syncer = Syncer(
            Durability(self.config.durability), post=self.loop.call_soon_threadsafe
        )
        limits = self.config.limits
        self.waiting = WaitingRoom(self.loop, self.counters, limit=limits.waiting_fetches)
        self.fetch_sessions = Sessions(limits.fetch_sessions)
        self.partitions = Partitions(
            directory,
            self.catalogue,
            self.syncer,
            self.waiting,
            self.counters,
            now_ms=self.now_ms,
            in_background=self.in_background,
        )
        self.partitions.drop_strangers()
        self.changes = Changes(
            self.loop,
            self.config,
            self.catalogue,
            self.journal,
            apply=self._apply,
            forget=self._forget_topics,
            spawn=self.spawn,
        )
        self._groups: Groups | None = None
        numbers = sorted(tp.partition for tp in directory.partitions if tp.topic == OFFSETS_TOPIC)
        if numbers:
            self.groups.load(numbers)
        self.dispatch = Dispatch(self, limits.elements_per_request)

    def _adopt_topics(self, directory: LogDirectory) -> None:
        """A directory without our journal: somebody else's log, or ours from a backup."""
        found: dict[str, list[int]] = {}
        for tp in directory.partitions:
            found.setdefault(tp.topic, []).append(tp.partition)
        for name, numbers in found.items():
            log = directory.partitions[min(tp for tp in directory.partitions if tp.topic == name)]
            topic_id = log.topic_id.bytes if log.topic_id is not None else os.urandom(16)
            configs = OFFSETS_CONFIGS if name == OFFSETS_TOPIC else {}
            decided = self.catalogue.decide_create(
                name, topic_id, max(numbers) + 1, configs, internal=True
            )
            assert isinstance(decided, dict), decided
            self.catalogue.replay(decided)

    def _listen(self) -> None:
        limits = self.config.limits
        self.server = Server(
            self.loop,
            limits,
            self.counters,
            handle=self.dispatch.on_frame,
            audit=self.audit,
        )
        bound: list[BoundListener] = []
        try:
            for listener in self.config.listeners:
                context: ssl.SSLContext | None = None
                if listener.is_tls:
                    from shoal.broker.tls import context_for

                    context = context_for(listener)
                bound.append(bind(listener, context))
        except BaseException:
            for each in bound:
                each.sock.close()
            raise
        self.server.start(bound)
        self._probe = LagProbe(self.loop, self.counters)
        self._every(_CHECKPOINT_SECONDS, lambda: self.directory.checkpoint(self.now_ms()))
        self._every(self.config.retention_check_seconds, self._clean)
        if self.syncs_in_intervals:
            self._sync_later()

    @property
    def listeners(self) -> list[BoundListener]:
        return self.server.listeners

    # --- stopping -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take no more requests, answer what is in flight, sync and close everything."""
        if self._stopped:
            return
        self._stopped = True
        self.server.stop_accepting()
        self.waiting.finish_all()
        # A consumer that is answered asks again at once: there would always be one that waits.
        self.server.stop_reading()
        deadline = self.loop.time() + self.config.shutdown_seconds
        while self.loop.time() < deadline and self._has_work():  # noqa: ASYNC110  (many sources)
            await asyncio.sleep(0.005)
        self._end_clockwork()
        self.server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.syncer.close()
        self.journal.close()
        self.directory.close()
        self.audit.close()

    def _has_work(self) -> bool:
        """Whether a client is owed something that will come soon.

        Groups park joins for minutes; those clients see a cut, as from any restart.
        """
        return not all(each.waits_only_for(_PARKED_APIS) for each in self.server.connections)

    def _end_clockwork(self) -> None:
        self._probe.stop()
        if self._groups is not None:
            self._groups.stop()
        for timer in (*self._timers, self._sync_timer):
            if timer is not None:
                timer.cancel()

    def abandon(self) -> None:
        """Drop everything as a crash would: nothing is synced, no marker of a clean stop."""
        self._stopped = True
        self._end_clockwork()
        self.server.close()
        for task in list(self._tasks):
            task.cancel()
        self.directory.release_idle_files()
        self.directory.abandon()
        self.journal.abandon()
        self.audit.close()

    # --- time -----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return time_ns() // 1_000_000 + self._shift_ms

    def shift_clock_ms(self, milliseconds: int) -> None:
        """Before the start: a clock that was advanced stays advanced."""
        self._shift_ms = milliseconds

    async def advance(self, milliseconds: int) -> None:
        """Move the clock forward as if the time had passed: timers fire in their order."""
        target = self.now_ms() + milliseconds
        while True:
            deadline = self.groups.next_deadline()
            if deadline is None or deadline >= target:
                break
            self._shift_ms += max(0, deadline - self.now_ms())
            self.groups.tick(self.now_ms())
        self._shift_ms += max(0, target - self.now_ms())
        self.groups.tick(self.now_ms())
        await self.run_job(self._clean())

    # --- clockwork --------------------------------------------------------------------------------

    def _every(self, seconds: float, make: Callable[[], Job]) -> None:
        """Run a job again and again, each time ``seconds`` after it ended."""
        number = len(self._timers)

        async def run() -> None:
            try:
                await self.run_job(make())
            except Exception:
                # Whatever it was, the next turn may succeed; without turns the disk fills up.
                logger.exception("background work failed; it is tried again in %g s", seconds)
                self.counters.errors["background work"] += 1
            if not self._stopped:
                self._timers[number] = self.loop.call_later(seconds, start)

        def start() -> None:
            self.spawn(run())

        self._timers.append(self.loop.call_later(seconds, start))

    def _clean(self) -> Job:
        yield from self.directory.retain(self.now_ms())
        yield from self.directory.compact(self.now_ms())

    async def run_job(self, job: Job) -> None:
        """Run a job of the log: its slices here, its work in threads."""
        for work in job:
            if work is None:
                await asyncio.sleep(0)
            else:
                await self.loop.run_in_executor(None, work)

    def _sync_later(self) -> None:
        self.syncer.sync_dirty()
        pause_s = self.config.sync_interval_ms / 1000.0
        self._sync_timer = self.loop.call_later(pause_s, self._sync_later)

    def spawn(self, work: Any) -> None:
        """Run a coroutine; its failure is logged, not lost."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("background work failed", exc_info=task.exception())

    def in_background(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            await self.loop.run_in_executor(None, work)

        self.spawn(run())

    # --- parts that are made when first used: a broker that starts must not wait for them --------

    @property
    def groups(self) -> Groups:
        """The group coordinators. Loading their code takes a third of a start."""
        if self._groups is None:
            from shoal.broker.groups import Groups

            self._groups = Groups(
                self.loop,
                self.config.groups,
                open_partition=self._offsets_partition,
                syncer=self.syncer,
                now_ms=self.now_ms,
                reopen=self.partitions.reopen,
            )
        return self._groups

    @property
    def users(self) -> Users:
        if self._users is None:
            from shoal.broker.users import FILE_NAME, Users

            self._users = Users(self._path / FILE_NAME)
        return self._users

    def _apply(self, entry: Entry) -> None:
        """A change is stored: let it count, and do what follows from it."""
        deleted = self.catalogue.get(entry["name"]) if entry["kind"] == "delete" else None
        self.catalogue.replay(entry)
        if deleted is not None:
            self.partitions.delete(deleted)
        elif entry["kind"] == "configs":
            self.partitions.reconfigure(self.catalogue.get(entry["name"]))
        elif entry["kind"] == "broker_configs":
            self.partitions.reconfigure()

    def _forget_topics(self, names: set[str]) -> Iterator[None]:
        """Files of logs and positions in them go, too; with pauses."""
        yield from self.partitions.clear_away()
        if self._groups is not None:
            yield from self._groups.topics_deleted(names)

    def _offsets_partition(self, number: int) -> Partition | ErrorCode:
        return self.partitions.get(self.changes.offsets_topic(), number)

    # --- what handlers ask for ------------------------------------------------------------------

    def advertised(self, connection: Connection) -> tuple[str, int]:
        """The address this client is to use: that of the listener it came through."""
        listener = connection.listener
        assert isinstance(listener, BoundListener)
        return listener.advertised

    def topic_of(self, key: str | bytes) -> Topic | None:
        return self.catalogue.get(key) if isinstance(key, str) else self.catalogue.by_id(key)

    def new_session(self, connection: Connection) -> Session:
        listener = connection.listener
        assert isinstance(listener, BoundListener)
        principal = ANONYMOUS
        if isinstance(connection.sock, ssl.SSLSocket) and listener.config.client_ca_file:
            from shoal.broker.tls import principal_of

            principal = principal_of(connection.sock.getpeercert()) or ANONYMOUS
        return Session(listener.config.sasl, principal)

    @property
    def decoy_secret(self) -> bytes:
        return self._decoy_secret

    def set_users(self, users: Mapping[str, str]) -> None:
        """Before the start: users to be there when it serves."""
        self._pending_users.update(users)

    def reload_certificates(self) -> None:
        """Read certificates again; open connections keep theirs."""
        from shoal.broker.tls import context_for
        from shoal.errors import ConfigError

        for listener in self.listeners:
            if listener.tls is None:
                continue
            try:
                # A new context, all or nothing: an authority that was taken out is not trusted.
                listener.tls = context_for(listener.config)
            except ConfigError as error:
                logger.error("keeping the old certificate: %s", error)
            else:
                logger.info("certificate of port %d read again", listener.port)

    def cut_connections(self) -> None:
        for connection in list(self.server.connections):
            connection.close()

    def snapshot(self) -> dict[str, Any]:
        """The counters, and how much there is of everything."""
        return self.counters.snapshot() | {
            "topics": len(self.catalogue),
            "partitions_open": len(self.directory.partitions),
            "groups": self._groups.count if self._groups is not None else 0,
            "fetch_sessions": len(self.fetch_sessions),
            "in_flight_bytes": self.server.in_flight_bytes,
            "sync_rounds": self.syncer.rounds,
        }
