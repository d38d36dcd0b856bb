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

from shoal.broker.config import BrokerLimits, Listener
from shoal.broker.connection import ClientConnection, Exchange
from shoal.broker.counters import Counters
from shoal.broker.memory import MemoryBudget
from shoal.broker.server import Server, bind
from tests.patience import PATIENCE_S

LIMITS = BrokerLimits()


class Echo:
    """A server whose replies the test gives: ``answer(exchange, body)``."""

    def __init__(
        self,
        answer: Callable[[Exchange, bytes], None] | None = None,
        limits: BrokerLimits = LIMITS,
        listener: Listener = Listener(port=0),  # noqa: B008 - a tuple, never changed
    ) -> None:
        self.audited: list[dict[str, Any]] = []
        self.seen: list[bytes] = []
        self._answer = answer or (lambda exchange, body: exchange.send([framed(body)]))
        self.counters = Counters()
        self.server = Server(
            asyncio.get_running_loop(),
            limits,
            self.counters,
            MemoryBudget(limits.in_flight_bytes),
            handle=self._handle,
            audit=lambda event, **fields: self.audited.append({"event": event, **fields}),
        )
        self.server.start([bind(listener, None)])
        self.port = self.server.listeners[0].port

    def _handle(self, connection: ClientConnection, frame: memoryview) -> None:
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
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def receive(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def is_cut(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read() == b""


async def settle() -> None:
    """Whatever the server was going to do at once, it has done."""
    for _ in range(20):
        await asyncio.sleep(0.001)


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
            # Compared first: pytest explains a difference of nine megabytes for half a minute.
            is_whole = await receive(reader) == b"head-" + content + b"-tail"
            assert is_whole
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
        whole: list[Any] = [piece] if parts == 1 else [head, piece, tail]
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
            seen, turns = -1, 0
            while turns < 50 and seen < 20:  # until it is quiet, however slow the machine is
                turns = turns + 1 if len(echo.seen) == seen else 0
                seen = len(echo.seen)
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
            await settle()
            assert len(waiting) == 2
            assert echo.server.memory.requests == 800
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


def test_a_request_larger_than_the_budget_is_served_alone():
    async def scenario() -> None:
        async with Echo(limits=LIMITS._replace(in_flight_bytes=1000)) as echo:
            reader, writer = await echo.connect()
            for body in (bytes(5000), b"next"):
                writer.write(framed(body))
                assert await receive(reader) == body
            writer.close()

    asyncio.run(scenario())


def test_a_connection_has_so_many_requests_in_flight_and_no_more():
    async def scenario() -> None:
        waiting: list[tuple[Exchange, bytes]] = []
        limits = LIMITS._replace(in_flight_requests_per_connection=3)
        async with Echo(lambda exchange, body: waiting.append((exchange, body)), limits) as echo:
            reader, writer = await echo.connect()
            bodies = [b"%d" % number for number in range(10)]
            writer.writelines(map(framed, bodies))
            for answered, body in enumerate(bodies):
                await until(lambda: waiting)
                await settle()
                assert len(echo.seen) == min(10, answered + 3)
                exchange, asked = waiting.pop(0)
                exchange.send([framed(asked)])
                assert await receive(reader) == body
            writer.close()

    asyncio.run(scenario())


def test_whoever_is_held_begins_nothing_new_whatever_else_is_answered():
    async def scenario() -> None:
        waiting: dict[bytes, Exchange] = {}

        def answer(exchange: Exchange, body: bytes) -> None:
            waiting[body] = exchange
            if body == b"2 holds":
                exchange.connection.hold()

        async with Echo(answer) as echo:
            reader, writer = await echo.connect()
            writer.writelines(map(framed, (b"1 waits", b"2 holds", b"3 is behind it")))
            await until(lambda: b"2 holds" in waiting)
            waiting[b"1 waits"].send([framed(b"first")])
            assert await receive(reader) == b"first"
            await settle()
            assert b"3 is behind it" not in waiting
            waiting[b"2 holds"].connection.release()
            await until(lambda: b"3 is behind it" in waiting)
            for exchange, body in (
                (waiting[b"2 holds"], b"second"),
                (waiting[b"3 is behind it"], b"third"),
            ):
                exchange.send([framed(body)])
                assert await receive(reader) == body
            writer.close()

    asyncio.run(scenario())


def test_a_connection_that_is_to_close_waits_for_every_answer():
    async def scenario() -> None:
        waiting: list[Exchange] = []
        async with Echo(lambda exchange, _: waiting.append(exchange)) as echo:
            reader, writer = await echo.connect()
            writer.writelines(map(framed, (b"1", b"2", b"3")))
            await until(lambda: len(waiting) == 3)
            waiting[0].connection.close_when_flushed()
            for exchange, body in zip(waiting, (b"first", b"second", b"third"), strict=True):
                await settle()
                exchange.send([framed(body)])
                assert await receive(reader) == body
            assert await is_cut(reader)
            writer.close()

    asyncio.run(scenario())


def test_whoever_leaves_is_not_waited_for():
    async def scenario() -> None:
        woken: list[bytes] = []

        def answer(exchange: Exchange, body: bytes) -> None:
            exchange.wake = lambda: woken.append(body)

        async with Echo(answer) as echo:
            _, writer = await echo.connect()
            writer.write(framed(b"poll"))
            await until(lambda: echo.seen)
            writer.close()
            await until(lambda: woken)
            assert (woken, echo.server.memory.requests) == ([b"poll"], 0)

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


def test_a_place_is_free_again_when_its_client_has_left():
    async def scenario() -> None:
        limits = LIMITS._replace(connections_per_address=1, connections=2)
        async with Echo(limits=limits) as echo:
            for _ in range(5):
                reader, writer = await echo.connect()
                writer.write(framed(b"hello"))
                assert await receive(reader) == b"hello"
                writer.close()
                await until(lambda: not echo.server.connections)

    asyncio.run(scenario())


GUARDED = Listener(port=0, sasl=("SCRAM-SHA-256",))


def test_strangers_have_few_places_and_whoever_logs_in_takes_none_of_them():
    async def scenario() -> None:
        limits = LIMITS._replace(unauthenticated_connections=2)
        async with Echo(limits=limits, listener=GUARDED) as echo:
            pairs = [await echo.connect() for _ in range(3)]
            assert await is_cut(pairs[0][0])
            assert [one["reason"] for one in echo.audited] == ["gave way to a newer connection"]
            echo.server.authenticated(next(iter(echo.server.connections)))
            pairs.append(await echo.connect())
            for reader, writer in pairs[1:]:
                writer.write(framed(b"hello"))
                assert await receive(reader) == b"hello"
            assert len(echo.audited) == 1
            for _, writer in pairs:
                writer.close()

    asyncio.run(scenario())


def test_frames_may_be_large_after_the_login_and_not_before():
    async def scenario() -> None:
        limits = LIMITS._replace(frame_bytes_before_authentication=100)
        async with Echo(limits=limits, listener=GUARDED) as echo:
            reader, writer = await echo.connect()
            await until(lambda: echo.server.connections)
            echo.server.authenticated(next(iter(echo.server.connections)))
            writer.write(framed(bytes(5000)))
            assert await receive(reader) == bytes(5000)
            stranger, stranger_writer = await echo.connect()
            stranger_writer.write(framed(bytes(5000)))
            assert await is_cut(stranger)
            writer.close()
            stranger_writer.close()

    asyncio.run(scenario())


def test_the_time_to_log_in_runs_from_the_beginning_whatever_a_stranger_says():
    async def scenario() -> None:
        limits = LIMITS._replace(authentication_seconds=50.0)
        async with Echo(limits=limits, listener=GUARDED) as echo:
            (in_time, in_time_writer), (late, late_writer) = [
                await echo.connect() for _ in range(2)
            ]
            await until(lambda: len(echo.server.connections) == 2)
            first = min(echo.server.connections, key=lambda each: each.accepted_at)
            echo.server.authenticated(first)
            for connection in echo.server.connections:
                connection.accepted_at -= 100.0
            for reader, writer in ((in_time, in_time_writer), (late, late_writer)):
                writer.write(framed(b"still here"))
                assert await receive(reader) == b"still here"
            echo.server.check_deadlines()
            assert await is_cut(late)
            assert echo.counters.refused["authentication took too long"] == 1
            in_time_writer.write(framed(b"in"))
            assert await receive(in_time) == b"in"
            in_time_writer.close()
            late_writer.close()

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


def test_whoever_waits_for_an_answer_is_neither_idle_nor_late():
    """Half a frame is no delay of the client's while it is not read from."""

    async def scenario() -> None:
        waiting: list[Exchange] = []
        limits = LIMITS._replace(
            idle_seconds=0.0, frame_seconds=0.0, in_flight_requests_per_connection=1
        )
        async with Echo(lambda exchange, _: waiting.append(exchange), limits) as echo:
            reader, writer = await echo.connect()
            writer.write(framed(b"one") + framed(b"two")[:-1])
            await until(lambda: waiting)
            writer.write(framed(b"two")[-1:] + framed(b"three")[:-1])
            await settle()
            echo.server.check_deadlines()
            assert not echo.counters.refused
            for body in (b"one", b"two"):
                await until(lambda: waiting)
                waiting.pop().send([framed(body)])
                assert await receive(reader) == body
            await settle()
            echo.server.check_deadlines()
            assert echo.counters.refused["a frame was not finished in time"] == 1
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
