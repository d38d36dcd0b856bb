"""What a broker does beside its requests: background work, file limits, what it saves when."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import threading
import time
from collections.abc import Iterator

import pytest

from shoal import Consumer, TopicPartition
from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.broker.process import raise_file_limit
from shoal.errors import ErrorCode
from shoal.log.jobs import Job
from shoal.testing.broker import Broker
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from tests.broker.asking import produce
from tests.broker.raw_client import RawClient, batch

EARLIEST = -2
LONG_POLL_S = 4


def delete_records(raw: RawClient, offset: int):
    wanted = DeleteRecordsRequest.Partition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.Topic(name="t", partitions=[wanted])
    return raw.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000)).topics[0].partitions[0]


def earliest(raw: RawClient) -> int:
    wanted = ListOffsetsRequest.Partition(partition_index=0, timestamp=EARLIEST)
    topic = ListOffsetsRequest.Topic(name="t", partitions=[wanted])
    answer = raw.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    return answer.topics[0].partitions[0].offset


def test_deleted_records_stay_deleted_after_a_crash(tmp_path):
    with Broker(data_dir=tmp_path, durability="group", topics=["t"]) as broker:
        with RawClient(broker.port) as raw:
            produce(raw, "t", batch(b"a", b"b", b"c"))
            assert delete_records(raw, 2).low_watermark == 2
        broker.restart(kill=True)
        with RawClient(broker.port) as raw:
            assert earliest(raw) == 2


def test_records_whose_deletion_cannot_be_stored_are_not_called_deleted(tmp_path):
    with Broker(data_dir=tmp_path, topics=["t"]) as broker, RawClient(broker.port) as raw:
        produce(raw, "t", batch(b"a", b"b", b"c"))
        # A directory where the new checkpoint would be written first.
        (tmp_path / "log-start-offset-checkpoint.tmp").mkdir()
        result = delete_records(raw, 2)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (tmp_path / "log-start-offset-checkpoint.tmp").rmdir()


def test_background_work_goes_on_after_it_failed(caplog):
    again = threading.Event()
    turns: list[int] = []

    def job() -> Job:
        turns.append(len(turns))
        if len(turns) == 1:
            raise RuntimeError("planted")
        again.set()
        yield None

    with Broker() as broker, caplog.at_level(logging.ERROR, "shoal.broker"):
        broker.on_loop(lambda live: live._every(0.0, job))
        assert again.wait(10)
        assert broker.counters()["errors"]["background work"] == 1
    assert "planted" in caplog.text


@pytest.fixture
def low_file_limit() -> Iterator[int]:
    """As most systems start a process: a soft limit far below the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= 1024:
        pytest.skip("the hard limit of open files is as low as the usual soft one")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_serves_may_open_as_many_files_as_it_can_get(low_file_limit, caplog):
    found = raise_file_limit(BrokerConfig(limits=BrokerLimits(connections=100)))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == found > 1024
    assert not caplog.records


def test_more_connections_than_files_are_said_to_be_too_many(low_file_limit, caplog):
    raise_file_limit(BrokerConfig(limits=BrokerLimits(connections=1 << 30)))
    assert "limits.connections is 1073741824" in caplog.text
    assert "ulimit -n" in caplog.text


def test_syncing_in_intervals_keeps_nothing_of_earlier_intervals():
    def timers() -> int:
        return sum(isinstance(one, asyncio.TimerHandle) for one in gc.get_objects())

    config = BrokerConfig()._replace(sync_interval_ms=1)
    with Broker(durability="interval", config=config) as broker:
        started = broker.on_loop(lambda _: timers())
        rounds = threading.Event()
        broker.on_loop(lambda live: live.loop.call_later(0.2, rounds.set))
        assert rounds.wait(10)
        assert broker.on_loop(lambda _: timers()) < started + 50


def test_a_stop_answers_who_waits_and_does_not_wait_for_who_asks_again():
    # Far less than a long poll: they ask again and again, in threads of their own.
    assert any(_seconds_of_a_stop() < LONG_POLL_S / 2 for _ in range(2))


def _seconds_of_a_stop():
    with Broker(topics=["t"]) as broker:
        servers, wait_ms = broker.bootstrap_servers, 1000 * LONG_POLL_S
        readers = [Consumer(bootstrap_servers=servers, fetch_max_wait_ms=wait_ms) for _ in range(3)]
        try:
            for reader in readers:
                reader.assign([TopicPartition("t", 0)])
                reader.poll(0.05)
            until = time.monotonic() + 10
            while broker.counters()["fetches_waiting"] < len(readers):
                assert time.monotonic() < until
            before = time.monotonic()
            broker.stop()
            took = time.monotonic() - before
        finally:
            for reader in readers:
                reader.close(0)
        broker.start()
        return took
