"""One budget for what clients make a broker hold: everybody is served, nobody holds more."""

from __future__ import annotations

import asyncio
import os
import struct
from contextlib import suppress

import pytest

from shoal.broker.memory import MemoryBudget
from tests.broker.test_connection import LIMITS, Echo, framed, receive, until

MIB = 1 << 20


async def settled(echo: Echo) -> None:
    """Until nothing more is received: what is still unread waits for memory."""
    seen = -1
    while seen != echo.counters.received_bytes:
        seen = echo.counters.received_bytes
        for _ in range(20):
            await asyncio.sleep(0.001)


def test_shares_are_counted_up_to_their_size_so_that_requests_keep_theirs():
    memory = MemoryBudget(800)
    memory.hold_frames(1000)
    memory.hold_replies(1000)
    memory.hold_sessions(1000)
    assert memory.others == 400 + 200 + 100
    memory.hold_frames(-900)
    assert memory.others == 100 + 200 + 100


def test_a_frame_costs_what_arrived_of_it_and_not_what_it_announces():
    async def scenario() -> None:
        async with Echo() as echo:
            pairs = [await echo.connect() for _ in range(50)]
            for _, writer in pairs:
                writer.write(struct.pack(">i", 60 * MIB) + b"x")
            await until(lambda: echo.counters.received_bytes == 50 * 5)
            assert echo.server.memory.frames == 50 * 512
            for _, writer in pairs:
                writer.write(bytes(10_000))
            await until(lambda: echo.counters.received_bytes == 50 * 10_005)
            assert echo.server.memory.frames <= 50 * 8 * 10_005
            for _, writer in pairs:
                writer.close()
            await until(lambda: not echo.server.connections)
            assert echo.server.memory.frames == 0

    asyncio.run(scenario())


def test_unfinished_frames_hold_their_share_and_one_frame_and_others_are_served():
    async def scenario() -> None:
        async with Echo(limits=LIMITS._replace(in_flight_bytes=4 * MIB)) as echo:
            pairs = [await echo.connect() for _ in range(20)]
            for _, writer in pairs:
                writer.write((struct.pack(">i", 3 * MIB) + bytes(3 * MIB))[:-1])
            await settled(echo)
            arrived = 256 << 10  # what a connection has read before it is told to wait
            assert echo.server.memory.frames <= 2 * MIB + 3 * MIB + 20 * arrived
            reader, writer = await echo.connect()
            writer.write(framed(b"hello"))
            assert await receive(reader) == b"hello"
            writer.close()
            for _, writer in pairs:
                writer.transport.abort()
            await until(lambda: not echo.server.connections)
            assert echo.server.in_flight_bytes == 0

    asyncio.run(scenario())


def test_all_large_frames_are_served_although_there_is_room_for_one():
    async def scenario() -> None:
        async with Echo(limits=LIMITS._replace(in_flight_bytes=MIB)) as echo:

            async def talk(body: bytes) -> None:
                reader, writer = await echo.connect()
                writer.write(framed(body))
                assert await receive(reader) == body
                writer.close()

            await asyncio.gather(*(talk(os.urandom(2 * MIB)) for _ in range(12)))
            await until(lambda: not echo.server.connections)
            assert echo.server.in_flight_bytes == 0

    asyncio.run(scenario())


def test_whoever_stops_in_the_middle_of_a_frame_gives_way_to_those_who_wait():
    async def scenario() -> None:
        limits = LIMITS._replace(in_flight_bytes=MIB, frame_seconds=100.0)
        async with Echo(limits=limits) as echo:
            stalled = [await echo.connect() for _ in range(3)]
            for _, writer in stalled:
                writer.write(struct.pack(">i", 2 * MIB) + bytes(MIB))
            await settled(echo)
            reader, writer = await echo.connect()
            body = os.urandom(2 * MIB)
            writer.write(framed(body))
            await settled(echo)
            assert not echo.seen
            while not echo.seen:
                for connection in echo.server.connections:
                    connection._frame_started -= 11.0  # a tenth of the time, and a bit
                echo.server.check_deadlines()
                await settled(echo)
            assert await receive(reader) == body
            reasons = {one["reason"] for one in echo.audited}
            assert reasons == {"a frame was not finished in time"}
            for _, other in (*stalled, (reader, writer)):
                other.close()

    asyncio.run(scenario())


def test_replies_that_nobody_takes_are_counted_and_stop_those_who_do_not_take_them():
    async def scenario() -> None:
        limits = LIMITS._replace(in_flight_bytes=32 * MIB)
        reply = framed(bytes(MIB))
        async with Echo(lambda exchange, body: exchange.send([reply]), limits) as echo:
            deaf = [await echo.connect() for _ in range(8)]
            for reader, writer in deaf:
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                writer.writelines(framed(b"x") for _ in range(200))
            await settled(echo)
            memory = echo.server.memory
            # The share, and what each had been answered in the turn in which that was full.
            assert memory.replies_max < memory.replies <= memory.replies_max + 8 * 4 * MIB
            reader, writer = await echo.connect()
            for _ in range(3):
                writer.write(framed(b"hello"))
                assert await receive(reader) == bytes(MIB)
            for connection in echo.server.connections:
                connection.last_write_progress -= 7.0
            echo.server.check_deadlines()
            # Until there is room again, not longer: who is slow is not cut off for nothing.
            assert memory.replies_max // 2 < memory.replies <= memory.replies_max
            writer.write(framed(b"hello"))
            assert await receive(reader) == bytes(MIB)
            for _, other in (*deaf, (reader, writer)):
                with suppress(ConnectionError):
                    other.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("taken", [0, 100 << 10])
def test_replies_that_are_taken_late_are_all_given_back(taken):
    async def scenario() -> None:
        reply = framed(bytes(MIB))
        async with Echo(lambda exchange, body: exchange.send([reply])) as echo:
            reader, writer = await echo.connect()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.writelines(framed(b"x") for _ in range(30))
            await until(lambda: echo.server.memory.replies)
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(30):
                await receive(reader)
            await until(lambda: not echo.server.memory.replies)
            writer.close()

    asyncio.run(scenario())
