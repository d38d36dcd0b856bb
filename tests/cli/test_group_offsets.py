"""Listing groups with what they lack, moving their offsets, and offsets as files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Consumer, Producer
from shoal.cli.group import saved_offsets
from shoal.client.admin import Admin
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata, TopicPartition
from tests.cli.conftest import QuickRun
from tests.patience import PATIENCE_S

FIRST, SECOND = TopicPartition("moved", 0), TopicPartition("moved", 1)


@pytest.fixture
def group(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A group that has read 5 of 10 records in each of two partitions, one topic for all tests."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "moved" not in admin.list_topics():
            admin.create_topic("moved", partitions=2)
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(20):
                    producer.send(
                        "moved", b"x", partition=number % 2, timestamp_ms=1000 * (number // 2 + 1)
                    )
        name = f"group-{abs(hash(request.node.name))}"
        admin.alter_group_offsets(name, {FIRST: OffsetAndMetadata(5), SECOND: OffsetAndMetadata(5)})
        yield name


def committed(broker: Broker, group: str) -> list[int]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.group_offsets(group)
    return [one.offset for _, one in sorted(found.items()) if one is not None]


@pytest.mark.parametrize(
    ("shift", "after"), [("-2", [3, 3]), ("3", [8, 8]), ("-99", [0, 0]), ("99", [10, 10])]
)
def test_a_shift_moves_every_partition_and_stays_in_the_log(
    quick: QuickRun, broker: Broker, group: str, shift: str, after: list[int]
) -> None:
    flag = "--shift" if shift.startswith("-") else "--by"
    shown = quick("group", "reset", group, flag, shift, "--yes")
    assert shown.exit_code == 0, shown.output
    assert committed(broker, group) == after


def test_a_shift_of_one_partition_leaves_the_other(
    quick: QuickRun, broker: Broker, group: str
) -> None:
    assert quick("group", "reset", group, "--shift", "-1", "-p", "1", "--yes").exit_code == 0
    assert committed(broker, group) == [5, 4]


def test_a_dry_run_changes_nothing_and_is_no_failure(
    quick: QuickRun, broker: Broker, group: str
) -> None:
    shown = quick("group", "reset", group, "--to", "earliest", "--dry-run", "--yes")
    assert shown.exit_code == 0
    assert committed(broker, group) == [5, 5]


def test_one_way_is_chosen_and_no_more(quick: QuickRun, group: str) -> None:
    for flags in ([], ["--to", "latest", "--shift", "1"]):
        said = str(quick("group", "reset", group, *flags, "--yes").exception)
        assert f"shoal group reset {group} --to WHERE, --shift N or --from-file FILE" in said


def test_what_was_never_committed_cannot_be_shifted(quick: QuickRun, group: str) -> None:
    quick("topic", "create", "new", "-p", "1")
    shown = quick("group", "reset", group, "-t", "new", "--shift", "1", "--yes")
    assert "new-0 has nothing committed to move from" in str(shown.exception)


def test_offsets_are_saved_and_brought_back(
    quick: QuickRun, broker: Broker, group: str, tmp_path: Path
) -> None:
    saved = quick("group", "export", group).stdout
    assert saved == "moved,0,5\nmoved,1,5\n"
    assert quick("group", "reset", group, "--to", "earliest", "--yes").exit_code == 0
    assert committed(broker, group) == [0, 0]
    shown = quick("group", "reset", group, "--from-file", "-", "--yes", stdin=saved)
    assert shown.exit_code == 0, shown.output
    assert committed(broker, group) == [5, 5]
    both = quick("group", "export", group, group).stdout
    assert both.splitlines()[0] == f"{group},moved,0,5"
    path = tmp_path / "plan.csv"
    path.write_text(quick("group", "reset", group, "--shift", "2", "--csv", "--dry-run").stdout)
    assert path.read_text() == "moved,0,7\nmoved,1,7\n"
    assert quick("group", "reset", group, "--from-file", str(path), "--yes").exit_code == 0
    assert committed(broker, group) == [7, 7]


def test_a_file_of_kafkas_tool_is_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text('"g","a,b",0,7\r\nother,t,1,9\r\n\r\n')
    assert saved_offsets(str(path), "g") == {TopicPartition("a,b", 0): 7}
    path.write_text("TOPIC,PARTITION,OFFSET\nt,1,9\n")
    assert saved_offsets(str(path), "g") == {TopicPartition("t", 1): 9}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no offset for group 'g'"),
        ("h,t,0,1\n", "has no offset for group 'g'; it has h"),
        ("t,0\n", "line 1: 't,0' is not topic,partition,offset"),
        ("t,0,1\nt,x,1\n", "line 2"),
        ("t,0,-1\n", "line 1"),
        ("t,0,1,2,3\n", "line 1"),
        ("t,0," + "9" * 40, "line 1"),
    ],
)
def test_a_file_that_is_something_else_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        saved_offsets(str(path), "g")
    assert said in str(caught.value)


def test_the_list_of_groups_has_members_lag_and_topics(
    quick: QuickRun, broker: Broker, group: str
) -> None:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["moved"])
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.2)
        consumer.commit_sync({FIRST: OffsetAndMetadata(1)})
        rows = {row["group"]: row for row in json.loads(quick("group", "list", "--json").stdout)}
        only = json.loads(quick("group", "list", "--topic", "absent", "--json").stdout)
        table = quick("group", "list", "--state", "stable").stdout.splitlines()
    assert (rows[group]["members"], rows[group]["lag"]) == (0, 10)
    assert (rows["readers"]["members"], rows["readers"]["lag"]) == (1, 9)
    assert rows["readers"]["topics"] == ["moved"]
    assert only == []
    assert table[0].split() == ["group", "state", "type", "members", "lag", "topics"]
    assert [line.split()[0] for line in table[1:]] == ["readers"]


def test_a_group_reads_to_the_end_and_stops(quick: QuickRun, broker: Broker, group: str) -> None:
    shown = quick(
        "consume", "moved", "-g", group, "--until-end", "--format", "{partition} {offset}"
    )
    assert shown.exit_code == 0, shown.output
    wanted = [f"{partition} {offset}" for partition in (0, 1) for offset in range(5, 10)]
    assert sorted(shown.stdout.splitlines()) == wanted
    assert committed(broker, group) == [10, 10]


def test_a_group_reads_up_to_a_time_and_commits_no_further(
    quick: QuickRun, broker: Broker, group: str
) -> None:
    when = "1970-01-01T00:00:08+00:00"
    shown = quick("consume", "moved", "-g", group, "--until", when, "--format", "{offset}")
    assert sorted(shown.stdout.split()) == ["5", "5", "6", "6"]
    assert committed(broker, group) == [7, 7]


def test_partitions_are_read_up_to_a_time(quick: QuickRun, group: str) -> None:
    when = "1970-01-01T00:00:03+00:00"
    shown = quick("consume", "moved", "--until", when, "--format", "{offset}")
    assert sorted(shown.stdout.split()) == ["0", "0", "1", "1"]
    assert len(quick("consume", "moved", "--max", "3").stdout.splitlines()) == 3


def test_an_end_that_cannot_come_is_refused(quick: QuickRun) -> None:
    said = str(quick("consume", "moved", "--until", "2999-01-01").exception)
    assert "is in the future; read with --follow" in said
    assert "--follow never ends" in str(quick("consume", "moved", "-f", "--until-end").exception)
    said = str(quick("consume", "moved", "-g", "g", "--from", "7").exception)
    assert "shoal group reset g --to 7" in said


def test_the_cluster_shows_its_brokers_and_features(quick: QuickRun, broker: Broker) -> None:
    found = json.loads(quick("cluster", "--apis", "--json").stdout)
    assert len(found["brokers"]) == 1
    node = found["brokers"][0]
    assert f"{node['host']}:{node['port']}" in broker.bootstrap_servers
    assert "metadata.version" in [one["feature"] for one in found["features"]]
    assert {"api": "ApiVersions", "key": 18, "versions": [0, 4]} in found["apis"] or found["apis"]
    shown = quick("cluster", "--apis")
    assert shown.stdout.splitlines()[0].split() == ["cluster", "controller", "brokers"]
    assert "transaction.version" in shown.stdout
    assert "ConsumerGroupHeartbeat" in shown.stdout
