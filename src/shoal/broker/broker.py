"""The broker: owns the parts, starts and stops them. The only place where they meet.

Rule: nothing here decides. It opens the directory, loads what was, wires the parts together and
runs the clockwork (checkpoints, retention, compaction); what a request means is in ``handlers/``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.access.principal_mapping import mapped_name, read_mapping_rules
from shoal.access.quotas import Quotas
from shoal.broker.authorizer import AllowAll, Authorizer
from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Catalogue, Topic
from shoal.broker.catalogue_changes import OFFSETS_CONFIGS, TRANSACTIONS_CONFIGS, Changes
from shoal.broker.config import BrokerConfig, GroupSettings, MetricsSettings
from shoal.broker.connection import ClientConnection
from shoal.broker.counters import Counters, LagProbe
from shoal.broker.dispatch import Dispatch
from shoal.broker.door import Door
from shoal.broker.fetch_sessions import Sessions
from shoal.broker.guesses import Guesses
from shoal.broker.journal import FILE_NAME as JOURNAL_FILE
from shoal.broker.journal import Entry
from shoal.broker.memory import MemoryBudget
from shoal.broker.partitions import Partition, Partitions, log_config
from shoal.broker.platform import OsPlatform, Platform
from shoal.broker.sasl import ANONYMOUS, OAUTHBEARER, SaslSession
from shoal.broker.server import BoundListener, Server, bind
from shoal.broker.throttling import Throttling
from shoal.broker.waiting import WaitingRoom
from shoal.errors import ConfigError, ErrorCode, missing_extra
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.durability import Syncer
from shoal.log.jobs import Job
from shoal.types import TopicPartition
from shoal.wire.apis.registry import ApiKey

if TYPE_CHECKING:
    from shoal.access.acl_authorizer import AclAuthorizer
    from shoal.access.rules import Acl
    from shoal.broker.assignor_orders import AssignorOrders
    from shoal.broker.assignor_process import AssignorProcess
    from shoal.broker.coordinator_runtime import Coordinators, RuntimeParts
    from shoal.broker.groups import Groups
    from shoal.broker.metrics_port import MetricsPort
    from shoal.broker.oauth import OAuthBearer
    from shoal.broker.rebalance_counts import RebalanceCounts
    from shoal.broker.transaction_markers import MarkerWriter
    from shoal.broker.transactions import TransactionCoordinators
    from shoal.broker.users import Users

logger = logging.getLogger("shoal.broker")

_CHECKPOINT_SECONDS: Final = 60.0
# Users may be added before the first start; their module is not loaded for its file's name.
_COMPANIONS: Final = (JOURNAL_FILE, "users.json", "audit.log", "access.log")
_INTERNAL_CONFIGS: Final = {
    OFFSETS_TOPIC: OFFSETS_CONFIGS,
    TRANSACTIONS_TOPIC: TRANSACTIONS_CONFIGS,
}
_PARKED_APIS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


class Broker:
    """One node. ``start`` returns when it serves, ``stop`` when everything is on disk."""

    def __init__(
        self,
        config: BrokerConfig,
        platform: Platform | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """
        Args:
            platform: what it stands on: this machine, unless a simulation brings another.
            authorizer: who says what is allowed; else the rules, if they are in force.
        """
        assert config.data_dir is not None, "a broker needs a directory"
        self.config = config.checked()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.counters = Counters()
        self._shift_ms = 0
        self._path = Path(config.data_dir)
        self._platform: Platform = platform or OsPlatform(self._path)
        self._given_authorizer = authorizer
        self._pending_acls: list[Acl] = []
        self._pending_users: dict[str, str] = {}
        self.guesses = Guesses()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._sync_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._probe: LagProbe | None = None
        self._assignors: dict[str, AssignorProcess | None] = {}
        self._is_listening = False
        self.metrics: MetricsPort | None = None
        self.syncs_in_intervals = config.durability == "interval"

    # --- starting -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the directory, load everything, listen."""
        self.open(asyncio.get_running_loop())
        try:
            if self.oauth is not None:
                await self.oauth.start()
            if self.config.metrics is not None:
                await self._show_metrics(self.config.metrics)
            self._listen()
        except BaseException:
            self._stop_assignors()
            if self.metrics is not None:
                self.metrics.abort()
            self.directory.close()
            raise

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the directory and load everything; nobody is served yet."""
        self.loop = loop
        disk = self._platform.disk()
        self._had_journal = self._platform.has_journal()
        self.journal = self._platform.journal()
        self.catalogue = Catalogue(
            self.config.topics.configs,
            topics_max=self.config.limits.topics,
            partitions_max=self.config.limits.partitions,
            segment_bytes_min=self.config.limits.segment_bytes_min,
        )
        self._is_loaded = False
        directory = LogDirectory.open(
            disk,
            now_ms=self.now_ms(),
            durability=Durability(self.config.durability),
            config_for=self._config_for,
            reserve_bytes=self.config.disk_reserve_bytes,
            node_id=self.node_id,
            cluster_id=self.config.cluster_id,
            companions=_COMPANIONS,
            loaders=self._platform.loaders,
        )
        self.directory = directory
        try:
            self._compose(directory)
        except BaseException:
            self._stop_assignors()
            directory.close()
            raise

    async def _show_metrics(self, settings: MetricsSettings) -> None:
        # Imported here: most brokers show none, and a start is short.
        from shoal.broker.metrics_port import MetricsPort

        self.metrics = MetricsPort(self, settings, self.not_ready)
        await self.metrics.start()

    def not_ready(self) -> str:
        """Why clients cannot be served; nothing if they can."""
        if self._stopped:
            return "the broker is stopping"
        return "" if self._is_listening else "the broker is starting"

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
        self.catalogue.acls.update(self._pending_acls)
        self.journal.rewrite(self.catalogue.entries())
        self.cluster_id = directory.meta["cluster.id"]
        self.audit = self._platform.audit()
        self._users: Users | None = None
        if self._pending_users or any(listener.sasl for listener in self.config.listeners):
            for user, password in self._pending_users.items():
                self.users.set_password(user, password)
            _ = self.users.decoy_secret  # made now: it takes a write
        self.syncer = Syncer(
            Durability(self.config.durability),
            post=self.loop.call_soon_threadsafe,
            pool=self._platform.sync_workers(),
        )
        limits = self.config.limits
        self.waiting = WaitingRoom(self.loop, self.counters, limit=limits.waiting_fetches)
        memory = MemoryBudget(limits.in_flight_bytes)
        self.fetch_sessions = Sessions(limits.fetch_sessions, memory)
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
        self._assignors = self._start_assignors()
        self._groups: Groups | None = None
        self._transactions: TransactionCoordinators | None = None
        self._markers: MarkerWriter | None = None
        numbers = sorted(tp.partition for tp in directory.partitions if tp.topic == OFFSETS_TOPIC)
        if numbers:
            self.groups.load(numbers)
        self._resume_transactions()
        self.quotas = Quotas()
        for entity, values in self.catalogue.quotas.items():
            self.quotas.replace(entity, values)
        self.oauth = self._token_check()
        self.throttling = Throttling(self.quotas, self.steady_ms, self.counters)
        self.acls = self._rules_in_force()
        authorizer = self._given_authorizer or self.acls or AllowAll()
        self.door = Door(self.catalogue, authorizer)
        self.dispatch = Dispatch(self, limits.elements_per_request)
        self.server = Server(
            self.loop,
            limits,
            self.counters,
            memory,
            handle=self.dispatch.on_frame,
            audit=self.audit.access,
            closed=self._connection_closed,
            charge=lambda host: self.quotas.charge_connection(host, self.steady_ms()),
        )

    def _token_check(self) -> OAuthBearer | None:
        if not any(OAUTHBEARER in listener.sasl for listener in self.config.listeners):
            return None
        # Imported here: most brokers see no tokens, and cryptography is an extra.
        try:
            from shoal.broker.oauth import OAuthBearer
        except ModuleNotFoundError as error:
            raise missing_extra(f"{error.name}, which OAUTHBEARER needs,", "oauth") from None
        assert self.config.oauth is not None, "checked() has seen to it"
        return OAuthBearer(self.config.oauth, self.now_ms)

    def _start_assignors(self) -> dict[str, AssignorProcess | None]:
        """By name; users' own run from now on, and are ordered from through ``_orders``."""
        self._orders: AssignorOrders | None = None
        texts = self.config.groups.consumer_assignors
        if texts == GroupSettings().consumer_assignors:
            return dict.fromkeys(texts)
        # Imported here: most brokers have none.
        from shoal.broker.assignor_orders import AssignorOrders
        from shoal.broker.assignor_process import start_all

        seconds = self.config.groups.consumer_assignor_timeout_ms / 1_000.0
        started = dict(start_all(texts, seconds))
        self._assignors = started
        running = {name: each for name, each in started.items() if each is not None}
        if running:
            self._orders = AssignorOrders(
                self.loop,
                running,
                self.partitions,
                self.now_ms,
                self.config.rack,
                answered=lambda *order: self.groups.target_answered(*order),
                offsets_of=lambda group_id: self.groups.offsets_of(group_id),
            )
        # From now on everything has a name.
        named = tuple(
            name if each is None else f"{name}={each.path}" for name, each in started.items()
        )
        groups = self.config.groups._replace(consumer_assignors=named)
        self.config = self.config._replace(groups=groups)
        return started

    def _stop_assignors(self) -> None:
        for process in self._assignors.values():
            if process is not None:
                process.stop()

    def _rules_in_force(self) -> AclAuthorizer | None:
        if self.config.authorization is None:
            return None
        # Imported here: most brokers have no rules, and a start is short.
        from shoal.broker.access_decisions import rules_in_force

        return rules_in_force(
            self.config.authorization, self.catalogue.acls, self.audit.access, self.counters
        )

    def _resume_transactions(self) -> None:
        """What was decided is completed; what is open and unknown is aborted."""
        logs = self.directory.partitions
        numbers = sorted(tp.partition for tp in logs if tp.topic == TRANSACTIONS_TOPIC)
        if numbers or any(log.open_transactions() for log in logs.values()):
            self.transactions.load(numbers)
            self.abort_unknown_transactions()

    def _adopt_topics(self, directory: LogDirectory) -> None:
        """A directory without our journal: somebody else's log, or ours from a backup."""
        found: dict[str, list[int]] = {}
        for tp in directory.partitions:
            found.setdefault(tp.topic, []).append(tp.partition)
        for name, numbers in found.items():
            log = directory.partitions[min(tp for tp in directory.partitions if tp.topic == name)]
            topic_id = log.topic_id.bytes if log.topic_id is not None else os.urandom(16)
            configs = _INTERNAL_CONFIGS.get(name, {})
            decided = self.catalogue.decide_create(
                name, topic_id, max(numbers) + 1, configs, internal=True
            )
            assert isinstance(decided, dict), decided
            self.catalogue.replay(decided)

    def _listen(self) -> None:
        self.server.connection_limits = self._connection_limits()
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
        self._is_listening = True
        self._probe = LagProbe(self.loop, self.counters)
        self._every(_CHECKPOINT_SECONDS, lambda: self.directory.checkpoint(self.now_ms()))
        self._every(self.config.retention_check_seconds, self._clean)
        if self._orders is not None:
            from shoal.broker.assignor_orders import SAMPLE_SECONDS

            self._every(SAMPLE_SECONDS, self._orders.rates.sample)
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
        if self.metrics is not None:
            await self.metrics.close()

    def _has_work(self) -> bool:
        """Whether a client is owed something that will come soon.

        Groups park joins for minutes; those clients see a cut, as from any restart.
        """
        return not all(each.waits_only_for(_PARKED_APIS) for each in self.server.connections)

    def _end_clockwork(self) -> None:
        self._stop_assignors()
        if self._probe is not None:
            self._probe.stop()
        if self.oauth is not None:
            self.oauth.stop()
        if self._groups is not None:
            self._groups.stop()
        if self._transactions is not None:
            self._transactions.stop()
        if self._markers is not None:
            self._markers.stop()
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
        if self.metrics is not None:
            self.metrics.abort()

    # --- time -----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._platform.now_ms() + self._shift_ms

    def steady_ms(self) -> float:
        """For deadlines that a clock which is set must not move; ``advance`` does."""
        return self.loop.time() * 1000 + self._shift_ms

    def shift_clock_ms(self, milliseconds: int) -> None:
        """Before the start: a clock that was advanced stays advanced."""
        self._shift_ms = milliseconds

    async def advance(self, milliseconds: int) -> None:
        """Move the clock forward as if the time had passed: timers fire in their order."""
        target = self.now_ms() + milliseconds
        while True:
            deadline = min(
                (each for each in map(_deadline, self._coordinators()) if each is not None),
                default=None,
            )
            if deadline is None or deadline >= target:
                break
            self._shift_ms += max(0, deadline - self.now_ms())
            self._tick()
        self._shift_ms += max(0, target - self.now_ms())
        self._tick()
        await self.run_job(self._clean())

    def _coordinators(self) -> list[Coordinators[Any, Any, Any]]:
        return [self.groups, self.transactions]

    def _tick(self) -> None:
        for coordinators in self._coordinators():
            coordinators.tick(self.now_ms())

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
                self.config.groups,
                self._around(),
                self.catalogue,
                open_partition=self._offsets_partition,
                assignors=self._assignors,
                orders=self._orders,
                new_id=self._platform.new_id,
                rebalances=self._rebalance_counts(),
            )
        return self._groups

    def _rebalance_counts(self) -> RebalanceCounts | None:
        if self.config.metrics is None:
            return None
        from shoal.broker.rebalance_counts import RebalanceCounts

        return RebalanceCounts(self.now_ms)

    @property
    def has_groups(self) -> bool:
        """Whether anybody has asked for a coordinator of groups so far."""
        return self._groups is not None

    @property
    def has_transactions(self) -> bool:
        """The same of transactions."""
        return self._transactions is not None

    @property
    def transactions(self) -> TransactionCoordinators:
        """The transaction coordinators."""
        if self._transactions is None:
            from shoal.broker.transactions import TransactionCoordinators

            settings = self.config.transactions
            topic = self.catalogue.get(TRANSACTIONS_TOPIC)
            if topic is not None:
                # Which partition holds an id follows from their number: it stays what it was.
                settings = settings._replace(state_partitions=topic.partition_count)
            self._transactions = TransactionCoordinators(
                settings,
                self._around(),
                open_partition=self._transactions_partition,
                new_producer_id=self._producer_id_at_hand,
                markers=self.markers,
                abort_unknown=self.abort_unknown_transactions,
            )
        return self._transactions

    @property
    def markers(self) -> MarkerWriter:
        """Ends transactions in their partitions."""
        if self._markers is None:
            from shoal.broker.transaction_markers import MarkerWriter

            self._markers = MarkerWriter(
                self.loop,
                self.syncer,
                self.now_ms,
                find=self._partition_of,
                groups=lambda: self.groups,
                written=lambda order: self.transactions.markers_written(order),
            )
        return self._markers

    def _around(self) -> RuntimeParts:
        from shoal.broker.coordinator_runtime import RuntimeParts

        return RuntimeParts(self.loop, self.syncer, self.now_ms, self.partitions.reopen)

    def abort_unknown_transactions(self) -> None:
        """Unless a coordinator cannot say what it knows: then nobody's transaction is unknown."""
        is_whole = not any(name == TRANSACTIONS_TOPIC for name, _ in self.directory.offline)
        if is_whole and self.transactions.all_loaded:
            self.markers.abort_unknown(self.partitions.all_open(), self.transactions.records())

    def _producer_id_at_hand(self) -> int | None:
        taken = self.changes.take_producer_id()
        if taken is None:
            self.changes.reserve_producer_ids(lambda: None)
        return taken

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
        if self._groups is not None:
            self._tell_groups(self._groups, entry)
        if deleted is not None:
            self.partitions.delete(deleted)
        elif entry["kind"] == "configs":
            self.partitions.reconfigure(self.catalogue.get(entry["name"]))
        elif entry["kind"] == "quotas":
            self.quotas.replace(entry["entity"], entry["values"])
        elif entry["kind"] == "acls" and self.acls is not None:
            self.acls.replace(entry["added"], entry["removed"])
        elif entry["kind"] == "client_metrics" and self.metrics is not None:
            self.metrics.telemetry.changed()
        elif entry["kind"] in ("broker_configs", "cluster_configs"):
            self.partitions.reconfigure()
            self.server.connection_limits = self._connection_limits()

    def _tell_groups(self, groups: Groups, entry: Entry) -> None:
        if entry["kind"] in ("topic", "partitions", "delete"):
            groups.topic_changed(entry["name"], self.now_ms())
        elif entry["kind"] == "group_configs":
            groups.settings_changed(entry["group"])

    def _connection_closed(self, connection: ClientConnection) -> None:
        self.fetch_sessions.forget(connection)
        if self._groups is not None and self.config.groups.dead_connection_grace_ms:
            self._groups.connection_closed(connection)

    def _connection_limits(self) -> tuple[int, int, int]:
        """In all, from one address, new ones per second."""
        limits, number = self.config.limits, self.catalogue.set_number
        return (
            number("max.connections", limits.connections),
            number("max.connections.per.ip", limits.connections_per_address),
            number("max.connection.creation.rate", limits.connections_per_second),
        )

    def _forget_topics(self, names: set[str]) -> Iterator[None]:
        """Files of logs and positions in them go, too; with pauses."""
        yield from self.partitions.clear_away()
        if self._groups is not None:
            yield from self._groups.topics_deleted(names, self.now_ms)

    def _offsets_partition(self, number: int) -> Partition | ErrorCode:
        return self.partitions.get(self.changes.offsets_topic(), number)

    def _transactions_partition(self, number: int) -> Partition | ErrorCode:
        return self.partitions.get(self.changes.transactions_topic(), number)

    def _partition_of(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        found = self.partitions.opened(*topic_partition)
        if found is not None:
            return found
        topic = self.catalogue.get(topic_partition.topic)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.partitions.get(topic, topic_partition.partition)

    # --- what handlers ask for ------------------------------------------------------------------

    def advertised(self, connection: ClientConnection) -> tuple[str, int]:
        """The address this client is to use: that of the listener it came through."""
        listener = connection.listener
        assert isinstance(listener, BoundListener)
        return listener.advertised

    @property
    def rights_in_force(self) -> bool:
        """Whether anybody may be allowed less than everything."""
        return self._given_authorizer is not None or self.acls is not None

    def topic_of(self, key: str | bytes) -> Topic | None:
        return self.catalogue.get(key) if isinstance(key, str) else self.catalogue.by_id(key)

    def new_session(self, connection: ClientConnection) -> SaslSession | None:
        """Who a connection begins as; None for a certificate that no rule gives a name."""
        listener = connection.listener
        assert isinstance(listener, BoundListener)
        principal = ANONYMOUS
        if isinstance(connection.sock, ssl.SSLSocket) and listener.config.client_ca_file:
            from shoal.broker.tls import subject_of

            subject = subject_of(connection.sock.getpeercert())
            if subject is not None:
                rules = read_mapping_rules(listener.config.principal_mapping_rules)
                name = mapped_name(subject, rules)
                if name is None:
                    self.audit.access(
                        "certificate refused", peer=connection.peer_host, subject=subject
                    )
                    return None
                principal = f"User:{name}"
        if not listener.config.sasl:
            self.server.authenticated(connection)
        return SaslSession(listener.config.sasl, principal)

    def set_acls(self, acls: Iterable[Acl]) -> None:
        """Before the start: access rules to be there when it serves."""
        self._pending_acls.extend(acls)

    def set_users(self, users: Mapping[str, str]) -> None:
        """Before the start: users to be there when it serves."""
        self._pending_users.update(users)

    def reload_certificates(self) -> None:
        """Read certificates again; open connections keep theirs."""
        from shoal.broker.tls import context_for

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
            "groups": self._groups.group_count if self._groups is not None else 0,
            "transactional_ids": len(self._transactions) if self._transactions is not None else 0,
            "fetch_sessions": len(self.fetch_sessions),
            "in_flight_bytes": self.server.in_flight_bytes,
            "memory_bytes": self.server.memory.snapshot(),
            "sync_rounds": self.syncer.rounds,
        }


def _deadline(coordinators: Coordinators[Any, Any, Any]) -> int | None:
    return coordinators.next_deadline()
