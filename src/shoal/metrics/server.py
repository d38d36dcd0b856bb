"""Answers scrapes: a server for a handful of GETs, in whatever loop it is started.

    /metrics   the metrics, as text or as OpenMetrics, by what the client accepts; compressed if so
    /healthz   200 while the process answers; also /health
    /readyz    200 when it can do its work, 503 with the reason until then; also /ready

Rule: nothing is worked out for a scrape but what ``pages`` hands out; and nobody gets far: heads
are short, there is one request on a connection, and a slow client is cut off. Beyond this machine
nothing is told without the token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Final, NamedTuple

from shoal.errors import ConfigError
from shoal.metrics.exposition import OPENMETRICS, TEXT

HEAD_BYTES_MAX: Final = 8 * 1024
PATIENCE_S: Final = 10.0
CONNECTIONS_MAX: Final = 32
_METHODS: Final = ("GET", "HEAD")
_GZIP: Final = 16 + zlib.MAX_WBITS


class Answer(NamedTuple):
    """What a request is told."""

    status: HTTPStatus
    body: Sequence[bytes]
    """In pieces: a large one is never put together."""
    content_type: str = "text/plain; charset=utf-8"
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class MetricsPages:
    """Where the answers come from. ``scrape`` gets whether OpenMetrics is wanted, and gives the
    text in pieces; ``not_ready`` gives the reason, nothing if there is none."""

    scrape: Callable[[bool], Sequence[bytes] | Awaitable[Sequence[bytes]]]
    not_ready: Callable[[], str]


class MetricsServer:
    """One listening socket. ``start`` and ``close`` belong to one loop."""

    def __init__(self, host: str, port: int, pages: MetricsPages, *, token: str = "") -> None:
        if not token and not is_loopback(host):
            raise ConfigError(
                f"metrics on {host} could be read by anybody who reaches it: "
                "give a token, or listen on 127.0.0.1"
            )
        self._host, self._port, self._pages, self._token = host, port, pages, token
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; returns where, as ``host:port``.

        Raises:
            ConfigError: the address is taken, or is not one of this machine.
        """
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=HEAD_BYTES_MAX
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"metrics cannot listen on {self._host}:{self._port}: {reason}"
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        return f"{self._host}:{port}"

    async def close(self) -> None:
        """Stop listening, end what is under way."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort(self) -> None:
        """The same, for those who cannot wait."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._tasks.add(task)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._serve(reader, writer)
        except (TimeoutError, OSError):
            pass  # the client is slow or gone
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = "GET"
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, headers = _parsed(head)
            answer = await self._answer(method, path, headers)
        except asyncio.IncompleteReadError:
            return
        except (asyncio.LimitOverrunError, ValueError):
            answer = Answer(HTTPStatus.BAD_REQUEST, [b"this is not a request for metrics\n"])
        with suppress(ConnectionError):
            for piece in chain([_head(answer)], answer.body if method != "HEAD" else ()):
                writer.write(piece)
                await writer.drain()  # what is not read yet is not copied, either

    async def _answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        if method not in _METHODS:
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, [b"only GET and HEAD\n"])
        if self._token and not self._knows_token(headers.get("authorization", "")):
            return Answer(HTTPStatus.UNAUTHORIZED, [b"send the token: Authorization: Bearer ...\n"])
        match path.partition("?")[0]:
            case "/metrics":
                return await self._metrics(headers)
            case "/health" | "/healthz":
                return Answer(HTTPStatus.OK, [b"ok\n"])
            case "/ready" | "/readyz":
                reason = self._pages.not_ready()
                if reason:
                    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, [f"{reason}\n".encode()])
                return Answer(HTTPStatus.OK, [b"ready\n"])
        return Answer(HTTPStatus.NOT_FOUND, [b"there is /metrics, /healthz and /readyz\n"])

    def _knows_token(self, given: str) -> bool:
        expected = f"Bearer {self._token}"
        return hmac.compare_digest(given.encode("latin-1"), expected.encode("utf-8"))

    async def _metrics(self, headers: dict[str, str]) -> Answer:
        openmetrics = "application/openmetrics-text" in headers.get("accept", "")
        found = self._pages.scrape(openmetrics)
        body = found if isinstance(found, Sequence) else await found
        encoding = ""
        if "gzip" in headers.get("accept-encoding", ""):
            # In a thread: of a large scrape it takes longer than others should wait.
            body, encoding = await asyncio.to_thread(_compressed, body), "gzip"
        return Answer(HTTPStatus.OK, body, OPENMETRICS if openmetrics else TEXT, encoding)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers of a request.

    Raises:
        ValueError: it is none.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, protocol = first.split(" ")
    if not protocol.startswith("HTTP/1."):
        raise ValueError(protocol)
    headers = {}
    for line in lines:
        if line:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(line)
            headers[name.lower()] = value.strip()
    return method, path, headers


def _compressed(body: Iterable[bytes]) -> list[bytes]:
    packer = zlib.compressobj(1, wbits=_GZIP)
    return [*(packed for piece in body if (packed := packer.compress(piece))), packer.flush()]


def _head(answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {sum(map(len, answer.body))}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    ]
    if answer.encoding:
        lines.append(f"Content-Encoding: {answer.encoding}")
    if answer.status is HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
