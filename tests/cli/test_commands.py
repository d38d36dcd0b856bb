"""Topics, records and groups from the command line, against a live broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal import Consumer, Producer
from shoal.cli.consume import time_ms
from shoal.client.admin import Admin
from shoal.errors import install_command
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata, TopicPartition
from tests.cli.conftest import PROGRAM, QuickRun, Run

pytestmark = pytest.mark.slow


def one_line(shown: subprocess.CompletedProcess[str]) -> str:
    """The error of a failed command, which is one line and no traceback."""
    assert shown.returncode == 1, shown
    lines = shown.stderr.strip().splitlines()
    assert len(lines) == 1, shown.stderr
    assert lines[0].startswith("shoal: ")
    return lines[0]


def test_a_topic_is_created_described_grown_and_deleted(shoal: Run) -> None:
    created = shoal("topic", "create", "life", "-p", "3", "-c", "retention.ms=60000")
    assert created.stdout == "created life with 3 partitions\n"
    listed = json.loads(shoal("topic", "list", "--json").stdout)
    assert {"topic": "life", "partitions": 3, "internal": False} in listed
    assert shoal("topic", "alter", "life", "-p", "4", "-c", "retention.ms=70000").returncode == 0
    described = json.loads(shoal("topic", "describe", "life", "--json").stdout)
    assert len(described["partitions"]) == 4
    assert described["settings"]["retention.ms"] == "70000"
    assert "retention.ms" in shoal("topic", "describe", "life").stdout
    refused = shoal("topic", "delete", "life")
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert shoal("topic", "delete", "life", "--yes").returncode == 0
    assert "UNKNOWN_TOPIC" in one_line(shoal("topic", "describe", "life", "--timeout", "2"))


def test_lines_go_in_and_come_out(quick: QuickRun) -> None:
    quick("topic", "create", "lines", "-p", "1")
    text = "a:1\nb:2\r\nc:\n"
    written = quick(
        "produce", "lines", "-", "-k", ":", "-p", "0", "--header", "source=test", stdin=text
    )
    assert written.stderr == "3 records written to lines\n"
    assert quick("consume", "lines").stdout == "1\n2\n\n"
    assert quick("consume", "lines", "--format", "key").stdout == "a\t1\nb\t2\nc\t\n"
    documents = [
        json.loads(line)
        for line in quick("consume", "lines", "--format", "json").stdout.splitlines()
    ]
    assert [(d["offset"], d["key"], d["value"], d["headers"]) for d in documents] == [
        (0, "a", "1", [["source", "test"]]),
        (1, "b", "2", [["source", "test"]]),
        (2, "c", "", [["source", "test"]]),
    ]
    assert quick("consume", "lines", "--from", "1", "-n", "1").stdout == "2\n"
    assert quick("consume", "lines", "--from", "-1", "--format", "{offset}").stdout == "2\n"
    assert quick("consume", "lines", "--from", "latest").stdout == ""
    assert quick("consume", "lines", "--from", "1h").stdout == "1\n2\n\n"


def test_a_group_reads_what_it_has_not_seen(shoal: Run) -> None:
    shoal("topic", "create", "shared", "-p", "2")
    shoal("produce", "shared", stdin="one\ntwo\nthree\n")
    first = shoal("consume", "shared", "-g", "readers", "-n", "3").stdout.split()
    assert sorted(first) == ["one", "three", "two"]
    shoal("produce", "shared", stdin="four\n")
    assert shoal("consume", "shared", "-g", "readers", "-n", "1").stdout == "four\n"
    lag = json.loads(shoal("group", "lag", "readers", "--json").stdout)
    assert sum(row["lag"] or 0 for row in lag) == 0
    assert "readers" in shoal("group", "list").stdout
    described = json.loads(shoal("group", "describe", "readers", "--json").stdout)
    assert (described["state"], described["members"]) == ("Empty", [])
    plan = shoal("group", "reset", "readers", "--to", "earliest")
    assert plan.returncode == 1
    assert plan.stdout.split()[:4] == ["partition", "from", "to", "moves"]
    assert shoal("group", "reset", "readers", "--to", "earliest", "--yes").returncode == 0
    lag = json.loads(shoal("group", "lag", "readers", "--json").stdout)
    assert sum(row["lag"] for row in lag) == 4
    empty = shoal("why", "readers", "--seconds", "0.5")
    assert empty.returncode == 3
    assert "the group has no active members" in empty.stdout
    assert shoal("group", "delete", "readers", "--yes").returncode == 0
    assert "no group 'readers'" in one_line(shoal("group", "describe", "readers"))


def test_a_group_that_is_only_committed_to_raises_no_alarm(shoal: Run, broker: Broker) -> None:
    shoal("topic", "create", "streamed", "-p", "1")
    written = shoal("produce", "streamed", stdin="x\ny\nz\n")
    assert written.returncode == 0, written.stderr
    tp = TopicPartition("streamed", 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="simple") as consumer:
        consumer.assign([tp])
        consumer.commit_sync({tp: OffsetAndMetadata(2)})
    shown = shoal("why", "simple", "--seconds", "0.5")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert "committed from outside" in shown.stdout
    assert "the group has no active members" not in shown.stdout
    assert "records waiting: 1" in shown.stdout


def test_a_group_at_work_is_healthy(shoal: Run, broker: Broker, tmp_path: Path) -> None:
    shoal("topic", "create", "busy", "-p", "2")
    member = subprocess.Popen(
        [PROGRAM, "consume", "busy", "-g", "workers", "-b", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        shoal("produce", "busy", stdin="x\n" * 20)
        assert member.stdout is not None
        for _ in range(20):
            assert member.stdout.readline() == b"x\n"
        shown = shoal("why", "workers", "--seconds", "1")
        assert shown.returncode == 0, shown.stdout
        assert "Stable, 1 member" in shown.stdout
        assert re.search(r"group started \(shoal-[0-9a-f]{4}\)", shown.stdout)
        watched = shoal("group", "watch", "workers", "--count", "2", "--interval", "0.2", "--json")
        assert json.loads(watched.stdout.splitlines()[0])["text"] == "Stable, 1 member"
        table = shoal("group", "describe", "workers").stdout
        assert re.search(r"shoal-[0-9a-f]{4} .*busy 0-1", table)
        assert re.search(r"busy-0 .*shoal-[0-9a-f]{4}", shoal("group", "lag", "workers").stdout)
        refused = shoal("group", "reset", "workers", "--to", "earliest", "--yes")
        assert refused.returncode == 1
    finally:
        member.terminate()
        member.wait(20)
        if member.stdout is not None:
            member.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["consume", "nowhere", "--timeout", "2"], "nowhere"),
        (["consume", "lines", "--from", "sometime"], "is not a valid position"),
        (["consume", "lines", "--format", "{offfset}"], "fields: topic"),
        (["consume", "lines", "--format", "xml"], "is not a valid format"),
        (["consume", "lines", "--format", "{value.x}"], "'{value.x}' is wrong"),
        (["consume", "lines", "--format", "{value[0]}"], "'{value[0]}' is wrong"),
        (["consume", "lines", "-p", "9"], "has partitions 0 to 0, not 9"),
        (["consume", "(", "--pattern", "-g", "g"], "is not a valid pattern"),
        (["produce", "lines", "--header", "x"], "NAME=VALUE"),
        (["produce", "lines", "-k", ""], "--key-separator is empty"),
        (["produce", "lines", "-p", "9", __file__], "has partitions 0 to 0, not 9"),
        (
            ["group", "reset", "g", "--to", "²", "-t", "lines", "--yes"],
            "'²' is not a valid position",
        ),
        (["topic", "alter", "lines", "-p", str(2**40)], "must be int32"),
        (["topic", "create", "a/b"], "INVALID_TOPIC"),
        (["topic", "create", "x", "-c", "nonsense"], "KEY=VALUE"),
        (["topic", "create", "x", "-c", "retention.mss=1"], "retention.mss"),
        (["topic", "alter", "lines"], "nothing to change"),
        (["group", "lag", "nobody"], "has committed nothing"),
        (["group", "list", "--state", "Steady"], "'Steady' is not one of Empty, Prep"),
        (["topic", "list", "--timeout", "inf"], "--timeout inf: give seconds"),
        (["topic", "list", "--timeout", "nan"], "--timeout nan: give seconds"),
        (["topic", "list", "--timeout", "-1"], "--timeout -1: give seconds"),
        (["consume", "lines", "--format", "{value:>99999999999}"], "is wrong"),
        (["log", "dump", ".", "--from", "9", "--to", "9"], "--to 9 must be greater than --from 9"),
        (["serve", "--partitions", str(10**9)], "more than limits.partitions (20000)"),
        (["serve", "--log-level", "loud"], "'loud' is not one of debug, info, warning, error"),
        (["serve", "--log-format", "xml"], "'xml' is not one of text, json"),
        (["fleet", "report", "--since", "yesterday"], "is not a valid time: use a time such as"),
        (["topic", "list", "-b", "nonsense"], "host:port"),
        (["topic", "list", "--profile", "prod"], "no profile file"),
        (
            ["topic", "list", "--security-protocol", "SASL_SSL", "--sasl-username", "u"],
            "SHOAL_SASL_PASSWORD",
        ),
    ],
)
def test_bad_input_gets_one_line(shoal: Run, arguments: list[str], said: str) -> None:
    shoal("topic", "create", "lines", "-p", "1")
    assert said in one_line(shoal(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "lines", "-g", "g"],
        ["consume", ".*", "--pattern", "-g", "g"],
        ["group", "describe", "g"],
        ["topic", "list"],
    ],
    ids=" ".join,
)
def test_a_cluster_that_is_not_there_is_named_before_and_after_the_wait(
    shoal: Run, arguments: list[str]
) -> None:
    shown = shoal(*arguments, "-b", "127.0.0.1:1", "--timeout", "1")
    first, last = shown.stderr.splitlines()
    assert first.startswith(
        "shoal: nothing is listening on 127.0.0.1:1; trying again (start a broker"
    )
    assert "cannot connect to 127.0.0.1:1: Connection refused" in last
    assert (shown.returncode, shown.stdout) == (1, "")


def test_a_host_without_an_address_is_named_in_words_of_the_command(shoal: Run) -> None:
    shown = shoal("topic", "list", "-b", "nowhere.invalid:9092", "--timeout", "1")
    first, last = shown.stderr.splitlines()
    assert first == (
        "shoal: no address is known for nowhere.invalid; trying again "
        "(name another broker with --bootstrap)"
    )
    assert last.startswith("shoal: ")
    assert (shown.returncode, shown.stdout) == (1, "")


def test_watching_a_group_that_is_not_there_says_so(shoal: Run) -> None:
    shown = shoal("group", "watch", "nobody-yet", "--count", "1")
    assert "Dead (there is no such group now), 0 members" in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--config", "notes"],
        ["plan", "notes"],
        ["user", "set", "ann", "--data-dir", ".", "--password-file", "notes"],
        ["topic", "list", "--password-file", "notes"],
        ["topic", "list", "--profile", "dev"],
    ],
)
def test_a_file_that_is_not_text_is_named(shoal: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "notes").write_bytes(b"a = 1\n\xff\xfe")
    said = one_line(shoal(*arguments, env={"SHOAL_PROFILES": "notes"}))
    assert said.strip() == "shoal: notes is not UTF-8 text (at byte 6)"


def test_a_misspelt_topic_is_told_at_once(shoal: Run, broker: Broker, tmp_path: Path) -> None:
    said = one_line(shoal("consume", "linse", "--timeout", "50"))  # run() waits 60 s
    assert said == "shoal: there is no topic 'linse'; `shoal topic list` shows them"
    reader = subprocess.Popen(
        [PROGRAM, "consume", "linse", "-g", "early", "-n", "1", "-b", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        assert reader.stderr is not None
        said = reader.stderr.readline().decode()
        assert said == "shoal: there is no topic 'linse' yet; waiting for it\n"
        shoal("topic", "create", "linse")
        shoal("produce", "linse", stdin="found\n")
        assert reader.communicate(timeout=60)[0] == b"found\n"
    finally:
        reader.kill()
        reader.communicate()


def test_any_spelling_of_a_state_will_do(shoal: Run) -> None:
    assert shoal("group", "list", "--state", "stable").returncode == 0


def test_why_may_look_back_for_ever(shoal: Run) -> None:
    shown = shoal("why", "nobody", "--seconds", "0.5", "--hours", "inf")
    assert (shown.returncode, shown.stderr) == (3, "")


def test_a_picture_or_columns_without_their_library_say_what_to_install(
    shoal: Run, broker: Broker, tmp_path: Path
) -> None:
    for name in ("PIL", "pyarrow"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    said = one_line(
        shoal("plan", "--example", "deploy", "--png", "x.png", env={"PYTHONPATH": path})
    )
    command = install_command("draw")
    assert said == f"shoal: Pillow, which writes PNG files, is not installed; run: {command}"
    program = f"""
