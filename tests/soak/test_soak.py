"""Every kind of fault, five times kill -9, in CI; a hundred kills and more by ``make soak``."""

from __future__ import annotations

import pytest

from shoal import Producer
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.soak.final_state import final_state
from tests.soak.history import History
from tests.soak.run import BrokerProcess, soak
from tests.soak.small_disk import MISSING, can_mount, small_disk
from tests.soak.transfer_history import Hop, TransferHistory

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


# --- transactions -------------------------------------------------------------------------------

MOVED = {
    0: {0: Hop("a", 0, "start"), 2: Hop("a", 1, "m.1"), 5: Hop("a", 2, "m.3")},
    1: {0: Hop("b", 0, "start"), 1: Hop("b", 1, "m.1")},
}


def _transfers():
    history = TransferHistory()
    history.written["m.1"] = [Hop("a", 1, "m.1"), Hop("b", 1, "m.1")]
    history.written["m.2"] = [Hop("a", 2, "m.2")]
    history.written["m.3"] = [Hop("a", 2, "m.3")]
    history.asked |= {"m.1", "m.3"}
    history.told |= {"m.1": True, "m.2": False}
    history.read += [((0, 0), Hop("a", 0, "start")), ((0, 2), Hop("a", 1, "m.1"))]
    return history


def test_true_transfers_have_no_anomaly():
    assert _transfers().anomalies(MOVED) == []


@pytest.mark.parametrize(
    ("partition", "records", "anomaly"),
    [
        (0, {0: Hop("a", 0, "start"), 5: Hop("a", 2, "m.3")}, "lost"),
        (0, {**MOVED[0], 7: Hop("a", 1, "m.1")}, "duplicated"),
        (1, {0: Hop("b", 0, "start")}, "torn"),
        (0, {**MOVED[0], 5: Hop("a", 2, "m.2")}, "aborted read"),
        (0, {**MOVED[0], 2: Hop("a", 1, "m.9")}, "inconsistent"),
        (1, {0: Hop("b", 0, "m.3"), 1: Hop("b", 1, "m.1")}, "cycle"),
    ],
)
def test_every_anomaly_of_transfers_is_found(partition, records, anomaly):
    found = _transfers().anomalies({**MOVED, partition: records})
    assert any(each.startswith(anomaly) for each in found), found


def test_a_commit_of_which_nothing_can_be_read_is_found():
    started = {0: {0: Hop("a", 0, "start")}, 1: {0: Hop("b", 0, "start")}}
    history = _transfers()
    history.read.clear()
    assert history.anomalies(started) == ["unacknowledged: nothing of m.1 can be read"]


@pytest.mark.slow
def test_kills_under_transfers_leave_no_anomaly(tmp_path):
    plan = ["kill", "pause", "cut", "kill", "restart", "kill"]
    result = soak(tmp_path, plan=plan, seed=9, transfers=True)
    assert result["anomalies"] == []
    assert result["transfers"]["committed"] > 10


# --- runs ---------------------------------------------------------------------------------------


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
