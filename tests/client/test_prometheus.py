"""Clients' metrics in Prometheus' own registry, read back by its own parser."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import weakref
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from shoal import Admin, AsyncAdmin, Consumer, Producer, TopicPartition
from shoal.client.metrics import ClientMetrics, MetricName
from shoal.client.prometheus import ClientCollector, family_name
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker

T0 = TopicPartition("t", 0)
FETCHES = "kafka_consumer_fetch_manager"


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


def scraped(registry):
    """Samples by name and labels, out of what Prometheus would get."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read_text(text)
        for sample in family.samples
    }


def value(samples, name, **labels):
    found = [
        v for (n, ls), v in samples.items() if n == name and labels.items() <= dict(ls).items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_a_scrape_tells_what_the_clients_tell(scripted):
    registry = CollectorRegistry()
    clients = ClientCollector(registry)
    settings = {"bootstrap_servers": scripted.servers}
    with (
        Producer(linger_ms=0, client_id='o"dd\\', **settings) as producer,
        Consumer(auto_offset_reset="earliest", **settings) as consumer,
        Admin(**settings) as admin,
    ):
        assert clients.add(producer, name="orders") == "orders"
        assert clients.add(consumer) == "consumer-1"
        clients.add(admin, name="a")
        producer.send("t", b"v", partition=0).result(10)
        consumer.assign([T0])
        take(consumer, RECORDS)
        samples = scraped(registry)
        text = generate_openmetrics(registry).decode()
    assert value(samples, "kafka_producer_record_send_total", client="orders") == 1
    assert value(samples, "kafka_producer_topic_record_send_total", topic="t") == 1
    assert value(samples, "kafka_producer_record_send_total", client_id='o"dd\\') == 1
    labels = {"client": "consumer-1", "topic": "t"}
    assert value(samples, f"{FETCHES}_records_consumed_total", client="consumer-1") == RECORDS
    assert value(samples, f"{FETCHES}_topic_records_consumed_total", **labels) == RECORDS
    assert value(samples, f"{FETCHES}_partition_records_lag", partition="0", **labels) == 0
    assert value(samples, "kafka_admin_connection_count", client="a") == 0
    kinds = {family.name: family.type for family in read_openmetrics(text)}
    assert kinds["kafka_producer_record_send"] == "counter"
    assert kinds["kafka_producer_record_send_rate"] == "gauge"
    assert all(re.fullmatch("kafka_[a-z0-9_]+", name) for name in kinds)


def test_clients_with_the_same_id_are_told_apart(scripted):
    registry = CollectorRegistry()
    clients = ClientCollector(registry)
    with (
        Admin(bootstrap_servers=scripted.servers) as one,
        Admin(bootstrap_servers=scripted.servers) as other,
    ):
        clients.add(one)
        clients.add(other)
        one.list_topics()
        samples = scraped(registry)
        with pytest.raises(ValueError, match="admin-1"):
            clients.add(one, name="admin-1")
    assert value(samples, "kafka_admin_request_total", client="admin-1") > 0
    assert value(samples, "kafka_admin_request_total", client="admin-2") == 0


def test_of_a_client_that_is_closed_or_removed_nothing_is_told(scripted):
    registry = CollectorRegistry()
    clients = ClientCollector(registry)
    admin = Admin(bootstrap_servers=scripted.servers)
    other = Admin(bootstrap_servers=scripted.servers)
    clients.add(admin, name="a")
    clients.add(other, name="o")
    admin.close()
    assert {dict(labels)["client"] for _, labels in scraped(registry)} == {"o"}
    clients.remove(other)
    clients.remove(other)
    assert scraped(registry) == {}
    with other:
        clients.add(other, name="a")  # the name is free again


def test_no_client_is_kept_alive(scripted):
    clients = ClientCollector(CollectorRegistry())
    admin = Admin(bootstrap_servers=scripted.servers)
    clients.add(admin)
    admin.close()
    gone = weakref.ref(admin)
    del admin
    gc.collect()
    assert gone() is None
    assert list(clients.collect()) == []


def test_awaitable_clients_and_others_with_metrics_can_be_added(scripted):
    class Query:
        is_closed = False

        def metrics(self):
            return ClientMetrics({MetricName("rows-total", "query-metrics"): 3.0})

    registry = CollectorRegistry()
    clients = ClientCollector(registry)
    query = Query()
    clients.add(query)

    async def main():
        async with AsyncAdmin(bootstrap_servers=scripted.servers) as admin:
            clients.add(admin)
            await admin.list_topics()
            return scraped(registry)

    samples = asyncio.run(main())
    assert value(samples, "kafka_admin_request_total", client="asyncadmin-2") > 0
    assert value(samples, "shoal_query_rows_total", client="query-1") == 3
    assert {name for name, _ in scraped(registry)} == {"shoal_query_rows_total"}
    query.is_closed = True
    assert scraped(registry) == {}
    number: Any = 3
    with pytest.raises(TypeError, match=r"int has no metrics\(\)"):
        clients.add(number)


def test_one_client_that_fails_does_not_hide_the_others(scripted, caplog):
    class Broken:
        def metrics(self):
            raise RuntimeError("no")

    registry = CollectorRegistry()
    clients = ClientCollector(registry)
    broken = Broken()
    clients.add(broken, name="broken")
    with Admin(bootstrap_servers=scripted.servers) as admin:
        clients.add(admin, name="a")
        assert value(scraped(registry), "kafka_admin_request_total", client="a") == 0
    assert "the metrics of broken cannot be had" in caplog.text


def test_partitions_can_be_left_out(scripted):
    registry = CollectorRegistry()
    clients = ClientCollector(registry, partitions=False)
    with Consumer(bootstrap_servers=scripted.servers, auto_offset_reset="earliest") as consumer:
        clients.add(consumer)
        consumer.assign([T0])
        take(consumer, RECORDS)
        samples = scraped(registry)
    assert not any("_partition_" in name for name, _ in samples)
    assert value(samples, f"{FETCHES}_records_lag_max") == 0


def test_names_do_not_meet():
    tags = (("client-id", "c"),)
    topic, partition = (*tags, ("topic", "t")), (*tags, ("topic", "t"), ("partition", "0"))
    group = "consumer-fetch-manager-metrics"
    assert family_name(MetricName("records-lag-max", group, tags)) == f"{FETCHES}_records_lag_max"
    assert (
        family_name(MetricName("records-lag-max", group, partition))
        == f"{FETCHES}_partition_records_lag_max"
    )
    assert (
        family_name(MetricName("fetch-size-avg", group, topic)) == f"{FETCHES}_topic_fetch_size_avg"
    )
    assert family_name(MetricName("fetch-total", group, tags)) == f"{FETCHES}_fetch"
    assert (
        family_name(MetricName("byte-total", "producer-topic-metrics", topic))
        == "kafka_producer_topic_byte"
    )


def test_without_the_extra_the_import_says_what_to_install():
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import shoal.client.consumer\n"
        "import shoal.client.prometheus"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Prometheus' client is not installed; run: pip install" in done.stderr
    assert "[prometheus]" in done.stderr
