"""A broker's data directory under transactional producers: killed, opened, read in every way."""

from __future__ import annotations

import random

import pytest

from shoal import Consumer, Producer, TopicPartition
from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.log import inspection
from shoal.log.directory import run_job
from shoal.log.inspection import Status
from shoal.log.offline_reader import OfflineReader
from shoal.records.chunks import Chunk
from shoal.records.objects import iter_records
from shoal.testing.broker import Broker

pytestmark = pytest.mark.slow

TP = TopicPartition("orders", 0)


def write(broker: Broker, chance: random.Random, count: int) -> list[bytes]:
    """Transactions of one producer, some aborted; the values of the others."""
    committed = []
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"writer-{chance.random()}"
    ) as producer:
        producer.init_transactions()
        for _ in range(count):
            values = [b"%d" % chance.randrange(10**9) * 9 for _ in range(chance.randrange(1, 4))]
            producer.begin_transaction()
            for value in values:
                producer.send("orders", value, key=b"k%d" % chance.randrange(5))
            producer.flush()  # what an abort finds unsent is never written
            if chance.random() < 0.5:
                producer.commit_transaction()
                committed += values
            else:
                producer.abort_transaction()
    return committed


def read(broker: Broker) -> list[bytes | None]:
    """What a consumer of committed records sees from the start to the end it is told."""
    found: list[bytes | None] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TP])
        consumer.seek_to_beginning(TP)
        end = consumer.end_offsets([TP])[TP]
        while consumer.position(TP) < end:
            found += [record.value for record in consumer.poll(1)]
    return found


def read_files(broker: Broker) -> list[bytes | None]:
    """The same from the files alone, beside the running broker."""
    broker.on_loop(lambda live: run_job(live.directory.checkpoint(live.now_ms())))
    reader = OfflineReader(str(broker.data_dir), committed_only=True)
    found: list[bytes | None] = []
    for data, start, end in reader.read(TP, 0, reader.latest([TP])[TP]):
        chunk = Chunk(*TP, data, start, end, reader.aborted(TP, start, end))
        found += [record.value for some in iter_records(chunk) for record in some]
    return found


@pytest.mark.parametrize("kill", [False, True])
def test_readers_see_what_was_committed_through_restarts_and_in_the_files(kill: bool) -> None:
    chance = random.Random(kill)
    small = BrokerConfig(limits=BrokerLimits(segment_bytes_min=14))
    with Broker(config=small) as broker:
        broker.create_topic("orders", 1, segment_bytes=4000)
        expected: list[bytes] = []
        for _ in range(3):
            expected += write(broker, chance, 12)
            assert read(broker) == expected
            assert read_files(broker) == expected
            broker.restart(kill=kill)
            assert read(broker) == expected
        verdicts = list(inspection.verify(inspection.look_at(str(broker.data_dir / "orders-0"))))
        assert all(verdict.status is Status.OK for verdict in verdicts), verdicts
        assert any(verdict.path.endswith(".txnindex") for verdict in verdicts)
