"""Every kind of fault, five times kill -9, in CI; a hundred kills and more by ``make soak``."""

from __future__ import annotations

import pytest

from shoal import Producer
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.soak.history import History
from tests.soak.run import BrokerProcess, final_state, soak
from tests.soak.small_disk import MISSING, can_mount, small_disk

LOG = {0: {0: b"p0-0", 1: b"p0-1", 2: b"p1-0"}}


def _history() -> History:
    history = History()
    history.acknowledged += [((0, 0), b"p0-0"), ((0, 1), b"p0-1")]
    history.read["c0", 1] += [((0, 0), b"p0-0"), ((0, 1), b"p0-1"), ((0, 2), b"p1-0")]
    history.committed.append((0, 2))
    return history


def test_a_true_history_has_no_anomaly():
    assert _history().anomalies(LOG, {0: 2}) == []


@pytest.mark.parametrize(
    ("log", "committed", "anomaly"),
    [
        ({0: {0: b"p0-0", 2: b"p1-0"}}, {0: 2}, "lost"),
        ({0: {0: b"p0-0", 1: b"p0-7", 2: b"p1-0"}}, {0: 2}, "inconsistent"),
        ({0: {**LOG[0], 3: b"p0-1"}}, {0: 2}, "duplicated"),
        ({0: {0: b"p0-1", 1: b"p0-0", 2: b"p1-0"}}, {0: 2}, "reordered"),
        (LOG, {0: 1}, "forgotten"),
        (LOG, {0: 9}, "forgotten"),
    ],
)
def test_every_anomaly_is_found(log, committed, anomaly):
    found = _history().anomalies(log, committed)
    assert any(each.startswith(anomaly) for each in found), found


def test_a_skip_is_found():
    history = _history()
    history.read["c1", 1] += [((0, 0), b"p0-0"), ((0, 2), b"p1-0")]
    assert history.anomalies(LOG, {0: 2}) == ["skipped: ('c1', 1) did not get 0/1"]


def check(result):
    assert result["anomalies"] == []
    assert result["soak"]["acknowledged"] > 1000
    assert result["soak"]["read"] >= result["soak"]["acknowledged"]
    assert result["soak"]["commits"] > 0


@pytest.mark.slow
def test_five_kills_under_load_leave_no_anomaly(tmp_path):
    result = soak(
        tmp_path, plan=["kill", "kill", "pause", "kill", "restart", "kill", "kill"], seed=5
    )
    assert result["kill"] == 5
    check(result)


@pytest.mark.slow
def test_cut_connections_leave_no_anomaly(tmp_path):
    result = soak(tmp_path, plan=["cut"] * 4, seed=6)
    assert result["connections cut"] > 10
    check(result)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason=MISSING)
def test_a_full_disk_is_told_of_and_costs_nothing_acknowledged(tmp_path):
    result = soak(tmp_path, plan=["full disk"] * 3, seed=7, disk_bytes=192 << 20)
    assert result["full disk"] == 3
    check(result)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason=MISSING)
def test_a_broker_that_ends_on_a_full_disk_says_so_and_starts_again_with_room(tmp_path):
    with small_disk(tmp_path, 192 << 20) as disk:
        broker = BrokerProcess(disk.directory, tmp_path / "broker.log")
        broker.start()
        with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            for number in range(10):
                producer.send("soak", b"p-%d" % number).result(10)
        disk.fill()
        broker.stop()
        assert "No space left on device" in broker.said
        assert "Traceback" not in broker.said
        disk.free()
        broker.start()
        log, _ = final_state(f"127.0.0.1:{broker.port}", "soak", "nobody")
        broker.stop()
    assert sum(len(records) for records in log.values()) == 10


@pytest.mark.kafka
@pytest.mark.long
def test_kafkas_verifiable_clients_find_no_anomaly_either(tmp_path):
    need(kafka_jars)
    result = soak(tmp_path, plan=["kill", "cut", "kill", "pause", "kill"], seed=8, verifiable=True)
    check(result)
    assert result["java"]["acknowledged"] > 500
    assert result["java"]["read"] >= result["java"]["acknowledged"]
    assert result["java"]["commits"] > 0
