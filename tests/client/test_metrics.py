"""``metrics()``: Kafka's names, and the numbers of what was done.

``java-metric-names.tsv`` holds the groups and names that Kafka 4.3's own clients print
(``ClientMetrics.java``); where Java is there they print them anew, on the same work as ours.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shoal import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    TopicPartition,
)
from shoal.client.accumulator import Accumulator
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig, ProducerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.client.metrics import MetricListing, MetricName
from shoal.client.sender import Sender
from shoal.client.tallies import GroupTally, PollTally
from shoal.errors import ErrorCode, RequestTimeoutError, ShoalError
from shoal.records.batch import encode_batch
from shoal.testing.broker import Broker
from tests.client.conftest import poll_until, take
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.client.test_inside import reader_of
from tests.client.virtual import opener, run
from tests.patience import PATIENCE_S
from tests.peers import need
from tests.peers.jars import java, kafka_jars

HERE = Path(__file__).parent
JAVA_NAMES = {
    tuple(line.split("\t")) for line in (HERE / "java-metric-names.tsv").read_text().splitlines()
}
T0 = TopicPartition("t", 0)
COUNT = 1000

FETCHES = """records-lag-max records-lead-min fetch-latency-avg fetch-latency-max fetch-rate
    fetch-total bytes-consumed-rate bytes-consumed-total records-consumed-rate
    records-consumed-total fetch-size-avg fetch-size-max records-per-request-avg
    fetch-throttle-time-avg fetch-throttle-time-max"""
GROUP = """rebalance-latency-avg rebalance-latency-max rebalance-latency-total rebalance-total
    rebalance-rate-per-hour failed-rebalance-total last-rebalance-seconds-ago heartbeat-rate
    heartbeat-total heartbeat-response-time-max last-heartbeat-seconds-ago commit-latency-avg
    commit-latency-max commit-rate commit-total assigned-partitions"""
POLLS = "poll-idle-ratio-avg time-between-poll-avg time-between-poll-max last-poll-seconds-ago"
SENDS = """record-send-rate record-send-total record-error-rate record-error-total
    record-retry-rate record-retry-total batch-size-avg batch-size-max records-per-request-avg
    record-queue-time-avg record-queue-time-max request-latency-avg request-latency-max
    buffer-available-bytes buffer-total-bytes bufferpool-wait-time-ns-total record-size-avg
    compression-rate-avg txn-init-time-ns-total txn-begin-time-ns-total
    txn-send-offsets-time-ns-total txn-commit-time-ns-total txn-abort-time-ns-total"""
NETWORK = """connection-count connection-creation-total incoming-byte-total outgoing-byte-total
    request-total failed-authentication-total"""


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


def names(metrics):
    return {(one.group, one.name) for one in metrics}


def expected(group, *lists):
    return {(group, name) for one in lists for name in one.split()}


# --- the work that is measured, and what Java says of it ---


def work(servers, topic, protocol):
    """What ClientMetrics.java does."""
    with Producer(
        bootstrap_servers=servers,
        transactional_id=f"ours-{topic}",
        linger_ms=5000,
        batch_size=1_000_000,
    ) as producer:
        producer.init_transactions()
        with producer.transaction():
            for _ in range(COUNT):
                producer.send(topic, bytes(100), partition=0)
            producer.flush()
        sent = producer.metrics()
    settings = {"group_id": f"ours-{topic}", "group_protocol": protocol}
    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=100,
        **settings,
    ) as consumer:
        consumer.subscribe([topic])
        count, until = 0, time.monotonic() + 4 * PATIENCE_S
        while count < COUNT:
            assert time.monotonic() < until, f"{count} of {COUNT} records came"
            count += len(consumer.poll(0.5))
        consumer.commit_sync()
        consumer.poll(0.1)
        read = consumer.metrics()
    with Admin(bootstrap_servers=servers) as admin:
        admin.describe_cluster()
        return {"producer": sent, "consumer": read, "admin": admin.metrics()}


def of_java(servers, topic, protocol):
    command = [java(), "-cp", f"{kafka_jars()}/*", str(HERE / "ClientMetrics.java")]
    arguments = [servers, topic, protocol, str(COUNT)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=True, timeout=240
    )
    found = {}
    for line in done.stdout.splitlines():
        kind, group, name, tags, value = line.split("\t")
        shown = tags.strip("{}").split(", ")
        kept = tuple(one for one in shown if one and not one.startswith("client-id="))
        found[kind, group, name, kept] = value
    return found


SAME = {
    "producer": """record-send-total record-error-total record-retry-total batch-split-total
        records-per-request-avg compression-rate-avg buffer-total-bytes buffer-available-bytes
        requests-in-flight waiting-threads buffer-exhausted-total""",
    "consumer": """records-consumed-total records-lag-max records-lead-min
        fetch-throttle-time-avg rebalance-total failed-rebalance-total
        commit-total assigned-partitions""",
}
ALIKE = {  # within a tenth: the same bytes in slightly other requests
    "producer": "batch-size-avg batch-size-max outgoing-byte-total",
    "consumer": "bytes-consumed-total incoming-byte-total fetch-size-avg",
}


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_clients_say_the_same_of_the_same_work(protocol):
    need(kafka_jars)
    with Broker(topics=["j.1", "o.1"]) as broker:
        theirs = of_java(broker.bootstrap_servers, "j.1", protocol)
        ours = work(broker.bootstrap_servers, "o.1", protocol)
    assert {(group, name) for _, group, name, _ in theirs} <= JAVA_NAMES
    for kind, metrics in ours.items():
        for wanted, tolerance in ((SAME, 0.001), (ALIKE, 0.1)):
            for name in wanted.get(kind, "").split():
                said = [
                    float(value)
                    for (who, _, what, tags), value in theirs.items()
                    if (who, what, tags) == (kind, name, ())
                ]
                assert len(said) == 1, name
                assert metrics.value(name) == pytest.approx(said[0], rel=tolerance, abs=1), name


# --- names ---


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_name_is_one_of_javas_and_those_people_look_at_are_there(protocol):
    with Broker(topics=["t"]) as broker:
        told = work(broker.bootstrap_servers, "t", protocol)
    for metrics in told.values():
        assert names(metrics) <= JAVA_NAMES
    consumer = expected("consumer-fetch-manager-metrics", FETCHES)
    consumer |= expected("consumer-coordinator-metrics", GROUP)
    consumer |= expected("consumer-metrics", POLLS, NETWORK)
    if protocol == "classic":
        joining = "join-time-avg join-time-max sync-time-avg sync-time-max join-total sync-total"
        consumer |= expected("consumer-coordinator-metrics", joining)
    assert consumer <= names(told["consumer"])
    assert expected("producer-metrics", SENDS, NETWORK) <= names(told["producer"])
    by_topic = "record-send-rate byte-rate byte-total compression-rate record-error-total"
    assert expected("producer-topic-metrics", by_topic) <= names(told["producer"])
    assert expected("admin-client-metrics", NETWORK) <= names(told["admin"])


def test_a_value_is_found_by_its_name_and_tags(scripted):
    with Consumer(
        bootstrap_servers=scripted.servers, auto_offset_reset="earliest", client_id="ann"
    ) as consumer:
        consumer.assign([T0])
        take(consumer, RECORDS)
        metrics = consumer.metrics()
    assert metrics.value("records-lag", topic="t", partition=0) == 0
    assert metrics.value("records-consumed-total", topic="t") == RECORDS
    assert metrics.value("records-consumed-total") == RECORDS
    fetches = "consumer-fetch-manager-metrics"
    assert metrics.value("records-lag-max", fetches) == 0
    tags = (("client-id", "ann"), ("topic", "t"), ("partition", "0"))
    name = MetricName("records-lag", fetches, tags)
    assert metrics[name] == 0
    assert (name.tag("topic"), name.tag("group")) == ("t", None)
    for missing in ({"topic": "u"}, {"topic": "t", "partition": 7}, {}):
        with pytest.raises(KeyError, match="records-lag'"):
            metrics.value("records-lag", **missing)
    with pytest.raises(KeyError):
        metrics.value("records-lag-max", "producer-metrics")


# --- consumers ---


def test_lag_and_lead_follow_what_was_read(servers, producer, new_topic):
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    for _ in range(10):
        producer.send(topic, b"v", partition=0)
    producer.flush()
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert math.isnan(consumer.metrics().value("records-lag-max"))
        take(consumer, 4)
        metrics = consumer.metrics()
        assert metrics.value("records-lag", topic=topic, partition=0) == 6
        assert metrics.value("records-lead", topic=topic, partition=0) == 4
        assert metrics.value("records-lag-max") == 6
        assert metrics.value("records-consumed-total", topic=topic) == 4
        take(consumer, 6)
        metrics = consumer.metrics()
        assert metrics.value("records-lag", topic=topic, partition=0) == 0
        assert metrics.value("records-lag-max") == 6
        assert metrics.value("records-lag-avg", topic=topic, partition=0) == 3
        assert metrics.value("records-lead-min") == 4
        assert metrics.value("records-lead-avg", topic=topic, partition=0) == 7
        assert metrics.value("records-per-request-avg", topic=topic) == 10
        consumer.assign([])
        given_up = consumer.metrics()
        with pytest.raises(KeyError):
            given_up.value("records-lag", topic=topic, partition=0)
        assert given_up.value("records-consumed-total", topic=topic) == 10


@pytest.mark.parametrize("how", ["poll", "iterate", "columns"])
def test_records_and_bytes_count_however_they_are_read(how):
    with Broker(topics={"t": 2}) as broker:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        with Producer(linger_ms=50, **settings) as producer:
            for number in range(30):
                producer.send("t", b"v", partition=number % 3 % 2)
            producer.flush()
            sent = producer.metrics().value("byte-total", topic="t")
        with Consumer(auto_offset_reset="earliest", **settings) as consumer:
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            if how == "iterate":
                for number, _ in enumerate(consumer, 1):
                    if number == 30:
                        break
            read = 0
            until = time.monotonic() + PATIENCE_S
            while how != "iterate" and read < 30 and time.monotonic() < until:
                rows = consumer.poll_arrow(1.0) if how == "columns" else None
                read += len(consumer.poll(1.0)) if rows is None else rows.num_rows
            consumer.poll(0.01)
            metrics = consumer.metrics()
    assert metrics.value("records-consumed-total") == 30
    assert metrics.value("records-consumed-total", topic="t") == 30
    assert metrics.value("bytes-consumed-total") == sent
    assert metrics.value("records-consumed-rate") == pytest.approx(1, rel=0.2)
    for partition, lead in ((0, 20), (1, 10)):
        assert metrics.value("records-lead", topic="t", partition=partition) == lead


def test_rows_of_a_compacted_log_count_as_rows_not_as_offsets():
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    records = [(None, b"v", (), 0)] * 3
    sparse = encode_batch(records, base_offset=0, offsets=[0, 4, 9])
    whole = encode_batch(records, base_offset=0)
    reader, positions, _ = reader_of((one, sparse), (other, whole))
    assert reader.take_arrow(100).num_rows == 6
    assert (positions[one].position, positions[one].tally.records) == (10, 3)
    assert (positions[other].position, positions[other].tally.records) == (3, 3)


def in_virtual_time(broker, life, **settings):
    """A consumer whose requests take half a second each, whatever the machine does."""

    async def live():
        config = ConsumerConfig(
            bootstrap_servers=broker.servers, auto_offset_reset="earliest", **settings
        )
        core = ConsumerCore(config, Links(config, None, opener(broker, 0.5)))
        try:
            return await life(core)
        finally:
            await core.close(5)

    return run(live())[0]


def test_latencies_are_those_of_the_requests(scripted):
    async def life(core):
        await core.assign([T0])
        while not core.reader.take(100):
            await core.prepare(1.0)
        await core.commit_sync(None, 5)
        await core.committed([T0], 5)
        return core.metrics()

    metrics = in_virtual_time(scripted, life, group_id="g", enable_auto_commit=False)
    assert metrics.value("fetch-latency-avg") == pytest.approx(500)
    assert metrics.value("fetch-latency-max") == pytest.approx(500)
    # One may be under way.
    assert 0 <= scripted.asked["Fetch"] - metrics.value("fetch-total") <= 1
    assert metrics.value("commit-latency-max") == pytest.approx(500)
    assert metrics.value("commit-total") == scripted.asked["OffsetCommit"] == 1
    assert metrics.value("commit-sync-time-ns-total") > 0
    assert metrics.value("committed-time-ns-total") > 0
    assert metrics.value("fetch-size-avg") == metrics.value("fetch-size-max") > 0


def test_a_request_that_goes_and_comes_back_is_counted_with_its_bytes(scripted):
    with Admin(bootstrap_servers=scripted.servers) as admin:
        admin.list_topics()
        metrics = admin.metrics()
    assert metrics.value("request-total") == sum(scripted.asked.values())
    assert metrics.value("response-total") == metrics.value("request-total")
    assert metrics.value("connection-count") == scripted.connections == 1
    assert metrics.value("connection-creation-total") == 1
    assert metrics.value("request-size-max") >= metrics.value("request-size-avg") > 10
    total = metrics.value("request-total") * metrics.value("request-size-avg")
    assert metrics.value("outgoing-byte-total") == total
    assert metrics.value("incoming-byte-total") > total
    after = admin.metrics()
    assert (after.value("connection-count"), after.value("connection-close-total")) == (0, 1)


def test_polls_are_timed_from_beginning_to_beginning():
    polls = PollTally()
    listing = MetricListing("c", 0.0)
    polls.tell(listing)
    assert listing.metrics.value("last-poll-seconds-ago") == -1
    assert math.isnan(listing.metrics.value("poll-idle-ratio-avg"))
    polls.polled(100.0, 101.0)  # the first: nothing came before it
    polls.polled(103.0, 104.0)  # three seconds since, one of four in the poll
    polls.polled(104.0, 104.0)
    listing = MetricListing("c", 106.5)
    polls.tell(listing)
    metrics = listing.metrics
    assert metrics.value("time-between-poll-avg") == pytest.approx(4000 / 3)
    assert metrics.value("time-between-poll-max") == 3000
    assert metrics.value("poll-idle-ratio-avg") == pytest.approx((1 + 0.25 + 0) / 3)
    assert metrics.value("last-poll-seconds-ago") == 2


def test_a_rebalance_lasts_from_its_first_join_to_the_assignment():
    tally = GroupTally()
    tally.rebalance_ends(1.0)  # of which nothing was heard
    tally.sends("JoinGroup", 10.0, is_join=True)
    tally.answered("JoinGroup", 5, is_error=True, now=10.5)
    tally.sends("JoinGroup", 11.0, is_join=True)
    tally.answered("JoinGroup", 20, is_error=False, now=11.5)
    tally.sends("SyncGroup", 11.5, is_join=False)
    tally.answered("SyncGroup", 30, is_error=False, now=12.0)
    tally.rebalance_ends(13.0)
    tally.rebalance_ends(14.0)
    tally.sends("Heartbeat", 15.0, is_join=False)
    tally.answered("Heartbeat", 7, is_error=True, now=15.5)
    tally.rebalance_begins(16.0)
    tally.rebalance_is_off()
    tally.rebalance_ends(17.0)
    listing = MetricListing("c", 20.0)
    tally.tell(listing, 3)
    metrics = listing.metrics
    assert metrics.value("rebalance-total") == metrics.value("failed-rebalance-total") == 1
    assert metrics.value("rebalance-latency-avg") == 3000
    assert metrics.value("rebalance-latency-total") == 3000
    assert metrics.value("rebalance-rate-per-hour") == pytest.approx(1, abs=0.01)
    assert metrics.value("last-rebalance-seconds-ago") == 7
    assert metrics.value("last-heartbeat-seconds-ago") == 5
    assert (metrics.value("join-total"), metrics.value("join-time-max")) == (1, 20)
    assert (metrics.value("sync-total"), metrics.value("sync-time-avg")) == (1, 30)
    assert metrics.value("heartbeat-response-time-max") == 7
    assert metrics.value("assigned-partitions") == 3


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_and_callbacks_are_counted(protocol):
    class Slow:
        def on_partitions_assigned(self, partitions):
            time.sleep(0.05)

        def on_partitions_revoked(self, partitions):
            time.sleep(0.05)

    with Broker(topics={"t": 4}) as broker:
        settings = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "g",
            "group_protocol": protocol,
        }
        if protocol == "classic":
            settings["heartbeat_interval_ms"] = 100
        with Consumer(**settings) as one:
            one.subscribe(["t"], Slow())
            assert one.metrics().value("last-rebalance-seconds-ago") == -1
            poll_until(one, lambda: len(one.assignment()) == 4)
            first = one.metrics()
            with Consumer(**settings) as other:
                other.subscribe(["t"])
                poll_until(one, lambda: other.poll(0.05) or len(one.assignment()) == 2)
                poll_until(one, lambda: other.poll(0.05) or len(other.assignment()) == 2)
                second = one.metrics()
                assert other.metrics().value("rebalance-total") >= 1
    assert first.value("rebalance-total") == 1
    assert first.value("assigned-partitions") == 4
    assert first.value("rebalance-latency-max") == first.value("rebalance-latency-avg") > 0
    assert first.value("rebalance-latency-total") == first.value("rebalance-latency-max")
    assert first.value("last-rebalance-seconds-ago") >= 0
    assert first.value("partition-assigned-latency-avg") >= 50
    assert math.isnan(first.value("partition-revoked-latency-avg"))
    assert second.value("assigned-partitions") == 2
    assert second.value("rebalance-total") > 1
    assert second.value("heartbeat-total") >= 1
    assert second.value("heartbeat-response-time-max") > 0
    assert second.value("last-heartbeat-seconds-ago") >= 0
    assert second.value("partition-revoked-latency-max") >= 50
    assert math.isnan(second.value("partition-lost-latency-max"))
    assert (("consumer-coordinator-metrics", "join-total") in names(second)) == (
        protocol == "classic"
    )


# --- producers ---


def test_batches_records_and_bytes_are_those_that_were_sent(servers, new_topic):
    topics = [new_topic(), new_topic()]
    with Producer(bootstrap_servers=servers, linger_ms=200) as producer:
        for number in range(30):
            producer.send(topics[number % 3 % 2], bytes(1000), partition=0)
        busy = producer.metrics()
        producer.flush()
        metrics = producer.metrics()
    assert busy.value("buffer-total-bytes") == 32 << 20
    assert busy.value("buffer-available-bytes") < (32 << 20) - 30_000
    assert metrics.value("buffer-available-bytes") == 32 << 20
    assert metrics.value("record-send-total") == 30
    assert metrics.value("record-send-total", topic=topics[0]) == 20
    assert metrics.value("record-send-total", topic=topics[1]) == 10
    sizes = [metrics.value("byte-total", topic=topic) for topic in topics]
    assert 20_000 < sizes[0] < 20_500
    assert 10_000 < sizes[1] < 10_300
    assert metrics.value("batch-size-max") <= sizes[0]
    assert 1000 < metrics.value("record-size-avg") < 1020
    assert metrics.value("compression-rate-avg") == 1
    assert metrics.value("records-per-request-avg") <= 30
    assert metrics.value("request-latency-max") >= metrics.value("request-latency-avg") > 0
    assert metrics.value("record-queue-time-max") >= metrics.value("record-queue-time-avg") > 0
    assert metrics.value("flush-time-ns-total") > 0
    assert metrics.value("metadata-wait-time-ns-total") > 0
    assert 0 <= metrics.value("metadata-age") < 60


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_the_compression_rate_is_what_is_left_of_the_bytes(scripted, codec):
    with Producer(
        bootstrap_servers=scripted.servers, linger_ms=50, compression_type=codec
    ) as producer:
        for _ in range(50):
            producer.send("t", bytes(1000), partition=0)
        producer.flush()
        metrics = producer.metrics()
    rate, size = metrics.value("compression-rate-avg"), metrics.value("batch-size-avg")
    assert rate == metrics.value("compression-rate", topic="t")
    unpacked = 50 * 1010 + 61
    assert rate == pytest.approx(size / unpacked, rel=0.02)
    assert rate < 0.1
    assert metrics.value("record-size-avg") == pytest.approx(1010, rel=0.02)


def test_retries_and_errors_count_records(scripted):
    scripted.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with Producer(bootstrap_servers=scripted.servers, linger_ms=50, retry_backoff_ms=1) as producer:
        for _ in range(3):
            producer.send("t", b"v", partition=0)
        producer.flush()
        once = producer.metrics()
        scripted.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refused = [producer.send("t", b"v", partition=0) for _ in range(2)]
        producer.flush()
        metrics = producer.metrics()
    assert all(one.exception() is not None for one in refused)
    assert (once.value("record-retry-total"), once.value("record-error-total")) == (3, 0)
    assert once.value("record-send-total") == 6, "each attempt is a send, as in Java"
    for tags in ({}, {"topic": "t"}):
        assert metrics.value("record-retry-total", **tags) == 3
        assert metrics.value("record-error-total", **tags) == 2
        assert metrics.value("record-error-rate", **tags) == pytest.approx(2 / 30, rel=0.3)


def test_a_batch_that_is_too_large_is_split_and_that_counts(scripted):
    scripted.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE)
    with Producer(bootstrap_servers=scripted.servers, linger_ms=50) as producer:
        for _ in range(4):
            producer.send("t", b"v", partition=0)
        producer.flush()
        metrics = producer.metrics()
    assert metrics.value("batch-split-total") == 1
    assert metrics.value("record-retry-total") == metrics.value("record-error-total") == 0


def test_who_waits_for_room_is_seen_and_counted():
    with Broker(topics=["t"]) as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            buffer_memory=2000,
            linger_ms=60_000,
            delivery_timeout_ms=120_000,
            max_block_ms=200,
        )
        producer.partitions_for("t")
        broker.stop()
        producer.send("t", bytes(3000), partition=0)
        seen = []
        waiter = threading.Thread(
            target=lambda: seen.append(_failure(lambda: producer.send("t", b"v", partition=0)))
        )
        waiter.start()
        until = time.monotonic() + PATIENCE_S
        while waiter.is_alive() and time.monotonic() < until:
            if producer.metrics().value("waiting-threads") == 1:
                break
        else:
            pytest.fail("nobody was seen waiting")
        waiter.join()
        metrics = producer.metrics()
        producer.close(0)
    assert isinstance(seen[0], RequestTimeoutError)
    assert metrics.value("waiting-threads") == 0
    assert metrics.value("buffer-exhausted-total") == 1
    assert metrics.value("buffer-available-bytes") == 0
    assert metrics.value("bufferpool-wait-time-ns-total") >= 190_000_000
    assert metrics.value("bufferpool-wait-ratio") == pytest.approx(0.2 / 30, rel=0.9)
    assert producer.metrics().value("record-error-total") == 0, "it was never sent"


def _failure(call):
    try:
        call()
    except ShoalError as error:
        return error
    return None


def test_transactions_are_timed(servers, new_topic):
    topic = new_topic()
    with Producer(bootstrap_servers=servers, transactional_id=f"m-{topic}") as producer:
        producer.init_transactions()
        begun = producer.metrics()
        with producer.transaction():
            producer.send(topic, b"v")
        producer.begin_transaction()
        producer.abort_transaction()
        metrics = producer.metrics()
    for call in ("txn-init", "txn-begin", "txn-commit", "txn-abort"):
        assert metrics.value(f"{call}-time-ns-total") > 0, call
    assert metrics.value("txn-send-offsets-time-ns-total") == 0
    assert begun.value("txn-commit-time-ns-total") == 0


def test_requests_of_a_producer_take_as_long_as_they_take(scripted):
    async def live():
        config = ProducerConfig(bootstrap_servers=scripted.servers, linger_ms=0)
        cluster = Cluster(config, Links(config, None, opener(scripted, 0.25)))
        loop = asyncio.get_running_loop()
        accumulator = Accumulator(config, lambda: sender.wake(), loop.time)
        sender = Sender(cluster, config, accumulator, lambda _: None)
        running = loop.create_task(sender.run())
        await cluster.refresh(["t"])
        accumulator.append(T0, None, b"x", (), 0)
        await sender.flush(10)
        listing = MetricListing("p", loop.time())
        sender._tally.tell(listing)
        cluster.tell_more(listing, "producer-metrics")
        running.cancel()
        await sender.close()
        await cluster.close()
        return listing.metrics

    metrics, _ = run(live())
    assert metrics.value("request-latency-avg") == pytest.approx(250)
    assert metrics.value("metadata-age") >= 0.25
    # For its id: one connection, one answer.
    assert metrics.value("record-queue-time-avg") >= 250


# --- all faces ---


def test_metrics_can_be_asked_for_from_any_thread_and_after_the_end(scripted):
    producer = Producer(bootstrap_servers=scripted.servers, linger_ms=0)
    stop, failures = threading.Event(), []

    def ask():
        while not stop.is_set():
            try:
                producer.metrics()
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        producer.send("t", b"v", partition=0).result(PATIENCE_S)
    stop.set()
    for thread in threads:
        thread.join()
    producer.close()
    assert not failures
    assert producer.metrics().value("record-send-total") == 50
    assert producer.metrics().value("connection-count") == 0


def test_awaitable_clients_tell_the_same():
    async def main(servers):
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            await producer.send("t", b"v", partition=0)
            await producer.flush()
            sent = producer.metrics()
        async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
            await one.assign([T0])
            while not await one.poll(1.0):
                pass
            read = one.metrics()
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.list_topics()
            return sent, read, admin.metrics()

    with Broker(topics=["t"]) as broker:
        sent, read, admin = asyncio.run(main(broker.bootstrap_servers))
    assert sent.value("record-send-total") == 1
    assert sent.value("flush-time-ns-total") > 0
    assert read.value("records-consumed-total") == 1
    assert read.value("last-poll-seconds-ago") >= 0
    assert admin.value("request-total") >= 2
    assert all(names(one) <= JAVA_NAMES for one in (sent, read, admin))


@pytest.mark.slow
def test_a_login_that_is_refused_is_counted_and_one_that_is_not():
    from shoal.broker.config import Listener

    listener = Listener(port=0, sasl=("SCRAM-SHA-256",))
    with Broker(listeners=(listener,), users={"ann": "s3cret"}) as broker:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "ann",
        }
        with Admin(sasl_password="s3cret", **settings) as admin:
            admin.list_topics()
            let_in = admin.metrics()
        with Admin(sasl_password="wrong", default_api_timeout_ms=2000, **settings) as admin:
            with pytest.raises(ShoalError):
                admin.list_topics()
            refused = admin.metrics()
    assert let_in.value("successful-authentication-total") == 1
    assert let_in.value("failed-authentication-total") == 0
    assert refused.value("failed-authentication-total") >= 1
    assert refused.value("successful-authentication-total") == 0
