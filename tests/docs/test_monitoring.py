"""The dashboard and the alerts: current, understood by Prometheus' own programs, about metrics that
a running broker and a running exporter have, and every alert can fire.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from docs.generate_monitoring import ALERTS, RULES, dashboard, pages, rules

from shoal import Admin, Consumer, Producer
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.broker.asking import produce
from tests.broker.raw_client import RawClient
from tests.conformance.client import until
from tests.fleet.test_exporter import DASHBOARD_7589, run_exporter
from tests.metrics.scraping import page, scrape
from tests.peers import need
from tests.peers.cache import program
from tests.peers.prometheus import Prometheus, prometheus

NAME = re.compile(r"\b(?:kafka|shoal|process)_[a-z0-9_]+\b")
QUERIES = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
EXPRESSIONS = [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]
RECORDS = 30


def promtool() -> str:
    return program("promtool", "Debian: apt-get install prometheus")


def test_what_is_generated_is_current() -> None:
    for path, text in pages().items():
        assert path.read_text() == text, "run: python -m docs.generate_monitoring"


def test_the_dashboard_is_whole() -> None:
    found = json.loads(json.dumps(dashboard()))
    numbers = [panel["id"] for panel in found["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found["panels"]]
    assert len(set(places)) == len(places), "no two in one place"
    assert {one["name"] for one in found["templating"]["list"]} == {"datasource", "job", "group"}
    for panel in found["panels"]:
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]


def test_every_alert_has_a_reason_and_a_name_of_its_own() -> None:
    alerts = [alert for group in ALERTS.values() for alert in group]
    assert len({alert.name for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert len(alert.reason) > 40, alert.name
        assert alert.severity in ("info", "warning", "critical")


class Firing(NamedTuple):
    """Series, as promtool writes them, and the minute by which the alert fires."""

    series: dict[str, str]
    minute: int
    labels: dict[str, str]


_HERE = 'job="j",instance="i"'
_OF_GROUP = f'{_HERE},consumergroup="g"'
_I = {"job": "j", "instance": "i"}
_G = {**_I, "consumergroup": "g"}

# One of each alert, with as little as makes it fire.
FIRING: dict[str, Firing] = {
    "GroupIsBehind": Firing(
        {
            f"shoal_group_lag_seconds{{{_OF_GROUP}}}": "400x20",
            f"kafka_consumergroup_members{{{_OF_GROUP}}}": "1x20",
        },
        10,
        _G,
    ),
    "GroupIsFallingBehind": Firing(
        {
            f"shoal_group_lag_seconds{{{_OF_GROUP}}}": "0+45x60",
            f"kafka_consumergroup_members{{{_OF_GROUP}}}": "1x60",
        },
        40,
        _G,
    ),
    "GroupLostItsMembers": Firing(
        {
            f"kafka_consumergroup_members{{{_OF_GROUP}}}": "2x5 0x30",
            f"shoal_group_lag{{{_OF_GROUP}}}": "9x40",
        },
        20,
        _G,
    ),
    "MembersKeepExpiring": Firing(
        # Not there before the first time: `increase` would see one of these three.
        {f'shoal_group_rebalances_total{{{_OF_GROUP},cause="expired"}}': "_x3 2 3x16"},
        15,
        {**_G, "cause": "expired"},
    ),
    "GroupKeepsRebalancing": Firing(
        {
            f'shoal_group_rebalances_total{{{_OF_GROUP},cause="joined"}}': "0+1x20",
            f'shoal_group_rebalances_total{{{_OF_GROUP},cause="left"}}': "0+1x20",
        },
        15,
        _G,
    ),
    "BrokerIsGone": Firing({f"shoal_broker_info{{{_HERE}}}": "1x10 stale"}, 14, _I),
    "PartitionsAreOffline": Firing({f"shoal_partitions_offline{{{_HERE}}}": "0 2x5"}, 3, _I),
    "RecordsCannotBeStored": Firing(
        # The first one, which `increase` would not see.
        {f'shoal_errors_total{{{_HERE},error="KAFKA_STORAGE_ERROR"}}': "_x5 1x5"},
        6,
        {**_I, "error": "KAFKA_STORAGE_ERROR"},
    ),
    "DiskIsFillingUp": Firing(
        {
            f"shoal_disk_free_bytes{{{_HERE}}}": "5x60",
            f"shoal_disk_bytes{{{_HERE}}}": "100x60",
        },
        45,
        _I,
    ),
    "AcknowledgementsAreSlow": Firing(
        {
            f'shoal_durable_ack_seconds_bucket{{{_HERE},le="0.5"}}': "0x30",
            f'shoal_durable_ack_seconds_bucket{{{_HERE},le="1.0"}}': "0+60x30",
            f'shoal_durable_ack_seconds_bucket{{{_HERE},le="+Inf"}}': "0+60x30",
        },
        20,
        _I,
    ),
    "LoopIsSlow": Firing(
        {
            f'shoal_loop_lag_seconds_bucket{{{_HERE},le="0.1"}}': "0x30",
            f'shoal_loop_lag_seconds_bucket{{{_HERE},le="0.25"}}': "0+60x30",
            f'shoal_loop_lag_seconds_bucket{{{_HERE},le="+Inf"}}': "0+60x30",
        },
        20,
        _I,
    ),
    "MemoryBudgetIsUsedUp": Firing(
        {
            f'shoal_memory_bytes{{{_HERE},use="replies"}}': "50x20",
            f'shoal_memory_bytes{{{_HERE},use="frames"}}': "40x20",
            f"shoal_memory_limit_bytes{{{_HERE}}}": "100x20",
        },
        10,
        _I,
    ),
    "FilesRunOut": Firing(
        {f"process_open_fds{{{_HERE}}}": "90x20", f"process_max_fds{{{_HERE}}}": "100x20"}, 15, _I
    ),
    "KafkaIsNotSeen": Firing({"up": "1x20"}, 10, {}),
    "ExporterLooksFail": Firing(
        {f"shoal_exporter_sweep_failures_total{{{_HERE}}}": "0+1x20"}, 15, _I
    ),
    "MetricsAreLeftOut": Firing({f'shoal_metrics_dropped{{{_HERE},name="x"}}': "100x30"}, 25, _I),
}


@pytest.mark.peer
def test_every_alert_fires_when_it_should_and_prometheus_understands_it(tmp_path: Path) -> None:
    need(promtool)
    checked = subprocess.run(
        [promtool(), "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    alerts = {alert.name: alert for group in ALERTS.values() for alert in group}
    assert FIRING.keys() == alerts.keys()
    cases = []
    for name, firing in FIRING.items():
        series = [{"series": key, "values": values} for key, values in firing.series.items()]
        silent = [{"eval_time": "0m", "alertname": name, "exp_alerts": []}]
        labels = {**firing.labels, "severity": alerts[name].severity}
        expected = {
            "eval_time": f"{firing.minute}m",
            "alertname": name,
            "exp_alerts": [{"exp_labels": labels}],
        }
        cases.append(
            {"interval": "1m", "input_series": series, "alert_rule_test": [*silent, expected]}
        )
    # What is said of an alert is compared, too, if it is not left out of the rules.
    bare = rules()
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(bare))
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(document))
    tested = subprocess.run(
        [promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


# --- against what runs --------------------------------------------------------------------------


def names(text: str) -> set[str]:
    """Every name a scrape can have samples of, also of what has not happened yet."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE):
        if kind == "histogram":
            found |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
        else:
            found.add(name)
    return found


