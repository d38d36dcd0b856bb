"""Assignors that users wrote, in processes of their own, for groups of the consumer protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer
from shoal.broker.assignor_process import AssignorProcess, parse
from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.errors import ConfigError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker import wayward_assignors
from tests.broker.raw_client import RawClient
from tests.broker.test_consumer_groups import alter, beat
from tests.patience import PATIENCE_S

HERE = "tests.broker.wayward_assignors"
Row = ConsumerGroupHeartbeatRequest.TopicPartitions


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"never: {what}")


@contextmanager
def serving(*assignors: object, **groups: Any) -> Iterator[tuple[Broker, RawClient]]:
    settings = GroupSettings(consumer_assignment_interval_ms=0, **groups)
    config = BrokerConfig(groups=settings)
    with (
        Broker(config=config, assignors=assignors, topics={"t": 4}) as broker,
        RawClient(broker.port) as raw,
    ):
        yield broker, raw


class Joined:
    """A member that adopts what it is told."""

    def __init__(self, raw: RawClient, member_id: str, **fields: Any) -> None:
        self._raw, self.member_id = raw, member_id
        self.owned: set[int] = set()
        self._take(beat(raw, member_id, 0, **fields))

    def beat(self) -> Any:
        rows = []
        if self.owned:
            rows = [Row(topic_id=self._topic_id, partitions=sorted(self.owned))]
        answer = beat(self._raw, self.member_id, self._epoch, topic_partitions=rows)
        self._take(answer)
        return answer

    def _take(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE, answer
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.owned = {number for row in rows for number in row.partitions}
            self._topic_id = rows[0].topic_id if rows else bytes(16)


def described(raw: RawClient) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    (group,) = raw.ask(request).groups
    return group


def fault(raw: RawClient, *members: Joined) -> str:
    def look() -> str | None:
        for member in members:
            member.beat()
        message: str | None = described(raw).error_message
        return message

    return str(until(look, "a fault is told"))


# --- they assign -----------------------------------------------------------------------------


def test_members_choose_an_assignor_of_the_users() -> None:
    with serving(wayward_assignors.by_turns, wayward_assignors.LastTakesAll) as (_, raw):
        a = Joined(raw, "a", server_assignor="last-takes-all")
        until(lambda: a.beat() and a.owned == {0, 1, 2, 3}, "a has everything")
        b = Joined(raw, "b", server_assignor="last-takes-all")
        until(lambda: a.beat() and b.beat() and b.owned == {0, 1, 2, 3}, "b has everything")
        assert described(raw).assignor_name == "last-takes-all"
        assert alter(raw, assignor="by_turns") == ErrorCode.NONE
        until(lambda: a.beat() and b.beat() and (a.owned, b.owned) == ({0, 2}, {1, 3}), "by turns")
        assert described(raw).assignor_name == "by_turns"
        assert alter(raw, assignor="nobodys") == ErrorCode.INVALID_CONFIG
        assert alter(raw, member_weights="a=few") == ErrorCode.INVALID_CONFIG


def test_an_assignor_the_broker_has_not_is_refused_by_name() -> None:
    with serving(f"mine={HERE}:by_turns") as (_, raw):
        refused = beat(raw, "a", server_assignor="by_turns")
        assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert refused.error_message.endswith("Supported assignors: uniform, range, mine.")


def test_it_is_told_lag_bytes_racks_and_weights() -> None:
    config = BrokerConfig(rack="here", groups=GroupSettings(consumer_assignment_interval_ms=0))
    telling = wayward_assignors.Telling
    with (
        Broker(config=config, assignors=[telling], topics={"t": 2}) as broker,
        RawClient(broker.port) as raw,
    ):
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(7):
                producer.send("t", b"x" * 1_000, partition=1)
        assert alter(raw, member_weights="mine=0.25") == ErrorCode.NONE
        mine = Joined(raw, "a", server_assignor="telling", rack_id="r1", instance_id="mine")
        told = fault(raw, mine)
        assert "instance_id='mine'" in told
        assert "rack='r1', weight=0.25" in told
        assert "lag=7" in told
        assert "lag=0, bytes_per_second=0.0, racks=('here',)" in told
        rate = float(told.split("lag=7, bytes_per_second=")[1].split(",")[0])
        assert 7_000 / 60 < rate <= 8_000


def test_weighted_and_drain_come_with_the_broker() -> None:
    with serving("weighted", "drain") as (_, raw):
        a = Joined(raw, "a", server_assignor="drain", instance_id="one")
        b = Joined(raw, "b", server_assignor="drain", instance_id="two")
        until(lambda: a.beat() and b.beat() and len(a.owned) == len(b.owned) == 2, "both have half")
        kept = set(b.owned)
        assert alter(raw, member_weights="one=0") == ErrorCode.NONE
        until(lambda: a.beat() and b.beat() and len(b.owned) == 4, "b has everything")
        assert not a.owned
        assert alter(raw, member_weights="one=1") == ErrorCode.NONE
        until(lambda: a.beat() and b.beat() and len(a.owned) == 2, "a is back")
        assert len(kept) == 2


# --- they fail -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("hangs", "it gave no target within 0.5 s and was killed"),
        ("sleeps", "it gave no target within 0.5 s and was killed"),
        ("raises", "RuntimeError: no idea"),
        ("exits", "SystemExit: 3"),
        ("dies", "its process ended (exit code 4) and gave no target"),
        ("two owners", "went to both 'a' and 'b'"),
        ("unknown member", "no member 'x' in the group"),
        ("unknown partition", "'a' got t-99, which does not exist"),
        ("missing", "1 partition went to nobody, among them t-0"),
        ("no mapping", "a mapping of member ids was expected, not list"),
        ("no partitions", "'a' got [1]; give it a list of TopicPartition"),
        ("no numbers", "'a' got ('t', '0'), which is not a partition"),
    ],
)
def test_whatever_it_does_members_keep_what_they_have(mood: str, reason: str) -> None:
    moody = wayward_assignors.moody
    with serving(moody, consumer_assignor_timeout_ms=500) as (_, raw):
        b = Joined(raw, "b", server_assignor="moody")
        until(lambda: b.beat() and len(b.owned) == 4, "b has everything")
        a = Joined(raw, "a", server_assignor="moody", rack_id=mood)
        told = fault(raw, b)
        assert told.startswith("moody: ")
        assert reason in told
        answer = b.beat()
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, told)
        assert (len(b.owned), len(a.owned)) == (4, 0)
        # The group is not lost: without whom the assignor fails for, it goes on.
        assert beat(raw, "a", -1).error_code == ErrorCode.NONE
        Joined(raw, "c", server_assignor="moody", rack_id="fine")
        until(lambda: b.beat() and len(b.owned) == 2, "b shares with c")
        assert described(raw).error_message is None


def test_while_one_hangs_every_heartbeat_is_answered() -> None:
    with serving(wayward_assignors.moody, consumer_assignor_timeout_ms=3_000) as (broker, raw):
        a = Joined(raw, "a", server_assignor="moody", rack_id="hangs")
        until(lambda: _workers(broker), "it runs")
        began = time.monotonic()
        beats = 0
        while described(raw).error_message is None:
            assert time.monotonic() - began < 3 * PATIENCE_S
            a.beat()
            beats += 1
        assert beats > 20


def _workers(broker: Broker) -> list[int]:
    processes = broker.on_loop(lambda live: list(live._assignors.values()))
    return [
        each._process.pid
        for each in processes
        if each is not None and each._process is not None and each._process.poll() is None
    ]


def test_a_process_that_was_killed_is_started_again() -> None:
    with serving(wayward_assignors.by_turns) as (broker, raw):
        (pid,) = _workers(broker)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _workers(broker), "it is gone")
        a = Joined(raw, "a", server_assignor="by_turns")
        until(lambda: a.beat() and len(a.owned) == 4, "a has everything")
        assert _workers(broker) != [pid]


def test_no_process_outlives_its_broker(tmp_path: Path) -> None:
    with serving(wayward_assignors.by_turns, wayward_assignors.moody) as (broker, raw):
        Joined(raw, "a", server_assignor="moody", rack_id="hangs")
        pids = _workers(broker)
        assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    # Not even one that was killed: an assignor that hangs ends when there are no more orders.
    command = [sys.executable, "-m", "shoal", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(tmp_path), "--assignor", f"{HERE}:moody"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (child,) = (int(each) for each in children)
        with RawClient(port) as raw:
            beat(raw, "a", server_assignor="moody", rack_id="hangs")
            process.kill()
    until(lambda: not _runs(child), "the assignor has ended")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# --- they are found, or not ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nobodys", "no assignor is called 'nobodys'"),
        ("weigthed", "did you mean 'weighted'"),
        ("x=", "write NAME=package.module:attribute"),
        ("uniform=a:b", "write NAME=package.module:attribute"),
        ("no_such_module:x", "there is no Python module 'no_such_module'"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (f"{HERE}:not_callable", "is not an assignor"),
        (f"{HERE}:Nameless", "has no name"),
        (f"weighted={HERE}:by_turns", "two assignors are called 'weighted'"),
    ],
)
def test_a_broker_does_not_start_with_an_assignor_it_cannot_have(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="assignor") as raised:
        Broker(assignors=["weighted", text]).start()
    assert reason in str(raised.value)


def test_what_another_process_cannot_find_is_refused() -> None:
    with pytest.raises(ValueError, match="put it at the top of a module"):
        Broker(assignors=[lambda spec: {}])


def test_installed_packages_offer_assignors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "offering-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        f"[shoal.server_assignors]\noffered = {HERE}:by_turns\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert parse("offered") == ("offered", f"{HERE}:by_turns")


def test_a_file_and_flags_name_assignors(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        f'[groups]\nconsumer_assignors = ["{HERE}:by_turns", "range"]\n'
        "consumer_assignor_timeout_ms = 900\n"
    )
    command = [sys.executable, "-m", "shoal", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data-dir", str(tmp_path / "data"), "--config", str(file)]
    command += ["--assignor", "second=shoal.assign.server_examples:drain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with RawClient(port) as raw:
            refused = beat(raw, "a", server_assignor="third")
        process.terminate()
    assert refused.error_message.endswith("Supported assignors: by_turns, range, second.")


def test_a_process_that_does_not_load_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.broker.assignor_process._START_SECONDS", 0.01)
    process = AssignorProcess(f"{HERE}:by_turns", None, 1.0)
    with pytest.raises(ConfigError, match=r"was not loaded within 0\.01 s"):
        process.start()


# --- our own client and tools ----------------------------------------------------------------


def test_our_consumer_warns_and_tools_show_why(caplog: pytest.LogCaptureFixture) -> None:
    from typer.testing import CliRunner

    from shoal.cli.commands import app
    from shoal.fleet.diagnosis import diagnose
    from shoal.fleet.snapshots import take

    with serving(wayward_assignors.moody) as (broker, _):
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "g",
            "group_protocol": "consumer",
            "group_remote_assignor": "moody",
        }
        with (
            Consumer(**settings, client_rack="raises") as consumer,
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ):
            consumer.subscribe(["t"])

            def failed() -> str | None:
                consumer.poll(timeout=0.05)
                return admin.describe_group("g").assignor_fault

            assert until(failed, "it is told") == "moody: RuntimeError: no idea"
            (found,) = diagnose([take(admin, "g", 0.0), take(admin, "g", 1.0)])[:1]
            assert found.level == "problem"
            assert "moody: RuntimeError: no idea" in found.what
            where = ["--bootstrap", broker.bootstrap_servers]
            shown = CliRunner().invoke(app, ["group", "describe", "g", *where])
            assert "no new target: moody: RuntimeError: no idea" in shown.output, shown.output
            until(
                lambda: (
                    consumer.poll(timeout=0.05) is not None
                    and [each for each in caplog.messages if "no idea" in each and "'g':" in each]
                ),
                "the client warns",
            )
