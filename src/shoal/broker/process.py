"""Run a broker as a process: the ready line, signals, logs, the end.

Rule: the first line on standard output is the ready line and it comes when a client can be
served, not before; everything else goes to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from time import perf_counter
from typing import Final

from shoal.broker.broker import Broker
from shoal.broker.config import BrokerConfig
from shoal.broker.flags import LOG_FORMATS, LOG_LEVELS
from shoal.errors import ConfigError

logger = logging.getLogger("shoal.broker")

# More than anybody needs, and little enough for programs that close every number below it.
_FILES_MAX: Final = 1 << 20
_FILES_OF_LOGS: Final = 256

# Requests leave no cycles behind, so the counts that start collections can be high.
COLLECTED_AFTER: Final = (20_000, 20, 50)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_logging(level: str, log_format: str) -> None:
    """Raises ConfigError if there is no such level or format."""
    for flag, given, known in (
        ("level", level, LOG_LEVELS),
        ("format", log_format, LOG_FORMATS),
    ):
        if given.lower() not in known:
            raise ConfigError(f"--log-{flag} {given!r} is not one of {', '.join(known)}")
    handler = logging.StreamHandler(sys.stderr)
    if log_format.lower() == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger("shoal")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def run(config: BrokerConfig, *, json_output: bool = False, with_ui: bool = False) -> None:
    """Serve until a signal says stop."""
    if with_ui:
        check_ui(config)
    # A sync that is done must get through to a busy loop: 5 ms, the default, is a sync's own time.
    sys.setswitchinterval(0.001)
    raise_file_limit(config)
    asyncio.run(_serve(config, json_output=json_output, with_ui=with_ui))


def raise_file_limit(config: BrokerConfig) -> int:
    """Let this process open as many files as it may; returns how many, and says if too few.

    The usual soft limit of 1,024 is for programs that use ``select``; each connection takes one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    for_connections = soft - _FILES_OF_LOGS
    if soft != resource.RLIM_INFINITY and config.limits.connections > for_connections:
        logger.warning(
            "limits.connections is %d, but this process may open %d files and needs %d of them "
            "for logs: raise the limit (ulimit -n) or lower limits.connections",
            config.limits.connections,
            soft,
            _FILES_OF_LOGS,
        )
    return soft


async def _serve(config: BrokerConfig, *, json_output: bool, with_ui: bool) -> None:
    began = perf_counter()
    broker = Broker(config)
    await broker.start()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_stop() -> None:
        if stop.is_set():
            # The second Ctrl-C: the user does not want to wait.
            logger.warning("stopping at once")
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop)
    loop.add_signal_handler(signal.SIGHUP, broker.reload_certificates)
    loop.add_signal_handler(
        signal.SIGUSR1, lambda: print(json.dumps(broker.snapshot()), file=sys.stderr, flush=True)
    )
    # Everything so far lives as long as the process, so no collection needs to look at it again.
    gc.freeze()
    gc.enable()
    gc.set_threshold(*COLLECTED_AFTER)
    _announce(broker, seconds=perf_counter() - began, json_output=json_output)
    dashboard = _dashboard(broker) if with_ui else None
    try:
        await stop.wait()
    finally:
        if dashboard is not None:
            dashboard.terminate()
        await broker.stop()
        if dashboard is not None:
            dashboard.wait()


def check_ui(config: BrokerConfig) -> None:
    """Raises ConfigError if a dashboard that was told nothing could not log in."""
    first = config.listeners[0]
    if first.sasl or first.certificate_file:
        raise ConfigError(
            "--ui needs a first listener without SASL and TLS; with them, run `shoal ui` beside "
            "the broker and give it a user"
        )


def _dashboard(broker: Broker) -> subprocess.Popen[bytes]:
    """A process of its own: what a page costs, the broker's clients do not wait for. It ends when
    its standard input does, so it never outlives the broker."""
    where = broker.listeners[0]
    return subprocess.Popen(  # noqa: S603 - our own module
        [
            *(sys.executable, "-m", "shoal", "ui", "--no-browser", "--with-parent"),
            *("--port", "0", "--bootstrap", f"{where.host}:{where.port}"),
        ],
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),
    )


def _announce(broker: Broker, *, seconds: float, json_output: bool) -> None:
    addresses = [f"{listener.host}:{listener.port}" for listener in broker.listeners]
    if not json_output:
        for address in addresses:
            print(f"ready {address}", flush=True)
        if broker.metrics is not None:
            print(f"metrics http://{broker.metrics.address}/metrics", flush=True)
        return
    print(
        json.dumps(
            {
                "ready": addresses[0],
                "listeners": addresses,
                "metrics": broker.metrics.address if broker.metrics is not None else None,
                "cluster_id": broker.cluster_id,
                "node_id": broker.node_id,
                "pid": os.getpid(),
                "start_ms": round(seconds * 1e3, 1),
                "since_process_start_ms": _since_process_start_ms(),
                "durability": broker.config.durability,
                "replication": 1,
            }
        ),
        flush=True,
    )


def _since_process_start_ms() -> float | None:
    """Age of this process, interpreter start and imports included (Linux)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        with open("/proc/uptime", "rb") as file:
            uptime = float(file.read().split()[0])
    except OSError:
        return None
    return round((uptime - ticks / os.sysconf("SC_CLK_TCK")) * 1e3, 1)
