"""The dashboard as a server: where it listens, who may come in, and its life.

Rule: safe or not at all. On this machine a random token opens it; for other machines it needs TLS,
a password and the name under which they reach it, and does not start without one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import uvicorn

from shoal.errors import ConfigError
from shoal.metrics.server import is_loopback
from shoal.web.actions import Actions
from shoal.web.application import Application, Dashboard
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.gate import GateSettings
from shoal.web.sessions import WRONG_S, WebSessions

PASSWORD_MIN: Final = 12
PATIENCE_S: Final = 5.0
REQUESTS_MAX: Final = 256


@dataclass(frozen=True)
class WebSettings:
    """Where the dashboard listens and what opens it."""

    host: str = "127.0.0.1"
    port: int = 0
    allow_writes: bool = False
    certificate: Path | None = None
    key: Path | None = None
    password: str = ""
    public_name: str = ""
    is_demo: bool = False
    wrong_s: float = WRONG_S

    def check(self) -> None:
        """Raises ConfigError if it would be open to strangers."""
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("TLS needs both: --certificate and --key")
        if self.password and len(self.password) < PASSWORD_MIN:
            raise ConfigError(f"the password is short: give {PASSWORD_MIN} characters or more")
        if is_loopback(self.host):
            return
        missing = [
            flag
            for flag, given in (
                ("--certificate and --key", self.certificate),
                ("--login-password-file", self.password),
                ("--public-name", self.public_name),
            )
            if not given
        ]
        if missing:
            raise ConfigError(
                f"a dashboard on {self.host} can be reached by others: give {', '.join(missing)}; "
                "or listen on 127.0.0.1"
            )

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None


class BackgroundJob(Protocol):
    """What goes on in the background, in a thread of its own."""

    def run(self) -> None:
        """Until ``stop``."""
        ...

    def stop(self) -> None: ...


class _Server(uvicorn.Server):
    """Signals belong to whoever runs this; uvicorn would raise them once more at its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebServer:
    """Serves one dashboard, and sweeps its clusters, until ``stop``."""

    def __init__(
        self,
        watches: Mapping[str, ClusterWatch],
        settings: WebSettings,
        jobs: Sequence[BackgroundJob] = (),
    ) -> None:
        settings.check()
        assert watches, "a dashboard is about a cluster"
        self._settings = settings
        self._jobs: list[BackgroundJob] = [*watches.values(), *jobs]
        self._socket = _listening(settings.host, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self.secret = settings.password or secrets.token_urlsafe(32)
        cookie = f"__Host-shoal_{self.port}" if settings.is_tls else f"shoal_{self.port}"
        dashboard = Dashboard(
            watches,
            Actions(allow_writes=settings.allow_writes),
            WebSessions(self.secret, wrong_s=settings.wrong_s),
            settings.is_demo,
        )
        gate = GateSettings(
            self._hosts(), cookie, allow_writes=settings.allow_writes, is_tls=settings.is_tls
        )
        self.application = Application(dashboard, gate)
        self._server = _Server(
            uvicorn.Config(
                self.application.gated,
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                limit_concurrency=REQUESTS_MAX,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=32 * 1024,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """What to open; the token is in the part that browsers keep to themselves."""
        scheme = "https" if self._settings.is_tls else "http"
        host = self._settings.public_name or _in_url(self._settings.host)
        opened = f"{scheme}://{host}:{self.port}/"
        return opened if self._settings.password else f"{opened}#token={self.secret}"

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop`` or a signal."""
        for job in self._jobs:
            self._background(job.run, "dashboard")
        ready()
        try:
            asyncio.run(self._server.serve([self._socket]))
        finally:
            self.close()

    def stop(self) -> None:
        """From any thread: answer what is under way, and end."""
        self.application.close()
        self._server.should_exit = True

    def close(self) -> None:
        """Give the port back, and stop looking at clusters."""
        for job in self._jobs:
            job.stop()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        with contextlib.suppress(OSError):
            self._socket.close()

    def _background(self, run: Callable[[], Any], name: str) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _hosts(self) -> frozenset[str]:
        """What browsers may write into ``Host``."""
        if self._settings.public_name:
            names = {self._settings.public_name}
        else:
            names = {"127.0.0.1", "localhost", "[::1]", _in_url(self._settings.host)}
        found = {f"{name}:{self.port}".lower() for name in names}
        usual = 443 if self._settings.is_tls else 80
        return frozenset(found | {name.lower() for name in names if self.port == usual})


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)
    except OSError as error:
        found.close()
        reason = error.strerror or str(error)
        raise ConfigError(f"the dashboard cannot listen on {host}:{port}: {reason}") from None
    return found
