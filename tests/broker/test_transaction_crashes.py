"""A power cut at any moment of a transaction: all of it is there afterwards, or nothing of it.

A real broker runs transactions on a disk in memory. After every change of the disk, what a power
cut could leave is given to a new broker: between data, Ongoing, Prepare, each marker and Complete,
and in the middle of their bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from time import time_ns
from typing import Any
from uuid import uuid4

import pytest

from shoal.broker.audit import Audit
from shoal.broker.broker import Broker
from shoal.broker.config import BrokerConfig, Listener
from shoal.broker.journal import FILE_NAME, Journal
from shoal.errors import ErrorCode
from shoal.testing.disk import RecordingDisk, SimDisk, crash_images
from shoal.types import TopicPartition
from shoal.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.raw_client import batch
from tests.broker.slow_disk import Client, Serving
from tests.broker.transactional import NEW, OLD, visible

NAME, GROUP = "crashing", "readers"
PARTITIONS = (0, 1)
_IMAGES_PER_CHANGE = 6


class _Here(Executor):
    """Does the work at once, in the thread that asks."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given, **named))
        return done


class _MemoryPlatform:
    """A disk in memory and a journal in a directory of its own."""

    loaders = 0

    def __init__(self, disk: SimDisk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / FILE_NAME

    def disk(self) -> SimDisk:
        return self._disk

    def journal(self) -> Journal:
        return Journal(self._path)

    def has_journal(self) -> bool:
        return self._path.exists()

    def audit(self) -> Audit:
        return Audit(None)

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def new_id(self) -> str:
        return str(uuid4())

    def sync_workers(self) -> Executor:
        return _Here()


CONFIG = BrokerConfig(data_dir="in-memory", durability="group", listeners=(Listener(port=0),))


class _Life:
    """What a client did and was told, moment by moment."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.moments: dict[str, tuple[dict[str, bytes], tuple[str, ...]]] = {}

    def watch(self, disk: RecordingDisk) -> None:
        told = tuple(self.told)
        for number, image in enumerate(crash_images(disk, step=64)):
            if number >= _IMAGES_PER_CHANGE:
                break
            digest = hashlib.sha256(repr(sorted(image.items())).encode()).hexdigest()
            # The same bytes at a later moment have more told of them.
            self.moments[digest] = image, told


async def _transactions(client: Client, life: _Life, flow: int) -> None:
    identity = await client.ask(
        InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 5
    )
    producer = [identity.producer_id, identity.producer_epoch]
    plan = (("first", True), ("second", False), ("third", True))
    for sequence, (name, commit) in enumerate(plan):
        who = {
            "transactional_id": NAME,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }
        if flow == OLD:
            topics = [AddPartitionsToTxnRequest.Topic(name="t", partitions=list(PARTITIONS))]
            await client.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=NAME,
                    v3_and_below_producer_id=producer[0],
                    v3_and_below_producer_epoch=producer[1],
                    v3_and_below_topics=topics,
                ),
                3,
            )
            await client.ask(AddOffsetsToTxnRequest(group_id=GROUP, **who), 4)
        data = [
            ProduceRequest.PartitionProduceData(
                index=index,
                records=batch(
                    name.encode(),
                    timestamp_ms=time_ns() // 1_000_000,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=sequence if flow == OLD else 0,
                    is_transactional=True,
                ),
            )
            for index in PARTITIONS
        ]
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
        produced = await client.ask(
            ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=1_000, topic_data=[topic]),
            12 if flow == NEW else 11,
        )
        assert [e.error_code for e in produced.responses[0].partition_responses] == [0, 0]
        position = TxnOffsetCommitRequest.Partition(
            partition_index=0, committed_offset=sequence + 1, committed_metadata=""
        )
        committed = await client.ask(
            TxnOffsetCommitRequest(
                group_id=GROUP,
                topics=[TxnOffsetCommitRequest.Topic(name="t", partitions=[position])],
                **who,
            ),
            5 if flow == NEW else 4,
        )
        assert committed.topics[0].partitions[0].error_code == 0
        ended = await client.ask(EndTxnRequest(committed=commit, **who), 5 if flow == NEW else 4)
        assert ended.error_code == 0
        life.told.append(name)
        if flow == NEW:
            producer = [ended.producer_id, ended.producer_epoch]
    # Until the last marker is there.
    await client.ask(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 5)


async def _live(directory: Path, flow: int) -> _Life:
    disk = RecordingDisk()
    broker = Broker(CONFIG, _MemoryPlatform(disk, directory))
    await broker.start()
    life = _Life()
    serving = Serving(broker)
    try:
        await broker.changes.create_topic("t", len(PARTITIONS), {})
        broker.changes.offsets_topic()
        broker.changes.transactions_topic()
        broker.journal.sync()
        disk.on_change = lambda: life.watch(disk)
        await _transactions(await serving.connect(), life, flow)
    finally:
        disk.on_change = None
        broker.abandon()
        await serving.disconnect()
    return life


def _values(broker: Broker, index: int) -> list[bytes | None]:
    """What a reader of committed records gets of a partition, whose every offset is stable."""
    topic = broker.catalogue.get("t")
    assert topic is not None
    partition = broker.partitions.find(topic, index)
    if partition is None:
        return []
    assert not isinstance(partition, ErrorCode)
    log = partition.log
    assert log.last_stable_offset == log.high_watermark, "a transaction hangs"
    found = log.read(log.start_offset, 1 << 20)
    aborted = set(log.aborted_transactions(log.start_offset, log.high_watermark))
    return visible(found.read_bytes(), aborted)


async def _after(image: dict[str, bytes], directory: Path) -> tuple[list[Any], int | None]:
    """What a new broker makes of it, when the time of every transaction is over."""
    broker = Broker(CONFIG, _MemoryPlatform(SimDisk.of(image), directory))
    broker.open(asyncio.get_running_loop())
    try:
        for _ in range(4):
            await broker.advance(61_000)
            for _ in range(20):
                await asyncio.sleep(0)
        read = [_values(broker, index) for index in PARTITIONS]
        for name, log in broker.directory.partitions.items():
            assert not log.open_transactions(), name
        runtime = broker.groups.runtime_of(GROUP)
        assert not isinstance(runtime, ErrorCode)
        offsets = runtime.machine.offsets
        assert not offsets.has_open_transaction(GROUP)
        position = offsets.get(GROUP, TopicPartition("t", 0))
        return read, None if position is None else position.offset
    finally:
        broker.abandon()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flow", [OLD, NEW], ids=["old", "new"])
def test_a_power_cut_leaves_whole_transactions(tmp_path: Path, flow: int) -> None:
    (tmp_path / "first").mkdir()
    life = asyncio.run(_live(tmp_path / "first", flow))
    assert life.told == ["first", "second", "third"]
    assert len(life.moments) > 100
    seen = set()
    for number, (image, told) in enumerate(life.moments.values()):
        directory = tmp_path / f"life-{number}"
        shutil.copytree(tmp_path / "first", directory)
        (first, second), position = asyncio.run(_after(image, directory))
        assert first == second, "torn between two partitions"
        assert b"second" not in first, "an aborted record is shown"
        assert first in ([], [b"first"], [b"first", b"third"])
        # The group's offset belongs to it.
        assert position == (None if not first else 1 if len(first) == 1 else 3)
        for name in told:
            assert name == "second" or name.encode() in first, "a commit that was told is lost"
        seen.add(tuple(first))
        shutil.rmtree(directory)
    assert len(seen) == 3
