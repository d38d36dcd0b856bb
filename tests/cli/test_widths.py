"""What every command prints, 60, 80 and 120 columns wide and into a pipe, on a cluster with life.

A command is either tried here or named among those that are not, with the reason.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from shoal import Admin, Consumer, Producer
from shoal.broker.config import Listener
from shoal.cli.commands import app
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.cli.conftest import QuickRun
from tests.cli.test_help import TREE, WIDTHS
from tests.cli.test_terminal import on_terminal, without_colours

pytestmark = pytest.mark.slow

TOPIC, GROUP = "a-topic-with-quite-a-long-name", "the-group-of-all-the-readers"
IDLE, TRANSACTION = "readers-who-went-home", "billing-of-the-evening-1"
MANY_MINUTES_MS = 600_000


class Shown(NamedTuple):
    """A command, words it must show, and the names of the first columns where it is a table."""

    words: tuple[str, ...]
    wanted: str
    header: str = ""
    exit_code: int = 0


COMMANDS = (
    Shown(("topic", "list", "--internal"), TOPIC, "topic partitions"),
    Shown(("topic", "describe", TOPIC), "min.insync.replicas", "partition leader"),
    Shown(("group", "list"), IDLE, "group state type members lag"),
    Shown(("group", "describe", GROUP), "reader-1-", "group state protocol"),
    Shown(("group", "lag", IDLE), f"{TOPIC}-0", "partition committed end lag"),
    Shown(("group", "lag", GROUP), "reader-0-", "partition committed end lag"),
    Shown(("group", "export", IDLE), f"{TOPIC},0,1"),
    Shown(("group", "reset", IDLE, "--shift", "1", "--dry-run"), f"{TOPIC}-0", "partition from"),
    Shown(("group", "watch", GROUP, "--count", "1"), "Stable, 3 members"),
    Shown(("transaction", "list"), TRANSACTION, "transactional id state"),
    Shown(("transaction", "describe", TRANSACTION), "Ongoing", "what value"),
    Shown(("transaction", "find-hanging"), "no transaction hangs", "partition start offset"),
    Shown(("acl", "list"), "User:alice-of-accounting", "who permission"),
    Shown(("acl", "test", "User:alice-of-accounting", "read", "topic", TOPIC), "yes: allowed"),
    Shown(("acl", "test", "User:bob", "read", "topic", TOPIC), "no rule allows it", exit_code=3),
    Shown(("quota", "list"), "alice-of-accounting", "for producer_byte_rate"),
    Shown(("telemetry", "list"), "lag-of-the-evening", "name metrics"),
    Shown(("user", "list", "--data-dir", "users"), "alice-of-accounting"),
    Shown(("cluster", "--apis"), "DescribeTopicPartitions", "cluster controller"),
    Shown(("config", "check", "client.properties"), "session_timeout_ms", "setting", 1),
    Shown(("fleet", "report"), IDLE, "groups members rebalances"),
    Shown(("fleet", "what-if"), "cooperative", "changes groups"),
    Shown(("why", GROUP, "--seconds", "0.5"), "Stable, 3 members"),
    Shown(("why", IDLE, "--seconds", "0.5"), "records waiting"),
    Shown(("why", "nobody", "--seconds", "0.5"), "does not exist", exit_code=3),
    Shown(("plan", "--group", GROUP, "--leave", "reader-1"), "reader-0-", "members topics"),
    Shown(("plan", "--example", "one-leaves"), "cooperative-sticky", "members topics"),
    Shown(("lab", "--list"), "member-crashes", "scenario"),
    Shown(("lab", "run", "member-crashes", "-s", "eager"), "eager"),
    Shown(("lab", "compare", "member-crashes"), "incremental"),
    Shown(("lab", "explain", "member-crashes", "-s", "eager"), "eager"),
    Shown(("log", "verify", "data"), "ok"),
    Shown(("log", "dump", f"data/{TOPIC}-0"), "position", "file position"),
    Shown(("log", "dump", f"data/{TOPIC}-0", "--records", "--limit", "3"), "offset"),
    Shown(("log", "repair", "data"), "nothing to repair"),
    Shown(("version",), "kernel"),
)
NOT_TRIED = {
    "what it prints is a line or two": {
        *("topic create", "topic alter", "topic delete", "group delete", "transaction abort"),
        *("acl add", "acl remove", "acl import", "quota set", "quota remove", "telemetry set"),
        *("telemetry remove", "user set", "user remove", "produce", "lab draw"),
    },
    "it runs until it is stopped": {"serve", "exporter", "ui", "fleet record"},
    "lines are other programs' own, and never broken": {"consume", "acl export"},
    "tests of its own look at it": {"demo"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands run: files they read are here."""
    path = tmp_path_factory.mktemp("place")
    (path / "client.properties").write_text("session.timeout.ms=45000\nno.such.setting=1\n")
    (path / "users").mkdir()
    return path


