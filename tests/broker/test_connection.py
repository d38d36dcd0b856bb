"""Bytes and order: what a connection does whatever the frames mean."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.broker.config import Limits, Listener
from shoal.broker.connection import Connection, Exchange
from shoal.broker.counters import Counters
from shoal.broker.server import Server, bind

LIMITS = Limits()


class Echo:
    """A server whose replies the test gives: ``answer(exchange, body)``."""

    def __init__(
        self,
        answer: Callable[[Exchange, bytes], None] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.audited: list[dict[str, Any]] = []
        self.seen: list[bytes] = []
        self._answer = answer or (lambda exchange, body: exchange.send([framed(body)]))
        self.counters = Counters()
        self.server = Server(
            asyncio.get_running_loop(),
            limits,
            self.counters,
            handle=self._handle,
            audit=lambda event, **fields: self.audited.append({"event": event, **fields}),
        )
        self.server.start([bind(Listener(port=0), None)])
        self.port = self.server.listeners[0].port

    def _handle(self, connection: Connection, frame: memoryview) -> None:
        exchange = Exchange(connection, len(frame), 0.0)
        exchange.api_key = frame[0]
        connection.expect(exchange)
        self.seen.append(bytes(frame))
        self._answer(exchange, bytes(frame))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def until(holds: Callable[[], object]) -> None:
    """The event is in the server's own bookkeeping, which has no Event to wait for."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.001)


async def receive(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@settings(max_examples=30)
@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20),
    st.lists(st.integers(1, 200), max_size=10),
)
def test_frames_cut_anywhere_arrive_whole_and_in_order(bodies, cuts):
    async def scenario() -> None:
        async with Echo() as echo:
            reader, writer = await echo.connect()
            data = b"".join(map(framed, bodies))
            for cut in cuts:
                writer.write(data[:cut])
                await writer.drain()
                data = data[cut:]
                await asyncio.sleep(0)
            writer.write(data)
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [200_000, 1_000_000, 3_000_000])
def test_a_frame_larger_than_the_scratch_buffer_arrives_whole(size):
    async def scenario() -> None:
        async with Echo() as echo:
            reader, writer = await echo.connect()
            bodies = [os.urandom(size), b"small", os.urandom(size)]
            writer.writelines(map(framed, bodies))
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    asyncio.run(scenario())


def test_replies_leave_in_the_order_of_the_requests():
    async def scenario() -> None:
        waiting: list[tuple[Exchange, bytes]] = []
        async with Echo(lambda exchange, body: waiting.append((exchange, body))) as echo:
            reader, writer = await echo.connect()
            bodies = [bytes([n]) * 5 for n in range(5)]
            writer.writelines(map(framed, bodies))
            await until(lambda: len(waiting) == 5)
            for exchange, body in reversed(waiting):
                exchange.send([framed(body)])
            assert [await receive(reader) for _ in bodies] == bodies
            writer.close()

    asyncio.run(scenario())


def test_a_request_behind_a_long_poll_ends_its_wait():
    async def scenario() -> None:
        def answer(exchange: Exchange, body: bytes) -> None:
            if body[0] == 1:
                exchange.wake = lambda: exchange.send([framed(b"woken")])
            else:
                exchange.send([framed(body)])

        async with Echo(answer) as echo:
            reader, writer = await echo.connect()
            writer.write(framed(b"\1 poll") + framed(b"\2 other"))
            assert await receive(reader) == b"woken"
            assert await receive(reader) == b"\2 other"
            writer.close()

    asyncio.run(scenario())


def test_a_reply_of_nothing_lets_the_next_one_pass():
    async def scenario() -> None:
        def answer(exchange: Exchange, body: bytes) -> None:
            exchange.send([] if body[0] == 0 else [framed(body)])

        async with Echo(answer) as echo:
            reader, writer = await echo.connect()
            writer.write(framed(b"\0 quiet") + framed(b"\1 loud"))
            assert await receive(reader) == b"\1 loud"
            writer.close()

    asyncio.run(scenario())


class Range:
    def __init__(self, fd: int, position: int, size_bytes: int) -> None:
        self.fd = fd
        self.position = position
        self.size_bytes = size_bytes
        self.released = 0

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize("size", [10, 5_000, 400_000, 9_000_000])
def test_a_file_range_goes_out_between_other_parts_and_is_released_once(tmp_path, size):
    content = os.urandom(size)
    path = tmp_path / "segment"
    path.write_bytes(b"skip" + content + b"more")

    async def scenario(fd: int) -> None:
        piece = Range(fd, 4, size)

        def answer(exchange: Exchange, body: bytes) -> None:
            head = struct.pack(">i", size + 10) + b"head-"
            exchange.send([head, piece, b"-tail"])

        async with Echo(answer) as echo:
            reader, writer = await echo.connect()
            writer.write(framed(b"fetch"))
            assert await receive(reader) == b"head-" + content + b"-tail"
            assert piece.released == 1
            writer.close()

    with open(path, "rb") as file:
        asyncio.run(scenario(file.fileno()))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("size", [1_000, 400_000])
def test_a_file_that_was_cut_behind_our_back_ends_the_connection(tmp_path, size, parts):
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 10)

    async def scenario(fd: int) -> None:
        piece = Range(fd, 0, size)
        head, tail = struct.pack(">i", size + 4), b"tail"
        whole = [piece] if parts == 1 else [head, piece, tail]
        async with Echo(lambda exchange, _: exchange.send(whole)) as echo:
            reader, writer = await echo.connect()
            writer.write(framed(b"fetch"))
            assert b"tail" not in await reader.read()
            assert piece.released == 1
            writer.close()

    with open(path, "rb") as file:
        asyncio.run(asyncio.wait_for(scenario(file.fileno()), 10))


