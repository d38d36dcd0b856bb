"""The broker's port for Prometheus: what it tells, whom, and that it agrees with what was done."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Admin, Consumer, Producer
from shoal.broker.config import BrokerConfig, MetricsSettings
from shoal.broker.flags import build_config
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.broker.asking import fetch_request, produce
from tests.broker.raw_client import RawClient, batch
from tests.broker.test_serve import command
from tests.conformance.client import until
from tests.metrics.scraping import Samples, page, scrape

JMX = BrokerConfig(metrics=MetricsSettings(jmx_names=True))


@pytest.fixture
def broker() -> Iterator[Broker]:
    topics = {"orders": 2, "quiet": 1}
    with Broker(topics=topics, metrics=True, config=JMX, durability="group") as running:
        yield running


def write(broker: Broker, count: int, size: int = 100) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send("orders", b"x" * size, partition=0)


def commit(broker: Broker, group: str, offset: int, topic: str = "orders") -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): offset})


def read_all(broker: Broker, group: str, protocol: str) -> None:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["orders"])
        until(lambda: len(consumer.poll(0.2)), "records")
        consumer.commit_sync()


def test_topics_and_groups_have_the_names_dashboards_know(broker: Broker) -> None:
    write(broker, 10)
    commit(broker, "billing", 4)
    commit(broker, 'x"} 1', 99)
    commit(broker, "none", 0, "quiet")
    found = scrape(broker.metrics_url)
    assert found["kafka_brokers"] == {(): 1}
    assert found["kafka_broker_info"] == {("1", broker.bootstrap_servers): 1}
    assert found["kafka_topic_partitions"] == {("orders",): 2, ("quiet",): 1}
    assert found["kafka_topic_partition_current_offset"]["orders", "0"] == 10
    assert found["kafka_topic_partition_current_offset"]["orders", "1"] == 0
    assert found["kafka_topic_partition_under_replicated_partition"]["quiet", "0"] == 0
    assert found["kafka_consumergroup_lag"]["billing", "orders", "0"] == 6
    assert found["kafka_consumergroup_lag_sum"]["billing", "orders"] == 6
    assert found["kafka_consumergroup_current_offset"]["billing", "orders", "0"] == 4
    assert found["shoal_group_lag"] == {("billing",): 6, ('x"} 1',): 0, ("none",): 0}
    assert found["shoal_group_info"]["billing", "Empty", "classic"] == 1
    assert found["shoal_groups"] == {("classic", "Empty"): 3}
    assert "shoal_metrics_dropped" not in found


def test_lag_is_counted_from_where_the_log_begins_and_not_for_deleted_topics(
    broker: Broker,
) -> None:
    write(broker, 10)
    commit(broker, "billing", 2)
    commit(broker, "gone", 0, "quiet")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("orders", 0): 7})
        assert scrape(broker.metrics_url)["shoal_group_lag"]["billing",] == 3
        admin.delete_topics("quiet")
    found = scrape(broker.metrics_url)
    assert ("gone", "quiet") not in found["kafka_consumergroup_lag_sum"]
    assert ("quiet",) not in found["kafka_topic_partitions"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_are_told_by_cause_and_with_their_time(broker: Broker, protocol: str) -> None:
    write(broker, 3)
    read_all(broker, "g", protocol)
    found = scrape(broker.metrics_url)
    assert found["shoal_group_rebalances_total"] == {("g", "joined"): 1, ("g", "left"): 1}
    assert found["shoal_group_rebalance_seconds_count"]["joined",] == 1
    assert found["shoal_group_info"] == {("g", "Empty", protocol): 1}
    assert found["shoal_group_generation"]["g",] >= 2
    assert found["kafka_consumergroup_current_offset_sum"]["g", "orders"] == 3


def test_requests_are_counted_and_timed_by_api(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        for _ in range(5):
            assert produce(client, "orders", batch(b"x" * 50)).error_code == 0
    found = scrape(broker.metrics_url)
    assert found["shoal_requests_total"]["Produce",] == 5
    assert found["shoal_request_seconds_count"]["Produce",] == 5
    seconds = found["shoal_request_seconds_sum"]["Produce",]
    slowest = found["shoal_request_slowest_seconds"]["Produce",]
    assert 0 < seconds / 5 <= slowest + 1e-6
    assert slowest <= seconds + 1e-6
    # All of them waited for the disk, and a reply is what ends the wait.
    assert found["shoal_durable_ack_seconds_count"] == {(): 5}
    assert found["shoal_durable_ack_seconds_sum"][()] == pytest.approx(seconds)
    assert found["shoal_connections_accepted_total"] == {(): 1}
    assert found["shoal_appended_batches_total"] == {(): 5}


def test_what_waits_for_no_disk_is_no_durable_ack() -> None:
    with Broker(topics=["orders"], metrics=True) as broker:
        with RawClient(broker.port) as client:
            for _ in range(5):
                produce(client, "orders", batch(b"x"))
        found = scrape(broker.metrics_url)
        assert found["shoal_request_seconds_count"]["Produce",] == 5
        assert found["shoal_durable_ack_seconds_count"] == {(): 0}
        assert "kafka_server_brokertopicmetrics_messagesin_total" not in found, "not asked for"


def test_kafkas_own_names_on_demand(broker: Broker) -> None:
    write(broker, 10)
    read_all(broker, "g", "classic")
    with RawClient(broker.port) as client:
        assert produce(client, "orders", b"not a batch").error_code != 0
    found = scrape(broker.metrics_url)

    def of(name: str) -> dict[tuple[str, ...], float]:
        return found[f"kafka_server_brokertopicmetrics_{name}_total"]

    assert of("messagesin") == {("",): 10, ("orders",): 10, ("quiet",): 0}
    assert of("bytesin")["orders",] == found["shoal_topic_bytes"]["orders",]
    assert of("bytesout")["orders",] == of("bytesin")["orders",], "it was read once"
    assert of("failedproducerequests")[("",)] == 1
    assert of("totalproducerequests")[("",)] >= 2
    assert found["kafka_server_replicamanager_partitioncount"] == {(): 3}
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == {(): 1}
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == {(): 1}
    requests = found["kafka_network_requestmetrics_requests_total"]
    assert requests["Produce",] == found["shoal_requests_total"]["Produce",]


def test_a_fetch_that_waited_for_data_counts_once(broker: Broker) -> None:
    with RawClient(broker.port) as client, RawClient(broker.port) as writer:
        request = fetch_request("orders", 0, min_bytes=200, max_wait_ms=20_000)
        data = batch(b"x" * 60)
        produce(writer, "orders", data)
        client.send(request, 12)
        until(lambda: broker.counters()["fetches_waiting"] == 1, "the wait")
        produce(writer, "orders", data)
        produce(writer, "orders", data)
        found = client.receive(1, 12).responses[0].partitions[0]
        size = len(found.records)
    counts = scrape(broker.metrics_url)
    assert counts["kafka_server_brokertopicmetrics_bytesout_total"]["orders",] == size
    assert counts["kafka_server_brokertopicmetrics_totalfetchrequests_total"]["orders",] == 1


def test_open_transactions_are_counted(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x")
        producer.flush()
        found = scrape(broker.metrics_url)
        assert found["shoal_transactions_open"] == {(): 1}
        assert found["shoal_transactional_ids"] == {("Ongoing",): 1}
        producer.commit_transaction()
    until(lambda: scrape(broker.metrics_url)["shoal_transactions_open"] == {(): 0}, "its end")


def test_too_many_series_are_given_up_from_the_finest() -> None:
    config = BrokerConfig(metrics=MetricsSettings(series_max=150))
    with Broker(topics={"orders": 100}, metrics=True, config=config) as broker:
        found = scrape(broker.metrics_url)
        dropped = found.pop("shoal_metrics_dropped")
        assert dropped["kafka_topic_partition_current_offset",] == 100
        assert found["kafka_topic_partitions"] == {("orders",): 100}
        assert sum(map(len, found.values())) <= 150


def test_scrapes_at_the_same_time_share_one_look(broker: Broker) -> None:
    live = broker.live
    assert live.metrics is not None
    port = live.metrics

    async def both() -> list[list[bytes]]:
        return list(await asyncio.gather(port.scrape(False), port.scrape(False)))

    future = asyncio.run_coroutine_threadsafe(both(), live.loop)
    first, second = future.result(30)
    assert first is second


def test_health_and_readiness(broker: Broker) -> None:
    base = broker.metrics_url.removesuffix("/metrics")
    assert page(f"{base}/healthz") == "ok\n"
    assert page(f"{base}/readyz") == "ready\n"
    broker.live._is_listening = False
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        page(f"{base}/readyz")
    assert refused.value.read() == b"the broker is starting\n"
    refused.value.close()


def test_the_port_goes_with_the_broker(broker: Broker) -> None:
    for end in (broker.stop, broker.kill):
        url = broker.metrics_url
        assert page(url)
        end()
        with pytest.raises(OSError, match=r"refused|reset"):
            page(url)
        broker.start()


def test_a_port_that_is_taken_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Broker(metrics=True) as first:
        address = first.metrics_url.split("/")[2]
        config = BrokerConfig(
            data_dir=str(tmp_path / "data"), metrics=MetricsSettings(address=address)
        )
        second = Broker(config=config, data_dir=tmp_path / "data")
        with pytest.raises(ConfigError, match=f"metrics cannot listen on {address}"):
            second.start()
    with Broker(data_dir=tmp_path / "data"):
        pass  # the directory is not locked any more


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metrics": "0.0.0.0:9308"}, "metrics on 0.0.0.0 could be read by anybody"),
        ({"metrics": "x"}, "'x' is not an address"),
        ({"metrics": "99999"}, "the port must be between"),
        ({"metrics_token_file": "t"}, "--metrics-token-file needs --metrics"),
        ({"metrics_jmx_names": True}, "--metrics-jmx-names needs --metrics"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_the_start(
    options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build_config(**options)


def test_a_port_alone_is_of_this_machine() -> None:
    config = build_config(metrics="9400", metrics_jmx_names=True)
    assert config.metrics == MetricsSettings("9400", jmx_names=True)
    with_token = build_config(metrics="0.0.0.0:1", metrics_token_file="t").metrics
    assert with_token == MetricsSettings("0.0.0.0:1", "t")


@pytest.mark.slow
def test_serve_shows_metrics_to_who_has_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    flags = ("--metrics", "0", "--metrics-token-file", str(token), "--json")
    process = subprocess.Popen(
        command(tmp_path / "data", *flags), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())["metrics"]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            page(f"http://{where}/metrics")
        refused.value.close()
        assert "kafka_brokers 1\n" in page(f"http://{where}/metrics", Authorization="Bearer secret")
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_every_name_is_shown_even_by_a_broker_that_has_done_nothing(broker: Broker) -> None:
    found: Samples = scrape(broker.metrics_url)
    for name in ("shoal_durable_ack_seconds_count", "shoal_loop_lag_seconds_count"):
        assert name in found
    assert found["shoal_memory_bytes"].keys() == {
        ("requests",),
        ("frames",),
        ("built",),
        ("replies",),
        ("fetch_sessions",),
    }
    assert found["process_resident_memory_bytes"][()] > 1 << 20
