"""The audit log: who may read it, what it leaves out, and that nobody can fill a disk with it."""

from __future__ import annotations

import json
import stat
from contextlib import suppress
from typing import Any

import pytest

from shoal import Admin, Consumer, TopicPartition
from shoal.broker import audit as audit_module
from shoal.broker.audit import Audit
from shoal.errors import BrokerError
from shoal.testing import Broker


def lines(path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def told_of(directory) -> list[dict[str, Any]]:
    """What was deleted, by the audit log of a broker that has stopped."""
    return [one for one in lines(directory / "audit.log") if str(one["event"]).endswith("deleted")]


@pytest.fixture
def second(monkeypatch):
    """A clock of whole seconds that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(audit_module, "monotonic", lambda: now[0])
    return now


def test_an_event_is_a_line_of_json_that_only_the_owner_reads(tmp_path):
    audit = Audit(tmp_path)
    audit("topic created", user="User:ann", topic="orders", count=3)
    audit.close()
    (line,) = lines(tmp_path / "audit.log")
    assert line.pop("time").endswith("Z")
    assert line == {"event": "topic created", "user": "User:ann", "topic": "orders", "count": 3}
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_texts_are_cut_and_cannot_break_a_line(tmp_path):
    audit = Audit(tmp_path)
    audit.access("request refused", reason="a\nb\x1b[31m" + "x" * 1000)
    audit.close()
    (line,) = lines(tmp_path / "access.log")
    assert line["reason"].startswith("a\nb")
    assert len(line["reason"]) == 201
    assert "\x1b" not in (tmp_path / "access.log").read_text()


def test_a_flood_is_counted_and_not_written(tmp_path, second):
    audit = Audit(tmp_path)
    for _ in range(1000):
        audit.access("frame refused", peer="10.0.0.1")
    assert len(lines(tmp_path / "access.log")) == 100
    second[0] += 1
    audit.access("frame refused", peer="10.0.0.1")
    audit.close()
    *_, told, last = lines(tmp_path / "access.log")
    assert (told["event"], told["count"]) == ("lines suppressed", 900)
    assert last["event"] == "frame refused"


def test_a_full_file_is_put_aside_once(tmp_path, second, monkeypatch):
    monkeypatch.setattr(audit_module, "_FILE_MAX_BYTES", 300)
    audit = Audit(tmp_path)
    for turn in range(20):
        second[0] += 1
        audit.access("frame refused", turn=turn)
    audit.close()
    kept: list[Any] = [line["turn"] for line in lines(tmp_path / "access.log.1")]
    if (tmp_path / "access.log").exists():
        kept += [line["turn"] for line in lines(tmp_path / "access.log")]
    assert kept == list(range(kept[0], 20))
    assert {path.name for path in tmp_path.iterdir()} <= {"access.log", "access.log.1"}


def test_without_a_directory_the_logger_is_told_and_no_file_is_written(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    audit = Audit(None)
    with caplog.at_level("INFO", "shoal.audit"):
        audit.access("frame refused", peer="10.0.0.1")
    audit.close()
    (line,) = caplog.messages
    assert json.loads(line) | {"time": ""} == {
        "time": "",
        "event": "frame refused",
        "peer": "10.0.0.1",
    }
    assert list(tmp_path.iterdir()) == []


def test_only_what_was_done_is_told(tmp_path):
    with (
        Broker(data_dir=tmp_path, topics={"orders": 1}) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="busy") as consumer,
    ):
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(1.0)
        admin.alter_group_offsets("idle", {TopicPartition("orders", 0): 0})
        for group in ("busy", "absent", "idle"):
            with suppress(BrokerError):
                admin.delete_groups(group)
        for offset in (5, 0):  # the first is behind the end
            with suppress(BrokerError):
                admin.delete_records({TopicPartition("orders", 0): offset})
    told = [(line["event"], line.get("group", line.get("topic"))) for line in told_of(tmp_path)]
    assert told == [("group deleted", "idle"), ("records deleted", "orders")]


def test_a_flood_of_refusals_hides_no_change(tmp_path, second, monkeypatch):
    monkeypatch.setattr(audit_module, "_FILE_MAX_BYTES", 5_000)
    audit = Audit(tmp_path)
    for number in range(40):
        for _ in range(200):
            audit.access("authentication refused", user="x" * 100)
        audit("topic created", user="User:ann", topic=f"topic-{number}")
        second[0] += 0.1
    audit.close()
    told = [
        line["topic"]
        for name in ("audit.log.1", "audit.log")
        if (tmp_path / name).exists()
        for line in lines(tmp_path / name)
    ]
    assert told == [f"topic-{number}" for number in range(40)]
