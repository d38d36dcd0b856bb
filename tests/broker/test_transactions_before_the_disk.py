"""A transaction's answers are promises: none leaves before the disk, and none is broken by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from shoal.broker import coordinator_runtime
from shoal.errors import ErrorCode
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.produce import ProduceRequest
from tests.broker.raw_client import batch
from tests.broker.slow_disk import Client, SlowPlatform, serving
from tests.patience import PATIENCE_S


async def begin(client: Client) -> tuple[int, int]:
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    await client.ask(CreateTopicsRequest(topics=[topic]), 7)
    made = await client.ask(
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5
    )
    assert made.error_code == 0
    return made.producer_id, made.producer_epoch


def produced(producer: tuple[int, int], sequence: int = 0) -> ProduceRequest:
    records = batch(
        b"v",
        timestamp_ms=time_ns() // 1_000_000,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1_000, topic_data=[topic])


def ended(producer: tuple[int, int]) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=True
    )


def code(answer: Any) -> int:
    found: int = answer.responses[0].partition_responses[0].error_code
    return found


async def stable_offset(client: Client) -> int:
    wanted = ListOffsetsRequest.Partition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[ListOffsetsRequest.Topic(name="t", partitions=[wanted])],
    )
    offset: int = (await client.ask(request, 7)).topics[0].partitions[0].offset
    return offset


def test_a_batch_and_its_addition_are_acknowledged_when_both_are_stored(tmp_path: Path) -> None:
    async def run() -> None:
        platform = SlowPlatform(tmp_path)
        async with serving(platform) as served:
            client = await served.connect()
            producer = await begin(client)
            gate = platform.slow_disk.gate
            gate.stall()
            answer = client.ask(produced(producer), 12)
            await gate.is_waited_for(answer)
            await served.settle()
            assert not answer.done()
            gate.let_pass()
            assert code(await answer) == 0

    asyncio.run(run())


def test_a_commit_is_told_when_its_decision_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        platform = SlowPlatform(tmp_path)
        async with serving(platform) as served:
            client = await served.connect()
            producer = await begin(client)
            assert code(await client.ask(produced(producer), 12)) == 0
            gate = platform.slow_disk.gate
            gate.stall()
            answer = client.ask(ended(producer), 5)
            await gate.is_waited_for(answer)
            await served.settle()
            assert not answer.done()
            assert await stable_offset(await served.connect()) == 0
            gate.let_pass()
            assert (await answer).error_code == 0
            async with asyncio.timeout(PATIENCE_S):
                while await stable_offset(client) < 2:
                    pass

    asyncio.run(run())


def test_a_commit_whose_decision_could_not_be_stored_is_not_told_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_runtime, "_RETRY_LOAD_SECONDS", 0.01)

    async def run() -> None:
        platform = SlowPlatform(tmp_path)
        async with serving(platform) as served:
            client = await served.connect()
            producer = await begin(client)
            assert code(await client.ask(produced(producer), 12)) == 0
            disk = platform.slow_disk
            disk.gate.stall()
            answer = client.ask(ended(producer), 5)
            await disk.gate.is_waited_for(answer)
            disk.forget_unsynced()
            disk.gate.fail()
            assert (await answer).error_code != 0
            disk.gate.let_pass()
            async with asyncio.timeout(PATIENCE_S):
                while (again := await client.ask(ended(producer), 5)).error_code:
                    assert again.error_code in (
                        ErrorCode.NOT_COORDINATOR,
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    )
                    await asyncio.sleep(0.005)
                while await stable_offset(client) < 2:
                    pass

    asyncio.run(run())
