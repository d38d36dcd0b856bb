"""A Kafka inside your test: a real broker in this process, on a free port, with faults on demand.

    with Broker() as broker:
        producer = SomeKafkaClient(broker.bootstrap_servers)
        broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)

Rule: every method returns when its effect is there; a test never has to sleep. The broker runs
on an event loop in a thread of its own, and whatever this class does, it does on that loop.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from shoal.access.rules import Acl
from shoal.broker.broker import Broker as LiveBroker
from shoal.broker.config import AuthorizationSettings, BrokerConfig, Listener, MetricsSettings
from shoal.broker.handlers import SERVED
from shoal.errors import ErrorCode, did_you_mean
from shoal.testing.faults import ANY, Fault, FaultPlan
from shoal.wire.apis.registry import API

T = TypeVar("T")
_MEMORY = Path("/dev/shm")  # noqa: S108  (a file system in memory; removed on close)
_PATIENCE_SECONDS = 30.0


class Broker:  # as users say it; the running one is broker.broker.Broker, called LiveBroker here
    """A broker for tests. Start it with ``with``, or with ``start`` and ``stop``.

    Args:
        data_dir: where the log lives. Without it, it lives in memory and goes with the broker.
        durability: ``os`` unless said otherwise: a test does not survive a power cut anyway.
        topics: names, or names with partition counts, created before the broker serves.
        config: everything else; listeners, directory and durability given above win.
        listeners: more than one address, TLS, SASL.
        users: names and passwords for listeners with SASL.
        dead_connection_grace: seconds after which a member whose connection broke is taken for
            dead. Off: Kafka waits until the session ends, and a test that relies on less fails
            there.
        assignors: assignors of your own for groups of the consumer protocol, beside ``uniform`` and
            ``range``: functions or classes of an importable module, or "NAME=module:attribute".
        metrics: whether it has a port for Prometheus, see ``metrics_url``.
        acls: access rules, in force from the start. With them, and with an empty list, only what a
            rule allows is allowed, except to ``User:admin`` and the super users of ``config``::

                rule = Acl(ResourceType.TOPIC, "orders", "User:ann", Operation.READ)
                Broker(users={"admin": "…", "ann": "…"}, listeners=…, acls=[rule])
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        durability: str = "os",
        topics: dict[str, int] | Iterable[str] = (),
        config: BrokerConfig | None = None,
        listeners: tuple[Listener, ...] | None = None,
        users: dict[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        dead_connection_grace: float = 0.0,
        assignors: Iterable[object] = (),
        metrics: bool = False,
    ) -> None:
        self._topics = topics if isinstance(topics, dict) else dict.fromkeys(topics, 1)
        self._users = dict(users or {})
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._directory: Path | None = None
        self._config = (config or BrokerConfig())._replace(
            listeners=listeners or (Listener(port=0),),
            durability=durability,
        )
        if metrics:
            port = (self._config.metrics or MetricsSettings())._replace(address="127.0.0.1:0")
            self._config = self._config._replace(metrics=port)
        if dead_connection_grace:
            grace_ms = int(dead_connection_grace * 1_000)
            groups = self._config.groups._replace(dead_connection_grace_ms=grace_ms)
            self._config = self._config._replace(groups=groups)
        if paths := tuple(map(_path_of, assignors)):
            groups = self._config.groups
            groups = groups._replace(consumer_assignors=(*groups.consumer_assignors, *paths))
            self._config = self._config._replace(groups=groups)
        self._acls = tuple(acls or ())
        if acls is not None:
            settings = self._config.authorization or AuthorizationSettings()
            named = dict.fromkeys((*settings.super_users, "User:admin"))
            self._config = self._config._replace(
                authorization=settings._replace(super_users=tuple(named))
            )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._live: LiveBroker | None = None
        self._faults: FaultPlan | None = None
        self._shift_ms = 0

    # --- life -----------------------------------------------------------------------------

    def start(self) -> Self:
        """Serve. Returns when clients can connect.

        Raises:
            ConfigError: the configuration is refused.
            ShoalError, OSError: the log or a port cannot be had, or a topic cannot be made.
        """
        assert self._live is None, "the broker is running"
        is_first = self._directory is None
        if self._directory is None:
            self._directory = self._given_dir or _memory_directory()
        config = self._config._replace(data_dir=str(self._directory))
        ready = threading.Event()
        failure: list[BaseException] = []

        def serve() -> None:
            loop = asyncio.new_event_loop()
            try:
                live = LiveBroker(config)
                live.shift_clock_ms(self._shift_ms)
                if is_first:
                    live.set_users(self._users)
                    live.set_acls(self._acls)
                loop.run_until_complete(live.start())
            except BaseException as error:  # noqa: BLE001  (raised again in the caller)
                failure.append(error)
                loop.close()
                ready.set()
                return
            self._loop, self._live = loop, live
            ready.set()
            try:
                loop.run_forever()
            finally:
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()

        self._thread = threading.Thread(target=serve, name="shoal-broker", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            self._thread.join(_PATIENCE_SECONDS)
            self._thread = None
            if is_first:
                self._undo_first_start()
            raise failure[0]
        # The same port after a restart: clients come back to where they were.
        live = self.live
        self._config = self._config._replace(
            listeners=tuple(
                listener._replace(port=bound.port)
                for listener, bound in zip(self._config.listeners, live.listeners, strict=True)
            ),
        )
        if is_first:
            # Later it has what was made of it.
            try:
                for name, partitions in self._topics.items():
                    if name not in live.catalogue:
                        self.create_topic(name, partitions)
            except BaseException:
                self._undo_first_start()  # nobody else can: the ``with`` block is not entered
                raise
        return self

    def _undo_first_start(self) -> None:
        self.close()
        self._directory = None

    def stop(self) -> None:
        """Stop cleanly. The data stays until ``close`` or the end of the ``with`` block."""
        self._end(lambda live: live.stop())

    def kill(self) -> None:
        """Stop as ``kill -9`` would: nothing is flushed, nobody is told."""

        async def die(live: LiveBroker) -> None:
            live.abandon()

        self._end(die)

    def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) and start again on the same port with the same data."""
        if self._live is not None:
            if kill:
                self.kill()
            else:
                self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the data if it was in memory."""
        if self._live is not None:
            self.stop()
        if self._given_dir is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _end(self, how: Callable[[LiveBroker], Coroutine[Any, Any, None]]) -> None:
        live, loop, thread = self._live, self._loop, self._thread
        assert live is not None
        assert loop is not None
        assert thread is not None
        asyncio.run_coroutine_threadsafe(how(live), loop).result(_PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE_SECONDS)
        assert not thread.is_alive(), "the broker's loop does not end"
        self._live = self._loop = self._thread = self._faults = None

    # --- facts ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener."""
        first = self.live.listeners[0]
        return f"{first.host}:{first.port}"

    @property
    def port(self) -> int:
        """The port of the first listener; a restart keeps it."""
        port = self.live.listeners[0].port
        assert isinstance(port, int)
        return port

    @property
    def metrics_url(self) -> str:
        """Where its metrics are, if it was made with ``metrics=True``."""
        port = self.live.metrics
        assert port is not None, "the broker was made without metrics"
        return f"http://{port.address}/metrics"

    @property
    def data_dir(self) -> Path:
        """Where the log lies, for ``shoal log`` and the option ``logDir``."""
        assert self._directory is not None, "the broker was never started"
        return self._directory

    @property
    def live(self) -> LiveBroker:
        """The broker itself. Touch it only on its own loop (``on_loop``)."""
        assert self._live is not None, "the broker is not running"
        return self._live

    def counters(self) -> dict[str, Any]:
        """What the broker counted since it started: requests, errors, refusals, loop lag."""
        return self._on_loop(self.live.snapshot)

    def on_loop(self, function: Callable[[LiveBroker], T]) -> T:
        """Run a function on the broker's loop and return its result."""
        live = self.live
        return self._on_loop(lambda: function(live))

    # --- content --------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Create a topic. Configurations are Kafka's with underscores: ``retention_ms=1000``."""
        dotted = {key.replace("_", "."): str(value) for key, value in configs.items()}

        async def create() -> None:
            await self.live.changes.create_topic(name, partitions, dotted)

        self._run(create())

    # --- faults ---------------------------------------------------------------------------

    def fail(self, api: str, error: ErrorCode | str, times: int = 1) -> None:
        """Answer the next ``times`` requests of ``api`` with ``error``, without handling them."""
        names = ErrorCode.__members__
        if isinstance(error, str) and error not in names:
            raise ValueError(f"unknown error {error!r}{did_you_mean(error, list(names))}")
        code = names[error] if isinstance(error, str) else error
        self._add(Fault(_api_name(api), times, error=code))

    def delay(self, api: str, seconds: float, times: int = 1) -> None:
        """Handle the next ``times`` requests of ``api`` that much later."""
        self._add(Fault(_api_name(api), times, delay_seconds=seconds))

    def drop(self, api: str, times: int = 1, *, after: bool = False) -> None:
        """Cut the connection on the next ``times`` requests of ``api``.

        Args:
            after: handle the request first, so that only the reply is lost.
        """
        self._add(Fault(_api_name(api), times, drop=True, after=after))

    def clear_faults(self) -> None:
        """Take back the faults that have not happened yet."""
        self._on_loop(lambda: self._plan().clear())

    def cut_connections(self) -> None:
        """Close every client's connection, as a network failure would."""
        self._on_loop(self.live.cut_connections)

    def advance(self, seconds: float) -> None:
        """Move the broker's clock: sessions expire, retention runs, as if the time had passed."""
        milliseconds = round(seconds * 1000)
        self._shift_ms += milliseconds
        self._run(self.live.advance(milliseconds))

    # --- the other thread -------------------------------------------------------------------

    def _plan(self) -> FaultPlan:
        if self._faults is None:
            assert self._loop is not None
            dispatch = self.live.dispatch
            self._faults = dispatch.faults = FaultPlan(dispatch, self._loop.call_later)
        return self._faults

    def _add(self, fault: Fault) -> None:
        self._on_loop(lambda: self._plan().add(fault))

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the broker is not running"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_SECONDS)


def _memory_directory() -> Path:
    where = _MEMORY if _MEMORY.is_dir() else None
    return Path(tempfile.mkdtemp(prefix="shoal-", dir=where))


def _path_of(assignor: object) -> str:
    """Where another process finds it."""
    if isinstance(assignor, str):
        return assignor
    module = getattr(assignor, "__module__", "__main__")
    name = str(getattr(assignor, "__qualname__", ""))
    if module == "__main__" or not name or "<" in name:
        raise ValueError(
            f"{assignor!r} cannot be found by another process: put it at the top of a module"
        )
    return f"{module}:{name}"


def _api_name(name: str) -> str:
    """Kafka's name of an API, written in any case: ``join_group`` is JoinGroup."""
    if name == ANY:
        return ANY
    known = {API[key].name.lower(): API[key].name for key in SERVED}
    wanted = re.sub(r"[^a-z]", "", name.lower())
    if wanted not in known:
        raise ValueError(f"unknown API {name!r}{did_you_mean(name, list(known.values()))}")
    return known[wanted]
