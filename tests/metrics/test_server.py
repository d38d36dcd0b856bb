"""The server for scrapes, as clients of every kind meet it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from shoal.errors import ConfigError
from shoal.metrics import server as module
from shoal.metrics.server import MetricsPages, MetricsServer, is_loopback
from tests.patience import PATIENCE_S

PAGES = MetricsPages(
    lambda openmetrics: [b"openmetrics\n"] if openmetrics else [b"te", b"xt\n"], str
)


def serve(
    talk: Callable[[int], Awaitable[None]], pages: MetricsPages = PAGES, token: str = ""
) -> None:
    """Run a conversation with a server on a free port."""

    async def run() -> None:
        server = MetricsServer("127.0.0.1", 0, pages, token=token)
        where = await server.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await talk(int(where.rpartition(":")[2]))
        finally:
            await server.close()

    asyncio.run(run())


async def ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_a_scrape_gets_the_format_it_accepts() -> None:
    async def talk(port: int) -> None:
        status, headers, body = await ask(port, get("/metrics"))
        assert (status, body) == (200, b"text\n")
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        status, headers, body = await ask(port, get("/metrics?x=1", accept))
        assert (status, body) == (200, b"openmetrics\n")
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        _, headers, body = await ask(port, get("/metrics", "Accept-Encoding: gzip, deflate"))
        assert headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(body) == b"text\n"
        status, headers, body = await ask(port, get("/metrics", method="HEAD"))
        assert (status, headers["Content-Length"], body) == (200, "5", b"")

    serve(talk)


def test_a_client_that_does_not_read_is_not_sent_everything() -> None:
    """Or each of many slow ones would have a copy of a large scrape."""
    passes: list[int] = []
    sending = asyncio.Event()

    class Body(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            passes.append(0)
            if len(passes) == 2:
                sending.set()
            for piece in super().__iter__():
                passes[-1] += 1
                yield piece

    pages = MetricsPages(lambda _: Body([bytes(1 << 20)] * 100), str)

    async def talk(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(get("/metrics"))
        await sending.wait()
        # By turns of the loop that both sides share, not by time: whoever copies without waiting
        # has done so after a hundred.
        for _ in range(1000):
            await asyncio.sleep(0)
        counted, sent = passes
        assert counted == 100, "for the length"
        assert sent < 100
        writer.transport.abort()

    serve(talk, pages)


def test_other_paths_and_methods_are_refused_in_a_line() -> None:
    async def talk(port: int) -> None:
        assert (await ask(port, get("/")))[0] == 404
        assert (await ask(port, get("/metrics/../x")))[0] == 404
        assert (await ask(port, get("/metrics", method="POST")))[0] == 405
        for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\nx\r\n\r\n"):
            assert (await ask(port, garbage))[0] == 400
        assert (await ask(port, get("/metrics", "x: " + "y" * 10_000)))[0] == 400

    serve(talk)


def test_ready_says_why_not() -> None:
    reason = ""
    pages = MetricsPages(PAGES.scrape, lambda: reason)

    async def talk(port: int) -> None:
        nonlocal reason
        assert (await ask(port, get("/ready")))[::2] == (200, b"ready\n")
        reason = "the cluster is away"
        assert (await ask(port, get("/ready")))[::2] == (503, b"the cluster is away\n")
        assert (await ask(port, get("/health")))[::2] == (200, b"ok\n")

    serve(talk, pages)


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready", "/else"])
def test_without_the_token_nothing_is_told(path: str) -> None:
    async def talk(port: int) -> None:
        for wrong in ((), ("Authorization: Bearer ",), ("Authorization: Bearer \xe9",)):
            status, headers, body = await ask(port, get(path, *wrong))
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert b"text" not in body
        assert (await ask(port, get(path, "Authorization: Bearer secret")))[0] != 401

    serve(talk, token="secret")


def test_a_client_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HT")
        assert await reader.read() == b""
        writer.close()
        assert (await ask(port, get("/metrics")))[0] == 200

    serve(talk)


def test_no_more_connections_than_it_can_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)

    async def talk(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/metrics"))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, each in (*idle, (reader, writer)):
            each.close()

    serve(talk)


def test_closing_ends_who_is_connected() -> None:
    async def run() -> None:
        server = MetricsServer("127.0.0.1", 0, PAGES)
        port = int((await server.start()).rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET")
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await server.close()
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()

    asyncio.run(run())


def test_beyond_this_machine_only_with_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "metrics.example"):
        with pytest.raises(ConfigError, match="give a token, or listen on"):
            MetricsServer(host, 0, PAGES)
        MetricsServer(host, 0, PAGES, token="secret")
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.9"):
        assert is_loopback(host)


def test_an_address_that_is_taken_is_named() -> None:
    async def talk(port: int) -> None:
        with pytest.raises(
            ConfigError, match=f"metrics cannot listen on 127.0.0.1:{port}: .*in use"
        ):
            await MetricsServer("127.0.0.1", port, PAGES).start()

    serve(talk)
