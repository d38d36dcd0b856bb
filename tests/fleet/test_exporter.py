"""Metrics of a cluster, as a scrape and as a real Prometheus see them."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal import Admin, Consumer, Producer
from shoal.fleet.exporter import STALE_SWEEPS, Exporter
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.conformance.client import until
from tests.peers import need
from tests.peers.prometheus import Prometheus, prometheus

TP = TopicPartition("orders", 0)

# What Grafana's dashboard 7589 asks of kafka_exporter.
DASHBOARD_7589 = [
    'sum(rate(kafka_topic_partition_current_offset{topic=~"orders"}[1m])) by (topic)',
    'sum(delta(kafka_topic_partition_current_offset{topic=~"orders"}[5m])/5) by (topic)',
    'sum(kafka_consumergroup_lag{topic=~"orders"}) by (consumergroup, topic)',
    'sum(delta(kafka_consumergroup_current_offset{topic=~"orders"}[5m])/5) by (consumergroup)',
    'sum by(topic) (kafka_topic_partitions{topic=~"orders"})',
]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "quiet": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("orders", b"x", partition=0)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_group_offsets("billing", {TP: 4})
            admin.alter_group_offsets('x"} 1', {TP: 10})
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def scraped(exporter: Exporter) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name → label values → value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(b"".join(exporter.scrape(False)).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_a_scrape_tells_what_the_cluster_is(broker: Broker, admin: Admin) -> None:
    clock = Clock()
    settings = {"bootstrap_servers": broker.bootstrap_servers}
    exporter = Exporter(admin, settings, groups=("billing", "x*"), clock=clock)
    assert exporter.not_ready() == "the first sweep is under way"
    exporter.sweep()
    clock.now_s += 12
    found = scraped(exporter)
    assert exporter.not_ready() == ""
    assert found["kafka_brokers"] == {(): 1}
    assert found["kafka_topic_partitions"] == {("orders",): 2, ("quiet",): 1}
    assert found["kafka_topic_partition_current_offset"]["orders", "0"] == 10
    assert found["kafka_topic_partition_oldest_offset"]["orders", "0"] == 0
    assert found["kafka_topic_partition_leader_is_preferred"]["orders", "1"] == 1
    assert found["kafka_topic_partition_under_replicated_partition"]["orders", "1"] == 0
    assert found["kafka_consumergroup_lag"]["billing", "orders", "0"] == 6
    assert found["kafka_consumergroup_lag_sum"]["billing", "orders"] == 6
    assert found["kafka_consumergroup_current_offset"]["billing", "orders", "0"] == 4
    assert found["kafka_consumergroup_current_offset_sum"]["billing", "orders"] == 4
    assert found["shoal_group_lag"] == {("billing",): 6, ('x"} 1',): 0}
    assert found["shoal_group_info"]["billing", "Empty", "classic"] == 1
    assert found["shoal_exporter_sweep_age_seconds"] == {(): 12}
    assert "shoal_metrics_dropped" not in found


def test_lag_in_seconds_grows_with_time(broker: Broker, admin: Admin) -> None:
    clock = Clock()
    exporter = Exporter(admin, {"bootstrap_servers": broker.bootstrap_servers}, clock=clock)
    exporter.sweep()
    assert scraped(exporter)["shoal_group_lag_seconds"]["billing",] == 0, "it has just begun"
    clock.now_s += 60
    exporter.sweep()
    found = scraped(exporter)["shoal_group_lag_seconds"]
    assert (found["billing",], found['x"} 1',]) == (60, 0)


def test_too_many_series_are_given_up_from_the_finest(broker: Broker, admin: Admin) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers}
    whole = Exporter(admin, settings, groups=("billing",))
    whole.sweep()
    tight = Exporter(admin, settings, groups=("billing",), series_max=35)
    tight.sweep()
    found = scraped(tight)
    dropped = {name for (name,) in found.pop("shoal_metrics_dropped")}
    assert dropped >= {"kafka_consumergroup_lag", "kafka_consumergroup_current_offset"}
    assert found["kafka_consumergroup_lag_sum"] == {("billing", "orders"): 6}
    assert dropped == {
        name for name in scraped(whole) if name.startswith("kafka_") and name not in found
    }
    assert sum(map(len, found.values())) <= 35


@pytest.mark.slow
def test_what_is_old_is_not_passed_off_as_new(tmp_path: Path) -> None:
    clock = Clock()
    with Broker(topics={"orders": 1}) as broker:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        with Admin(**settings, default_api_timeout_ms=3_000) as admin:
            exporter = Exporter(admin, settings, every_s=10, clock=clock)
            exporter.sweep()
            broker.stop()
            clock.now_s += 10 * STALE_SWEEPS
            exporter.sweep()
            assert "kafka_brokers" in scraped(exporter), "it may come back"
            assert scraped(exporter)["shoal_exporter_sweep_failures_total"] == {(): 1}
            clock.now_s += 1
            assert "kafka_brokers" not in scraped(exporter)
            assert exporter.not_ready().startswith("the last sweep failed: ")


def run_exporter(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The program, and where it answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "exporter", "--listen", "127.0.0.1:0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("metrics at http://"), line
    return process, line.split("//")[1].split("/")[0]


def test_the_command_answers_until_it_is_told_to_stop(broker: Broker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    process, where = run_exporter(
        "-b", broker.bootstrap_servers, "--token-file", str(token), "-g", "billing"
    )
    try:
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"http://{where}/metrics")
        refused.value.close()  # it is an answer with a body, which Python 3.14 misses
        headers = {"Authorization": "Bearer secret", "Accept": "application/openmetrics-text"}

        def page(path: str) -> str:
            request = urllib.request.Request(f"http://{where}{path}", headers=headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode()

        def is_ready() -> bool:
            try:
                return page("/ready") == "ready\n"
            except urllib.error.HTTPError as error:
                with error:
                    return error.code != 503

        until(is_ready, "the first sweep")
        text = page("/metrics")
        assert 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 6\n' in text
        assert text.endswith("# EOF\n")
    finally:
        process.terminate()
        _, noise = process.communicate(timeout=30)
    assert (process.returncode, noise) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "9308"], "--listen 9308: give host:port, such as 127.0.0.1:9308"),
        (["--listen", "127.0.0.1:99999"], "--listen 127.0.0.1:99999: give host:port"),
        (["--listen", "0.0.0.0:0"], "metrics on 0.0.0.0 could be read by anybody"),
        (["--token-file", "/nowhere"], "--token-file /nowhere cannot be read"),
        (["--isolation-level", "odd"], "isolation_level='odd' is not one of"),
    ],
)
def test_what_cannot_be_is_one_line(broker: Broker, arguments: list[str], complaint: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "shoal", "exporter", "-b", broker.bootstrap_servers, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"shoal: {complaint}")
    assert run.returncode == 1


@pytest.mark.peer
@pytest.mark.slow
def test_a_real_prometheus_scrapes_it_and_known_dashboards_find_their_metrics(
    broker: Broker, tmp_path: Path
) -> None:
    need(prometheus)
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    process, where = run_exporter("-b", broker.bootstrap_servers, "--every", "1")
    try:
        with Prometheus(tmp_path, {"kafka": where}) as server:
            server.wait_for('kafka_consumergroup_lag{consumergroup="billing"} == 6')
            with Consumer(**settings, group_id="late", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["orders"])
                until(lambda: len(consumer.poll(0.2)), "records")
                consumer.commit_sync()
                server.wait_for('kafka_consumergroup_members{consumergroup="late"} == 1')
            ((labels, _),) = server.wait_for('shoal_group_rebalances_total{cause="left"} == 1')
            assert labels["consumergroup"] == "late"
            for query in DASHBOARD_7589:
                assert server.wait_for(query), query
            assert server.query('up{job="kafka"}')[0][1] == 1
            assert server.query('kafka_consumergroup_lag{consumergroup="x\\"} 1"}')[0][1] == 0
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.slow
def test_the_exporter_never_loads_pandas() -> None:
    """pyarrow does so where it is installed: 42 MB that nothing here needs."""
    program = """
import sys
from shoal.cli.exporter import _without_pandas
with _without_pandas():
    import pyarrow as pa
    assert pa.schema([("a", pa.string())]).empty_table().num_rows == 0
    assert pa.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules
assert not any("HidesPandas" in repr(one) for one in sys.meta_path)
"""
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert shown.returncode == 0, shown.stderr
