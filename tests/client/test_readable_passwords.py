"""The client does not send PLAIN passwords to remote hosts without TLS unless told otherwise.

A host is remote unless its name or address says that it is this machine. It may stand in the
settings, where it is refused before anything is sent, or be named by a broker that is here.
"""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    TopicPartition,
)
from shoal.broker.config import Listener
from shoal.cli.commands import app
from shoal.errors import ConfigError
from shoal.testing.broker import Broker

PASSWORD = "hunter2-do-not-send"
T0 = TopicPartition("t", 0)
#: This machine, spelt as no client knows it.
REMOTE = "127.1"


class Eavesdropper(socketserver.ThreadingTCPServer):
    """Passes on to a broker what clients send, and keeps it."""

    daemon_threads = True
    target: int

    def __init__(self) -> None:
        self.heard = b""
        super().__init__(("127.0.0.1", 0), _Conversation)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Conversation(socketserver.BaseRequestHandler):
    server: Eavesdropper

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.target)) as broker:
            back = threading.Thread(target=_copy, args=(broker, self.request), daemon=True)
            back.start()
            _copy(self.request, broker, self.server)
            broker.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, target: socket.socket, ear: Eavesdropper | None = None) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if ear is not None:
                ear.heard += data
            target.sendall(data)


def produce(settings: dict[str, Any]) -> None:
    with Producer(**settings, max_block_ms=2000, delivery_timeout_ms=2000, linger_ms=0) as producer:
        producer.send("t", b"x", partition=0).result(10)


def consume(settings: dict[str, Any]) -> None:
    with Consumer(**settings) as consumer:
        assert T0 in consumer.end_offsets([T0], timeout=2)


def administer(settings: dict[str, Any]) -> None:
    with Admin(**settings) as admin:
        assert T0 in admin.list_offsets({T0: "latest"}, timeout=2)


def produce_async(settings: dict[str, Any]) -> None:
    async def work() -> None:
        async with AsyncProducer(
            **settings, max_block_ms=2000, delivery_timeout_ms=2000, linger_ms=0
        ) as producer:
            await producer.send("t", b"x", partition=0)

    asyncio.run(work())


def consume_async(settings: dict[str, Any]) -> None:
    async def work() -> None:
        async with AsyncConsumer(**settings) as consumer:
            assert T0 in await consumer.end_offsets([T0], timeout=2)

    asyncio.run(work())


def administer_async(settings: dict[str, Any]) -> None:
    async def work() -> None:
        async with AsyncAdmin(**settings) as admin:
            assert T0 in await admin.list_offsets({T0: "latest"}, timeout=2)

    asyncio.run(work())


def command(settings: dict[str, Any]) -> None:
    environment = {f"SHOAL_{name.upper()}": str(value) for name, value in settings.items()}
    done = CliRunner().invoke(app, ["topic", "describe", "t", "--timeout", "2"], env=environment)
    assert PASSWORD not in done.output
    if done.exception is not None:
        raise done.exception


@pytest.fixture(
    params=[
        produce,
        consume,
        administer,
        produce_async,
        consume_async,
        administer_async,
        command,
    ],
    ids=lambda face: face.__name__,
)
def face(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], None]:
    return request.param


def plain(servers: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": PASSWORD,
    } | more


@pytest.fixture
def eavesdropper() -> Iterator[Eavesdropper]:
    with Eavesdropper() as ear:
        thread = threading.Thread(target=ear.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        listener = Listener(port=0, sasl=("PLAIN",), advertised=(REMOTE, ear.port))
        with Broker(listeners=(listener,), users={"ann": PASSWORD}, topics=["t"]) as broker:
            ear.target = broker.live.listeners[0].port
            yield ear
        ear.shutdown()
        thread.join()


def test_the_client_does_not_send_plain_passwords_to_remote_hosts_without_tls(face, eavesdropper):
    with pytest.raises(ConfigError, match=f"send the password readably to {REMOTE}"):
        face(plain(f"{REMOTE}:{eavesdropper.port}"))
    assert not eavesdropper.heard


def test_nor_to_remote_hosts_that_a_broker_names(face, eavesdropper):
    with pytest.raises(ConfigError, match=f"send the password readably to {REMOTE}"):
        face(plain(f"127.0.0.1:{eavesdropper.target}"))
    assert PASSWORD.encode() not in eavesdropper.heard


def test_unless_told_otherwise(face, eavesdropper):
    face(plain(f"{REMOTE}:{eavesdropper.port}", sasl_plain_without_tls=True))
    assert PASSWORD.encode() in eavesdropper.heard
