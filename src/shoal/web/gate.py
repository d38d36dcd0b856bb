"""The one gate before every page: who asks, from where, and whether they may.

In this order, whatever is asked for: the ``Host`` is one of ours (DNS rebinding), the path is in
the table, the session is open, the method fits, the request comes from our own pages (``Origin``,
``Sec-Fetch-Site``, a header no form can send), and the server may do what the path does.

Rule: what is not in the table does not exist, and a row says what it needs; there is no default.
Decided by the path as the server got it, never by a URL put together from headers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from shoal.web.sessions import WebSessions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

OWN_HEADER: Final = "x-shoal"
"""No form and no image sends it, and a script of another origin would have to ask first."""
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types shoal",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class RouteNeed(Enum):
    """What a row of the table needs of the caller, and of the server."""

    NOTHING = "nothing"
    READ = "read"
    WRITE = "write"


class WebRoute(NamedTuple):
    """One thing that may be asked for."""

    method: str
    path: str
    need: RouteNeed
    endpoint: Callable[..., Any]


class Denial(NamedTuple):
    """Why a request is not answered."""

    status: int
    reason: str


@dataclass(frozen=True)
class GateSettings:
    """Where the server is, and what it may do."""

    hosts: Collection[str]
    """``host:port`` as browsers write it into ``Host``."""
    cookie: str
    allow_writes: bool = False
    is_tls: bool = False

    @property
    def origins(self) -> frozenset[str]:
        scheme = "https" if self.is_tls else "http"
        return frozenset(f"{scheme}://{host}" for host in self.hosts)


class Gate:
    """Stands before the application; nothing reaches it without passing."""

    def __init__(
        self, app: Asgi, routes: Sequence[WebRoute], sessions: WebSessions, settings: GateSettings
    ) -> None:
        self._app = app
        self._needs: dict[str, dict[str, RouteNeed]] = {}
        for route in routes:
            self._needs.setdefault(route.path, {})[route.method] = route.need
        self._sessions = sessions
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        assert scope["type"] == "http", "the server is told to speak nothing else"
        guarded = _with_headers(send, HEADERS)
        denial = self.denial(scope["method"], scope["path"], scope["headers"])
        if denial is None:
            await self._app(scope, receive, guarded)
        else:
            await _refuse(guarded, denial)

    def denial(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Denial | None:
        """Why this request is refused; ``None`` if it is not."""
        given = _Headers(headers)
        if given.only("host").lower() not in self._settings.hosts:
            return Denial(421, "this is not a name of this server; open the address it printed")
        needs = self._needs.get(path, {})
        is_open = RouteNeed.NOTHING in needs.values()
        if not is_open and not self._sessions.knows(session_of(given, self._settings.cookie)):
            return Denial(401, "log in first: open the address that `shoal ui` printed")
        if not needs:
            return Denial(404, "there is no such page")
        need = needs.get("GET" if method == "HEAD" else method)
        if need is None:
            return Denial(405, f"{method} is not possible here")
        return self._from_elsewhere(method, path, given) or self._not_permitted(need)

    def _from_elsewhere(self, method: str, path: str, given: _Headers) -> Denial | None:
        """Whether another site's page sent this, in its visitor's name."""
        foreign = Denial(403, "only the dashboard's own pages may ask this")
        is_safe = method in ("GET", "HEAD")
        origin, site = given.only("origin"), given.only("sec-fetch-site")
        if path.startswith("/api/") and site not in ("", "same-origin"):
            return foreign
        if origin and origin not in self._settings.origins:
            return foreign
        if is_safe:
            return None
        if not origin or not given.only(OWN_HEADER):
            return foreign
        if given.only("content-type").partition(";")[0].strip() != "application/json":
            return Denial(415, "send JSON")
        return None

    def _not_permitted(self, need: RouteNeed) -> Denial | None:
        if need is RouteNeed.WRITE and not self._settings.allow_writes:
            return Denial(403, "this dashboard only looks: start it with --allow-writes to change")
        return None


class _Headers:
    """Headers of a request; one that comes twice is none."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(
                value.decode("latin-1")
            )

    def only(self, name: str) -> str:
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 else ""


def session_of(headers: _Headers | Mapping[str, str], cookie: str) -> str:
    """The session that a request names."""
    if isinstance(headers, _Headers):
        text = headers.only("cookie")
    else:
        text = headers.get("cookie", "")
    # Not http.cookies: a cookie of another program on this host that it cannot read hides ours.
    pairs = (pair.strip().partition("=") for pair in text.split(";"))
    found = [value for name, _, value in pairs if name == cookie]
    return found[0] if len(found) == 1 else ""


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            given += [
                (name.encode(), value.encode())
                for name, value in headers.items()
                if name.encode() not in names
            ]
            if b"cache-control" not in names:
                given.append((b"cache-control", b"no-store"))
            message = {**message, "headers": given}
        await send(message)

    return guarded


async def _refuse(send: Send, denial: Denial) -> None:
    body = json.dumps({"error": denial.reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": denial.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
