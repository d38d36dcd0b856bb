"""A dashboard for tests: a real broker, a real server on a free port, and visitors."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shoal import Admin
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.server import WebServer, WebSettings

PATIENCE_S = 30


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Visitor:
    """A client that sends what a test tells it; as a browser would, unless told otherwise."""

    port: int
    cookie: str = ""
    host: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str | None] | None = None,
    ) -> Reply:
        own = f"127.0.0.1:{self.port}"
        sent: dict[str, str | None] = {"Host": self.host or own, **self.headers}
        if self.cookie:
            sent["Cookie"] = self.cookie
        if method not in ("GET", "HEAD"):
            sent |= {"Origin": f"http://{own}", "X-Shoal": "1"}
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        data = None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            encoded = b"" if data is None else data.encode()
            connection.putheader("Content-Length", str(len(encoded)))
            connection.endheaders(encoded)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: object, **more: Any) -> Reply:
        return self.ask("POST", path, body, **more)

    def log_in(self, secret: str) -> Reply:
        reply = self.post("/api/session", {"secret": secret})
        if reply.status == 200:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply


@dataclass
class Served:
    """A dashboard that runs."""

    server: WebServer
    watch: ClusterWatch
    admin: Admin

    @property
    def port(self) -> int:
        return self.server.port

    def stranger(self) -> Visitor:
        return Visitor(self.port)

    def visitor(self) -> Visitor:
        visitor = Visitor(self.port)
        assert visitor.log_in(self.server.secret).status == 200
        return visitor


@contextmanager
def dashboard(
    bootstrap_servers: str,
    *,
    every_s: float = 0.3,
    allow_writes: bool = False,
    web: Mapping[str, Any] | None = None,
    **client: Any,
) -> Iterator[Served]:
    """One cluster; ``web`` are more settings of the server."""
    settings = {"bootstrap_servers": bootstrap_servers, **client}
    with Admin(**settings) as admin:
        watch = ClusterWatch("test", admin, settings, every_s=every_s)
        given = WebSettings(port=0, allow_writes=allow_writes, wrong_s=0.0, **(web or {}))
        with running(WebServer({"test": watch}, given)) as server:
            yield Served(server, watch, admin)


@contextmanager
def running(server: WebServer) -> Iterator[WebServer]:
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the dashboard does not end"
