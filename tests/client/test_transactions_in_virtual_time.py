"""Transactions on a loop whose time is virtual: the parts a simulated producer is made of.

Nothing of a transaction knows threads or reads a clock of its own, so timeouts of a minute cost
nothing here, and every order of answers can be had.
"""

from __future__ import annotations

import asyncio

import pytest

from shoal.client.accumulator import Accumulator
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import ProducerConfig
from shoal.client.producer_transaction import ProducerState, ProducerTransaction
from shoal.client.sender import Sender
from shoal.client.transaction_reactions import TransactionReaction
from shoal.client.transactions import Transactions
from shoal.errors import (
    ErrorCode,
    ProducerFencedError,
    RequestTimeoutError,
    TransactionAbortableError,
)
from shoal.types import TopicPartition
from tests.client.scripted_transactions import ScriptedCoordinator
from tests.client.virtual import opener, run

T0 = TopicPartition("t", 0)
LONG_S = 1_000.0


class VirtualProducer:
    """The parts of a producer, without its face and its thread."""

    def __init__(self, broker, late):
        config = ProducerConfig(
            bootstrap_servers=broker.servers, transactional_id="billing-1", linger_ms=0
        )
        self.core = ProducerTransaction()
        links = Links(config, None, opener(broker, lambda api: late.get(api, 0.01)))
        self.cluster = Cluster(config, links)
        loop = asyncio.get_running_loop()
        self.accumulator = Accumulator(config, lambda: self.sender.wake(), loop.time)
        self.sender = Sender(self.cluster, config, self.accumulator, lambda _: None, self.core)
        parts = (self.cluster, config, self.accumulator, self.sender)
        self.transactions = Transactions(*parts, self.core)
        self._running = loop.create_task(self.sender.run())

    async def start(self):
        await self.cluster.refresh(["t"])
        await self.transactions.init()

    def send(self):
        future, _ = self.accumulator.append(T0, None, b"x", (), 0)
        return future

    async def close(self):
        self._running.cancel()
        await self.sender.close()
        await self.cluster.close()


def in_virtual_time(level, late, life):
    with ScriptedCoordinator(level) as broker:

        async def live():
            producer = VirtualProducer(broker, late)
            await producer.start()
            try:
                await life(producer)
            finally:
                await producer.close()

        run(live())
        return broker


@pytest.mark.parametrize("level", [1, 2])
def test_a_whole_life_takes_no_time(level):
    async def life(producer):
        for outcome in (producer.transactions.commit, producer.transactions.abort):
            await producer.transactions.begin()
            producer.send()
            await producer.sender.drain()
            await outcome()

    broker = in_virtual_time(level, {}, life)
    assert [told for told in broker.told if told in ("commit", "abort")] == ["commit", "abort"]


@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_waits_for_max_block_ms_and_no_longer(level):
    late = {}

    async def life(producer):
        await producer.transactions.begin()
        producer.send()
        await producer.sender.drain()
        late["EndTxn"] = LONG_S
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestTimeoutError, match="within 60 s"):
            await producer.transactions.commit()
        assert 59 < loop.time() - began < 61
        states = [producer.core.state]
        late.clear()
        await producer.transactions.commit()
        assert [*states, producer.core.state] == [ProducerState.COMMITTING, ProducerState.READY]

    in_virtual_time(level, late, life)


def test_partitions_that_cannot_be_added_do_not_keep_a_commit_for_ever():
    async def life(producer):
        await producer.transactions.begin()
        producer.send()
        with pytest.raises((RequestTimeoutError, TransactionAbortableError)):
            await producer.transactions.commit()
        assert producer.core.state in (ProducerState.COMMITTING, ProducerState.ABORTABLE_ERROR)

    in_virtual_time(1, {"AddPartitionsToTxn": LONG_S}, life)


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_before_that_does_not_end_is_asked_after_ever_more_seldom(level):
    with ScriptedCoordinator(level) as broker:

        async def live():
            producer = VirtualProducer(broker, {})
            await producer.start()
            await producer.transactions.begin()
            producer.send()
            await producer.sender.drain()
            broker.fail("EndTxn", ErrorCode.CONCURRENT_TRANSACTIONS, times=10_000)
            with pytest.raises(RequestTimeoutError):
                await producer.transactions.commit()
            await producer.close()

        run(live())
        assert 20 < broker.told.count("commit") < 200, "a minute of it"


def test_who_is_fenced_while_its_batches_drain_is_told_so_by_the_abort():
    async def life(producer):
        await producer.transactions.begin()
        producer.send()
        await asyncio.sleep(0.05)  # it is on its way, and what becomes of it is waited for

        async def fence_soon():
            await asyncio.sleep(0.001)
            producer.core.failed(TransactionReaction.FENCED, "fenced", ErrorCode.PRODUCER_FENCED)

        fencing = asyncio.get_running_loop().create_task(fence_soon())
        with pytest.raises(ProducerFencedError):
            await producer.transactions.abort()
        await fencing

    in_virtual_time(2, {"Produce": 1.0}, life)


def test_a_producer_whose_connection_is_gone_begins_in_the_flow_it_knows():
    async def life(producer):
        for link in producer.cluster._links:
            link.disconnect()
        await producer.transactions.begin()
        assert producer.core.is_v2

    in_virtual_time(2, {}, life)