@contextmanager
def busy_broker() -> Iterator[Broker]:
    """One that something of everything has happened to."""
    with Broker(metrics=True, topics={"orders": 2}, durability="group") as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(RECORDS):
                producer.send("orders", b"x", partition=0)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_group_offsets("idle", {TopicPartition("orders", 0): 10})
            admin.alter_configs({"metrics": "*", "interval.ms": "200"}, client_metrics="all")
        with RawClient(broker.port) as client:
            assert produce(client, "orders", b"no batch").error_code != 0
        with RawClient(broker.port) as client:
            client.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.is_cut()
        yield broker


@contextmanager
def pushing_clients(broker: Broker) -> Iterator[None]:
    """A producer and a consumer of librdkafka that push until the block ends."""
    from confluent_kafka import Consumer as Reader
    from confluent_kafka import Producer as Writer

    settings = {"bootstrap.servers": broker.bootstrap_servers}
    writer = Writer({**settings, "client.id": "writer"})
    reader = Reader({**settings, "client.id": "reader", "group.id": "readers"})
    reader.subscribe(["orders"])
    try:

        def has_pushed() -> bool:
            writer.produce("orders", b"x", partition=1)
            writer.poll(0)
            reader.poll(0.1)
            found = scrape(broker.metrics_url)
            return all(
                name in found
                for name in NAME.findall(" ".join(QUERIES))
                if name.startswith("kafka_client_")
            )

        until(has_pushed, "what clients push", 60)
        yield
    finally:
        reader.close()
        writer.flush(10)