@pytest.fixture(scope="module")
def broker(place: Path) -> Iterator[Broker]:
    """Groups with members and without, with lag; rules, quotas, an open transaction."""
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "admin",
        "sasl_password": "secret",
    }
    listener = Listener(port=0, sasl=("PLAIN",))
    done = threading.Event()
    with (
        pytest.MonkeyPatch.context() as patch,
        Broker(users={"admin": "secret"}, listeners=(listener,), acls=[]) as running,
    ):
        for name, value in login.items():
            patch.setenv(f"SHOAL_{name.upper()}", value)
        patch.setenv("SHOAL_BOOTSTRAP", running.bootstrap_servers)
        patch.setenv("HOME", str(place))
        patch.chdir(place)
        settings: dict[str, Any] = {"bootstrap_servers": running.bootstrap_servers, **login}
        open_one = _fill(settings)
        readers = [_reader(settings, number, done) for number in range(3)]
        try:
            _wait_for_members(settings)
            yield running
        finally:
            done.set()
            for reader in readers:
                reader.join(30)
            open_one.abort_transaction()
            open_one.close()


def _fill(settings: dict[str, Any]) -> Producer:
    """Topics, records, a group that is behind; returns the producer of an open transaction."""
    with Admin(**settings) as admin:
        admin.create_topic(TOPIC, partitions=12)
        admin.create_topic("orders", partitions=3)
        with Producer(**settings) as producer:
            for number in range(600):
                producer.send(TOPIC, b"a value", key=b"%d" % number)
        places = {TopicPartition(TOPIC, number): 1 for number in range(12)}
        admin.alter_group_offsets(IDLE, places)
    producer = Producer(
        **settings, transactional_id=TRANSACTION, transaction_timeout_ms=MANY_MINUTES_MS
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"not yet")
    producer.flush()
    return producer


def _reader(settings: dict[str, Any], number: int, done: threading.Event) -> threading.Thread:
    def read() -> None:
        name = f"reader-{number}"
        with Consumer(
            **settings, group_id=GROUP, client_id=name, auto_offset_reset="earliest"
        ) as one:
            one.subscribe([TOPIC, "orders"])
            while not done.is_set():
                one.poll(0.2)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def _wait_for_members(settings: dict[str, Any]) -> None:
    with Admin(**settings) as admin:
        while True:
            group = admin.describe_group(GROUP)
            if group.state == "Stable" and len(group.members) == 3:
                return


@pytest.fixture(scope="module")
def ready(broker: Broker, place: Path) -> Broker:
    """With what only commands make, and a copy of the broker's files beside them."""
    who = "alice-of-accounting"
    for words in (
        ("acl", "add", "--allow", f"User:{who}", "--consumer", "--topic", TOPIC, "--group", GROUP),
        ("quota", "set", "--user", who, "--produce-bytes", "1000000", "--request-percent", "50"),
        ("telemetry", "set", "lag-of-the-evening", "--metrics", "org.apache.kafka.consumer."),
        ("user", "set", who, "--data-dir", "users", "--password-file", "-"),
    ):
        done = CliRunner().invoke(app, list(words), input="secret12\n")
        assert done.exit_code == 0, (words, done.output)
    shutil.copytree(broker.data_dir, place / "data")
    return broker


@pytest.mark.parametrize("shown", COMMANDS, ids=lambda one: " ".join(one.words))
def test_what_is_shown_fits_every_terminal(ready: Broker, shown: Shown) -> None:
    for width in WIDTHS:
        with on_terminal(ready, *shown.words, width=width) as terminal:
            text = "\n".join(re.split(r"[\r\n]+", without_colours(terminal.read_all())))
        assert terminal.process.returncode == shown.exit_code, text
        assert shown.wanted in " ".join(text.split()), text
        for line in text.splitlines():
            fits = len(line) <= width or not line.strip().count(" ")
            assert fits, f"{width}: {line}"


@pytest.mark.parametrize(
    "shown", [one for one in COMMANDS if one.header], ids=lambda one: " ".join(one.words)
)
def test_a_table_in_a_pipe_begins_with_its_header(
    ready: Broker, quick: QuickRun, shown: Shown
) -> None:
    lines = quick(*shown.words).stdout.splitlines()
    assert " ".join(lines[0].split()).startswith(shown.header)
    assert "─" not in "".join(lines)


def test_every_command_is_tried_or_there_is_a_reason() -> None:
    leaves = {
        " ".join(words)
        for words, one in TREE.items()
        if one is not None and not hasattr(one, "commands")
    }
    tried = {leaf for leaf in leaves for one in COMMANDS if " ".join(one.words).startswith(leaf)}
    excused = set().union(*NOT_TRIED.values())
    assert tried | excused == leaves
    assert not tried & excused