from shoal import Consumer
from shoal.errors import ConfigError
with Consumer(bootstrap_servers={broker.bootstrap_servers!r}, group_id="g") as consumer:
    consumer.subscribe(["anything"])
    try:
        consumer.poll_arrow(1.0)
    except ConfigError as error:
        print(error)
"""
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = f"pyarrow is not installed; run: {install_command('arrow')}\n"
    assert shown.stdout == said, shown.stderr


def test_an_unknown_command_or_flag_names_the_nearest(shoal: Run) -> None:
    shown = shoal("toppic", "list")
    assert shown.returncode == 2
    assert "Did you mean 'topic'" in shown.stderr
    shown = shoal("topic", "list", "--jsn")
    assert shown.returncode == 2
    assert "--json" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "watch", "g", "--interval", "inf"],
        ["fleet", "record", "history", "--every", "1e300"],
        ["why", "g", "--seconds", "inf"],
        ["plan", "--example", "deploy", "--watch", "-1"],
    ],
)
def test_a_time_that_nobody_can_wait_is_wrong_usage(shoal: Run, arguments: list[str]) -> None:
    shown = shoal(*arguments)
    assert shown.returncode == 2
    assert f"Invalid value for '{arguments[-2]}'" in shown.stderr


def test_the_name_of_a_user_cannot_move_the_cursor(shoal: Run, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    place = ("--data-dir", str(tmp_path))
    shown = shoal("user", "set", "a\x1b[2Jb", *place, "--password-file", "password")
    shown.stdout += shoal("user", "list", *place).stdout
    shown.stdout += shoal("user", "remove", "a\x1b[2Jb", *place).stdout
    assert "\x1b" not in shown.stdout
    assert shown.stdout.count("a\\x1b[2Jb") == 3


def test_a_line_without_the_separator_is_named(shoal: Run) -> None:
    shoal("topic", "create", "keyed", "-p", "1")
    shown = shoal("produce", "keyed", "-k", ":", stdin="a:1\nno key here\n")
    assert "no separator ':'" in one_line(shown)


def test_control_characters_reach_the_terminal_escaped(shoal: Run) -> None:
    shoal("topic", "create", "hostile", "-p", "1")
    shoal("produce", "hostile", stdin=b"\x1b[2Jgone\x07 \xff\xfe\n")
    shown = shoal("consume", "hostile").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone\\x07 \\xff\\xfe" in shown
    assert shoal("consume", "hostile", "--format", "json").returncode == 0


def test_any_number_is_shown_as_a_time(shoal: Run, broker: Broker) -> None:
    far = f"message.timestamp.after.max.ms={2**63 - 1}"
    # A record of 1970 is older than any retention: it must not go before the second one comes.
    shoal("topic", "create", "times", "-p", "1", "-c", far, "-c", "retention.ms=-1")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for timestamp_ms in (0, 2**60):
            producer.send("times", b"x", timestamp_ms=timestamp_ms).result(10)
    shown = shoal("consume", "times", "--format", "{time}").stdout
    assert shown == f"1970-01-01T00:00:00.000+00:00\n{2**60}ms\n"


@pytest.mark.parametrize("before", ["0001-01-01", "1969-12-31T23:59", "999999d"])
def test_a_time_before_all_records_is_the_beginning(shoal: Run, before: str) -> None:
    shoal("topic", "create", "beginning", "-p", "1")
    shoal("produce", "beginning", stdin="first\n")
    assert shoal("consume", "beginning", "--from", before, "-n", "1").stdout == "first\n"


def test_a_group_is_not_moved_by_reading(shoal: Run) -> None:
    shown = one_line(shoal("consume", "orders", "-g", "readers", "--from", "15m"))
    assert "shoal group reset readers" in shown


def test_looking_without_committing_leaves_a_group_where_it_is(
    quick: QuickRun, broker: Broker
) -> None:
    quick("topic", "create", "peeked", "-p", "1")
    quick("produce", "peeked", stdin="one\ntwo\nthree\n")
    look = ("consume", "peeked", "-g", "lookers", "-n", "2")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for _ in range(2):
            assert quick(*look, "--no-commit").stdout == "one\ntwo\n"
            assert admin.group_offsets("lookers") == {}
        assert quick(*look).stdout == "one\ntwo\n"
        (now,) = admin.group_offsets("lookers").values()
        assert now is not None
        assert now.offset == 2
        assert quick(*look[:-1], "1", "--no-commit").stdout == "three\n"
        assert admin.group_offsets("lookers") == {TopicPartition("peeked", 0): now}


def test_flags_of_topics_and_groups_do_what_they_say(quick: QuickRun, broker: Broker) -> None:
    quick("topic", "create", "flagged", "-p", "2", "-c", "retention.ms=3600000")
    quick("produce", "flagged", "-p", "0", stdin="x\n")
    quick("produce", "flagged", "-p", "1", stdin="x\n")
    quick("consume", "flagged", "-g", "flaggers", "-n", "2")
    assert "flaggers" in quick("group", "list", "--state", "Empty").stdout
    assert "flaggers" not in quick("group", "list", "--state", "Stable").stdout
    assert "__consumer_offsets" in quick("topic", "list", "--internal").stdout
    assert "__consumer_offsets" not in quick("topic", "list").stdout
    described = ("topic", "describe", "flagged", "--json")
    settings = json.loads(quick(*described).stdout)["settings"]
    assert settings["retention.ms"] == "3600000"
    assert "segment.bytes" not in settings
    assert "segment.bytes" in json.loads(quick(*described, "--all").stdout)["settings"]
    quick("topic", "alter", "flagged", "--unset", "retention.ms")
    assert "retention.ms" not in json.loads(quick(*described).stdout)["settings"]
    quick("group", "reset", "flaggers", "--to", "earliest", "-p", "1", "--yes")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        now = {
            tp.partition: one and one.offset for tp, one in admin.group_offsets("flaggers").items()
        }
    assert now == {0: 1, 1: 0}


def test_a_null_marker_stands_for_a_null_key_or_value(quick: QuickRun) -> None:
    quick("topic", "create", "nulls", "-p", "1")
    quick("produce", "nulls", "-k", ":", "--null-marker", "~", stdin="~:x\nk:~\n~~:~~\n")
    shown = quick("consume", "nulls", "--json").stdout.splitlines()
    found = [(one["key"], one["value"]) for one in map(json.loads, shown)]
    assert found == [(None, "x"), ("k", None), ("~~", "~~")]


def test_a_record_the_broker_refuses_fails_the_command(quick: QuickRun) -> None:
    quick("topic", "create", "narrow", "-p", "1", "-c", "max.message.bytes=1000")
    done = quick("produce", "narrow", stdin=f"{'x' * 5000}\n")
    assert str(done.exception).startswith("MESSAGE_TOO_LARGE")
    assert quick("consume", "narrow").stdout == ""


def test_a_reset_goes_no_further_than_the_log(quick: QuickRun, broker: Broker) -> None:
    quick("topic", "create", "short", "-p", "1")
    quick("produce", "short", stdin="one\ntwo\n")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for to, offset in [("99", 2), ("1", 1), ("2100-01-01", 2), ("1980-01-01", 0)]:
            done = quick("group", "reset", "shorties", "-t", "short", "--to", to, "--yes")
            assert done.exit_code == 0, done.stderr
            (now,) = admin.group_offsets("shorties").values()
            assert now is not None
            assert now.offset == offset, to


def test_reading_ends_where_the_topic_ended_when_it_began(
    quick: QuickRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick("topic", "create", "growing", "-p", "1")
    quick("produce", "growing", stdin="one\ntwo\n")
    ends_now = Consumer.end_offsets

    def ends(consumer: Consumer, *arguments: object) -> object:
        found = ends_now(consumer, *arguments)  # type: ignore[arg-type]  # whatever it is given
        quick("produce", "growing", stdin="later\n")
        return found

    monkeypatch.setattr(Consumer, "end_offsets", ends)
    assert quick("consume", "growing").stdout == "one\ntwo\n"


def test_a_time_means_the_zone_it_names() -> None:
    assert time_ms("2026-01-31T12:00+05:00") == time_ms("2026-01-31T07:00+00:00")
    assert time_ms("1970-01-02T00:00Z") == 86_400_000


def test_what_destroys_asks_first_and_a_pipe_is_no_answer(quick: QuickRun, broker: Broker) -> None:
    quick("topic", "create", "kept", "-p", "1")
    quick("produce", "kept", stdin="one\ntwo\n")
    quick("consume", "kept", "-g", "keepers", "-n", "2")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        before = admin.group_offsets("keepers")
        assert before
        for command in (
            ("group", "delete", "keepers"),
            ("group", "delete", "keepers", "--json"),
            ("group", "reset", "keepers", "--to", "earliest"),
            ("topic", "delete", "kept"),
        ):
            shown = quick(*command, stdin="y\n")
            assert shown.exit_code == 1, command
            assert shown.stderr.endswith("Nothing was changed. Add --yes to do it.\n"), command
            assert admin.group_offsets("keepers") == before, command
            assert "kept" in admin.list_topics(), command
        assert quick("group", "delete", "keepers", "--yes").exit_code == 0
        assert admin.group_offsets("keepers") == {}


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        ("> /dev/full", 1, "shoal: No space left on device\n"),
    ],
)
def test_output_that_goes_nowhere_is_no_traceback(
    shoal: Run, broker: Broker, tmp_path: Path, redirection: str, code: int, said: str
) -> None:
    shoal("topic", "create", "anything")
    shoal("produce", "anything", stdin="x\n")
    for command in ("topic list", "plan --example one-leaves", "consume anything"):
        done = subprocess.run(
            ["bash", "-c", f"{PROGRAM} {command} {redirection}"],
            env={**os.environ, "SHOAL_BOOTSTRAP": broker.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, said), command


def test_a_closed_pipe_is_quiet(shoal: Run, broker: Broker) -> None:
    shoal("topic", "create", "long", "-p", "1")
    shoal("produce", "long", stdin="line\n" * 20_000)
    shown = subprocess.run(
        f"{PROGRAM} consume long -b {broker.bootstrap_servers} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (shown.stdout, shown.stderr) == ("line\n", "")


def test_a_profile_names_the_cluster(shoal: Run, broker: Broker, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[here]\nbootstrap_servers = "{broker.bootstrap_servers}"\n')
    environment = {"SHOAL_PROFILES": str(profiles), "SHOAL_BOOTSTRAP": broker.bootstrap_servers}
    assert shoal("topic", "list", "--profile", "here", env=environment).returncode == 0
    profiles.write_text('[here]\nbootstrap_server = "x:1"\n')
    assert "unknown key 'bootstrap_server'" in one_line(
        shoal("topic", "list", "--profile", "here", env=environment)
    )
    profiles.write_text('[here]\nsasl_password = "c4n4ry"\n')
    os.chmod(profiles, 0o644)
    shown = one_line(shoal("topic", "list", "--profile", "here", env=environment))
    assert "chmod 600" in shown
    assert "c4n4ry" not in shown


@pytest.mark.parametrize("name", ["SHOAL_SASL_PLAIN_WITHOUT_TLS", "SHOAL_SSL_CHECK_HOSTNAME"])
def test_a_switch_in_the_environment_is_true_or_false(shoal: Run, name: str) -> None:
    for value in ("true", "False"):
        assert shoal("topic", "list", env={name: value}).returncode == 0
    shown = one_line(shoal("topic", "list", env={name: "maybe"}))
    assert f"{name}='maybe': set true or false" in shown


def test_help_needs_neither_broker_nor_heavy_imports(shoal: Run) -> None:
    shown = shoal("--help")
    assert shown.returncode == 0
    assert "consume" in shown.stdout
    for command in ("topic", "group", "consume", "produce", "why"):
        assert shoal(command, "--help").returncode == 0