@pytest.mark.peer
@pytest.mark.slow
def test_every_metric_of_dashboard_and_alerts_is_shown_by_something_that_runs() -> None:
    wanted = set(NAME.findall(" ".join([*QUERIES, *EXPRESSIONS])))
    assert len(wanted) > 30
    with busy_broker() as broker, pushing_clients(broker):
        process, where = run_exporter("-b", broker.bootstrap_servers, "--every", "1")
        try:
            until(
                lambda: "kafka_brokers" in names(page(f"http://{where}/metrics")), "the first sweep"
            )
            of_exporter = names(page(f"http://{where}/metrics"))
        finally:
            process.terminate()
            process.communicate(timeout=30)
        of_broker = names(page(broker.metrics_url))
    assert wanted - of_broker == {"shoal_exporter_sweep_failures_total"}
    assert wanted - of_broker <= of_exporter
    groups = {name for name in wanted if name.startswith(("kafka_con", "kafka_top", "shoal_group"))}
    assert groups <= of_exporter, "the row about groups works for any cluster"


@pytest.mark.peer
@pytest.mark.slow
def test_a_real_prometheus_scrapes_broker_and_exporter_and_they_agree(tmp_path: Path) -> None:
    need(prometheus)
    with busy_broker() as broker, pushing_clients(broker):
        process, where = run_exporter("-b", broker.bootstrap_servers, "--every", "1")
        targets = {"shoal": broker.metrics_url.split("/")[2], "exporter": where}
        try:
            with Prometheus(tmp_path, targets, [RULES]) as server:
                _compare(server, broker)
                for query in (*QUERIES, *DASHBOARD_7589):
                    shown = query.replace("$job", ".*").replace("$group", ".*")
                    assert server.wait_for(shown), query
                until(
                    lambda: {health for health, _ in server.rules().values()} == {"ok"},
                    "an evaluation of every rule",
                )
                states = {name: state for name, (_, state) in server.rules().items()}
                assert states.keys() == {a.name for group in ALERTS.values() for a in group}
                assert states["PartitionsAreOffline"] == states["KafkaIsNotSeen"] == "inactive"
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _compare(server: Prometheus, broker: Broker) -> None:
    """What the test did, by the account of each."""
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    for job in ("shoal", "exporter"):
        of_job = f'job="{job}"'
        server.wait_for(f'shoal_group_lag{{{of_job},consumergroup="idle"}} == {RECORDS - 10}')
        server.wait_for(
            f'kafka_topic_partition_current_offset{{{of_job},topic="orders",partition="0"}}'
            f" == {RECORDS}"
        )
    with Consumer(**settings, group_id="late", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        until(lambda: len(consumer.poll(0.2)), "records")
        consumer.commit_sync()
        for job in ("shoal", "exporter"):
            of_group = f'job="{job}",consumergroup="late"'
            server.wait_for(f"kafka_consumergroup_members{{{of_group}}} == 1")
    for job in ("shoal", "exporter"):
        of_group = f'job="{job}",consumergroup="late"'
        server.wait_for(f"kafka_consumergroup_members{{{of_group}}} == 0")
        server.wait_for(f'shoal_group_rebalances_total{{{of_group},cause="left"}} == 1')
    ((_, joined),) = server.wait_for(
        'shoal_group_rebalances_total{job="shoal",consumergroup="late",cause="joined"}'
    )
    assert joined == 1
    server.wait_for('shoal_errors_total{error=~"CORRUPT_MESSAGE|INVALID_RECORD"} == 1')
