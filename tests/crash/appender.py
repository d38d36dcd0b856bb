"""A program that appends for ever and says what was acknowledged: one line per batch.

    python -m tests.crash.appender DIRECTORY [PARTITIONS]

A line is "partition offset value". Whoever kills it must find every line's record in the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.durability import Syncer
from shoal.log.partition import PartitionLog
from shoal.records.batch import encode_batch
from shoal.types import TopicPartition

CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=1000, retention_ms=None)
PRODUCERS = 6


def say(text: str) -> None:
    os.write(1, text.encode())  # one call: a line is out whole or not at all


async def produce(log: PartitionLog, syncer: Syncer, name: int) -> None:
    loop = asyncio.get_running_loop()
    number = 0
    while True:
        number += 1
        value = b"%d-%d-" % (name, number) + b"x" * (number * 37 % 700)
        data = encode_batch([(None, value, (), int(time.time() * 1000))])
        result = log.append(data, now_ms=int(time.time() * 1000))
        assert result.error is ErrorCode.NONE, result
        done: asyncio.Future[ErrorCode] = loop.create_future()
        syncer.register(log, result.end_offset, done.set_result)
        assert await done is ErrorCode.NONE
        say(f"{log.topic_partition.partition} {result.base_offset} {value.decode()}\n")


async def checkpoint(directory: LogDirectory) -> None:
    while True:
        await asyncio.sleep(0.02)
        run_job(directory.checkpoint(int(time.time() * 1000)))


async def main() -> None:
    loop = asyncio.get_running_loop()
    now_ms = int(time.time() * 1000)
    directory = LogDirectory.open(
        sys.argv[1], now_ms=now_ms, config_for=lambda _: CONFIG, reserve_bytes=1 << 20
    )
    partitions = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    syncer = Syncer(Durability.GROUP, post=loop.call_soon_threadsafe)
    logs = []
    for number in range(partitions):
        tp = TopicPartition("t", number)
        logs.append(directory.partitions.get(tp) or directory.create(tp, now_ms=now_ms))
    say("ready\n")
    producers = [produce(logs[name % partitions], syncer, name) for name in range(PRODUCERS)]
    await asyncio.gather(*producers, checkpoint(directory))


if __name__ == "__main__":
    asyncio.run(main())
