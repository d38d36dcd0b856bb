"""A service on asyncio: every line a client sends becomes a record, answered when it is stored.

Ctrl-C or SIGTERM ends it in order: no new connections, the lines under way are answered, what was
taken is stored, and no task or thread is left. A line that was answered with an offset is stored.

    python examples/asyncio_service.py localhost:9092 orders 8080
"""

from __future__ import annotations

import asyncio
import signal
import sys

from shoal import AsyncAdmin, AsyncProducer
from shoal.errors import ShoalError


async def answer(
    producer: AsyncProducer, topic: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection; who sends faster than the cluster stores waits here, and nobody else."""
    try:
        while line := await reader.readline():
            try:
                stored = await producer.send(topic, line.rstrip(b"\n"))
                writer.write(f"{stored.partition} {stored.offset}\n".encode())
            except ShoalError as error:
                writer.write(f"not stored: {error}\n".encode())
            await writer.drain()
    finally:
        writer.close()


async def serve(servers: str, topic: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topic(topic)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await answer(producer, topic, reader, writer)
        finally:
            connections.discard(task)

    async with AsyncProducer(bootstrap_servers=servers) as producer:
        server = await asyncio.start_server(connected, "127.0.0.1", port)
        print("ready", server.sockets[0].getsockname()[1], flush=True)
        await stop.wait()
        server.close()
        await producer.flush(10)  # what was taken is stored, and answered below
        await asyncio.sleep(0)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