def test_a_client_that_reads_nothing_is_not_read_from_and_costs_no_memory():
    async def scenario() -> None:
        limits = LIMITS._replace(out_pending_bytes_per_connection=1 << 20)
        big = framed(b"x" * (1 << 20))
        async with Echo(lambda exchange, body: exchange.send([big]), limits) as echo:
            sock = socket.create_connection(("127.0.0.1", echo.port))
            sock.setblocking(False)
            request = framed(b"more") * 1000
            await asyncio.get_running_loop().sock_sendall(sock, request)
            for _ in range(50):
                await asyncio.sleep(0.001)
            # What the kernel took, one reply over the limit, and nothing more.
            assert len(echo.seen) < 20
            received = 0
            while received < 1000 * len(big):
                received += len(await asyncio.get_running_loop().sock_recv(sock, 1 << 20))
            assert len(echo.seen) == 1000
            sock.close()

    asyncio.run(scenario())


def test_the_budget_of_bytes_in_flight_pauses_reading_and_resumes():
    async def scenario() -> None:
        waiting: list[tuple[Exchange, bytes]] = []
        limits = LIMITS._replace(in_flight_bytes=1000)
        async with Echo(lambda exchange, body: waiting.append((exchange, body)), limits) as echo:
            pairs = [await echo.connect() for _ in range(2)]
            for _, writer in pairs:
                writer.writelines(framed(bytes(400)) for _ in range(3))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert len(waiting) == 2
            assert echo.server.in_flight_bytes == 800
            answered = 0
            while answered < 6:
                exchange, body = waiting.pop(0)
                exchange.send([framed(body)])
                answered += 1
                if answered < 6:
                    await until(lambda: waiting)
            for reader, writer in pairs:
                for _ in range(3):
                    assert await receive(reader) == bytes(400)
                writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "the peer uses TLS, this listener does not"),
        (b"GET / HTTP/1.1\r\n", "this is HTTP, not Kafka"),
        (b"\x7f\xff\xff\xff", "larger than allowed"),
        (b"\x00\x00\x00\x00", "not Kafka"),
        (b"\xff\xff\xff\xff", "not Kafka"),
    ],
)
def test_bytes_that_are_not_kafka_close_the_connection_and_are_named(data, hint):
    async def scenario() -> None:
        async with Echo() as echo:
            reader, writer = await echo.connect()
            writer.write(data)
            assert await reader.read() == b""
            assert hint in echo.audited[0]["reason"]
            assert echo.counters.refused["not Kafka"] == 1
            other_reader, other_writer = await echo.connect()
            other_writer.write(framed(b"hello"))
            assert await receive(other_reader) == b"hello"
            writer.close()
            other_writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (LIMITS._replace(connections=2), "too many connections"),
        (LIMITS._replace(connections_per_address=2), "too many connections from one address"),
        (LIMITS._replace(connections_per_second=2), "too many new connections per second"),
    ],
)
def test_connections_over_a_limit_are_closed_and_audited(limits, reason):
    async def scenario() -> None:
        async with Echo(limits=limits) as echo:
            pairs = [await echo.connect() for _ in range(3)]
            assert await pairs[2][0].read() == b""
            assert echo.audited == [
                {"event": "connection refused", "peer": "127.0.0.1", "reason": reason}
            ]
            pairs[0][1].write(framed(b"hello"))
            assert await receive(pairs[0][0]) == b"hello"
            for _, writer in pairs:
                writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("limits", "data", "reason"),
    [
        (LIMITS._replace(frame_seconds=0.0), b"\0\0\1\0half", "a frame was not finished in time"),
        (LIMITS._replace(idle_seconds=0.0), b"", "idle"),
    ],
)
def test_deadlines_close_a_connection(limits, data, reason):
    async def scenario() -> None:
        async with Echo(limits=limits) as echo:
            reader, writer = await echo.connect()
            writer.write(data)
            await asyncio.sleep(0.01)
            echo.server.check_deadlines()
            assert await reader.read() == b""
            assert echo.counters.refused[reason] == 1
            writer.close()

    asyncio.run(scenario())


def test_a_slow_reader_is_closed():
    async def scenario() -> None:
        limits = LIMITS._replace(slow_reader_seconds=0.0)
        big = framed(b"x" * (32 << 20))
        async with Echo(lambda exchange, body: exchange.send([big]), limits) as echo:
            sock = socket.create_connection(("127.0.0.1", echo.port))
            sock.sendall(framed(b"more"))
            await until(lambda: echo.seen)
            await asyncio.sleep(0.01)
            echo.server.check_deadlines()
            assert echo.counters.refused["client does not read its replies"] == 1
            sock.close()

    asyncio.run(scenario())


def test_replies_to_many_clients_are_sent_together_and_to_one_at_once():
    async def scenario() -> None:
        async with Echo() as echo:
            flushed: list[int] = []
            flush = echo.server._flush_dirty

            def counted() -> None:
                flushed.append(len(echo.server._dirty))
                flush()

            echo.server._flush_dirty = counted  # type: ignore[method-assign]  # counts calls of the real one
            clients = [await echo.connect() for _ in range(10)]
            for turn in range(30):
                for _, writer in clients:
                    writer.write(framed(b"%d" % turn))
                assert [await receive(reader) for reader, _ in clients] == [b"%d" % turn] * 10
            assert max(flushed) > 1
            assert sum(flushed) <= 300
            reader, writer = clients[0]
            flushed.clear()
            for turn in range(100):
                writer.write(framed(b"%d" % turn))
                assert await receive(reader) == b"%d" % turn
            # Alone, it is asked again now and then whether it still is.
            assert len(flushed) <= 10
            for _, each in clients:
                each.close()

    asyncio.run(scenario())
