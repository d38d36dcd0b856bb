"""The program on a real terminal, in other locales, under Ctrl-C, and its completion."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.testing.broker import Broker
from tests.cli.conftest import PROGRAM, Run

pytestmark = pytest.mark.slow


class Terminal:
    """A program whose output (and errors) go to a terminal of a given width."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self.text = ""
        self._leader = leader

    def read_until(self, wanted: str) -> str:
        """What was shown until ``wanted`` came; the timeout of the test ends a wait in vain."""
        while wanted not in self.text:
            assert self._read(), f"{wanted!r} never came: {self.text!r}"
        return self.text

    def read_all(self) -> str:
        while self._read():
            pass
        self.process.wait(20)
        return self.text

    def _read(self) -> bool:
        try:
            data = os.read(self._leader, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # how Linux says that the other side was closed
                raise
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextmanager
def on_terminal(
    broker: Broker,
    *arguments: str,
    width: int = 100,
    stdout: int | None = None,
    typed: str | None = None,
    **more: str,
) -> Iterator[Terminal]:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    hidden = ("NO_COLOR", "COLUMNS", "LINES")  # a test runner's own terminal is not this one
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"SHOAL_BOOTSTRAP": broker.bootstrap_servers, "TERM": "xterm-256color", **more}
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=subprocess.DEVNULL if typed is None else follower,
        stdout=follower if stdout is None else stdout,
        stderr=follower,
        env=environment,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )
    os.close(follower)
    if typed is not None:
        os.write(leader, typed.encode())  # waits in the terminal until it is read
    try:
        yield Terminal(process, leader)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        os.close(leader)


def _hear_interrupts() -> None:
    """Whoever runs the tests in the background has told their children to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_table_fits_the_terminal_and_loses_nothing(shoal: Run, broker: Broker) -> None:
    name = "a-topic-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide"
    shoal("topic", "create", name, "-p", "1")
    with on_terminal(broker, "topic", "list", width=40) as terminal:
        shown = without_colours(terminal.read_all())
    assert max(map(len, shown.replace("\r", "").splitlines())) <= 40
    first_column = "".join(line[:28].strip() for line in shown.splitlines())
    assert name in first_column


def test_colours_are_for_terminals_only(shoal: Run, broker: Broker) -> None:
    shoal("topic", "create", "painted", "-p", "1")
    shoal("produce", "painted", stdin="x\n")
    shoal("consume", "painted", "-g", "painters", "-n", "1")
    with on_terminal(broker, "group", "list") as terminal:
        assert "\x1b[33mEmpty" in terminal.read_all()
    with on_terminal(broker, "group", "list", NO_COLOR="1") as terminal:
        assert "\x1b[33m" not in terminal.read_all()
    assert "\x1b" not in shoal("group", "list").stdout
    why = ("why", "painters", "--seconds", "0.5")
    with on_terminal(broker, *why) as terminal:
        assert "\x1b[31m✗ the group has no active members" in terminal.read_all()
    with on_terminal(broker, *why, NO_COLOR="1") as terminal:
        assert "\x1b" not in terminal.read_all()
    assert "\x1b" not in shoal(*why).stdout


def test_who_waits_is_told_at_once_that_nobody_listens(broker: Broker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = f"shoal: nothing is listening on {address}; trying again"
        command = ("topic", "list", "-b", address, "--timeout", "60")
        with on_terminal(broker, *command) as terminal:
            terminal.read_until(said)
            assert terminal.process.poll() is None
        piped = subprocess.Popen([PROGRAM, *command], stderr=subprocess.PIPE, text=True)
        try:
            assert piped.stderr is not None
            assert piped.stderr.readline().startswith(said)
            assert piped.poll() is None
        finally:
            piped.kill()
            piped.communicate()


@pytest.mark.parametrize(("answer", "is_there"), [("n", True), ("", True), ("y", False)])
def test_a_person_is_asked_before_a_group_is_deleted(
    shoal: Run, broker: Broker, answer: str, is_there: bool
) -> None:
    shoal("topic", "create", "asked", "-p", "1")
    shoal("produce", "asked", stdin="x\n")
    shoal("consume", "asked", "-g", "answerers", "-n", "1")
    command = ("group", "delete", "answerers")
    with on_terminal(broker, *command, typed=f"{answer}\n") as terminal:
        shown = terminal.read_all()
    assert "This deletes the offsets of: answerers" in shown
    assert "Continue? [y/N]" in shown
    assert ("deleted answerers" in shown) is not is_there
    assert terminal.process.returncode == (1 if is_there else 0)
    assert ("answerers" in shoal("group", "list").stdout) is is_there


def test_long_work_shows_how_far_it_is(shoal: Run, broker: Broker, tmp_path: Path) -> None:
    shoal("topic", "create", "bulk", "-p", "1")
    lines = tmp_path / "lines.txt"
    lines.write_text("a line\n" * 50_000)
    with on_terminal(broker, "produce", "bulk", str(lines)) as terminal:
        shown = without_colours(terminal.read_all())
        assert "writing" in shown
        assert "50,000 records written" in shown
    with (
        (tmp_path / "out.txt").open("wb") as out,
        on_terminal(broker, "consume", "bulk", stdout=out.fileno()) as terminal,
    ):
        assert "reading" in terminal.read_all()
    assert (tmp_path / "out.txt").read_text() == lines.read_text()
    assert shoal("consume", "bulk", "-n", "1").stderr == ""


def test_a_group_is_watched_live(shoal: Run, broker: Broker) -> None:
    shoal("topic", "create", "seen", "-p", "2")
    shoal("produce", "seen", stdin="x\n")
    with on_terminal(broker, "group", "watch", "watched", "--interval", "0.1") as terminal:
        terminal.read_until("watched: Dead")
        with on_terminal(broker, "consume", "seen", "-g", "watched") as member:
            member.read_until("x")
            terminal.read_until("joined")
            terminal.read_until("Stable, 1 member")
            member.process.send_signal(signal.SIGINT)
            member.process.wait(20)
        terminal.read_until("left")
        terminal.process.send_signal(signal.SIGINT)
        assert "Traceback" not in terminal.read_all()
        assert terminal.process.returncode == 130


def test_interrupting_a_reader_is_quiet_and_leaves_the_group(shoal: Run, broker: Broker) -> None:
    shoal("topic", "create", "stopped", "-p", "1")
    shoal("produce", "stopped", stdin="first\n")
    with on_terminal(broker, "consume", "stopped", "-g", "leavers") as terminal:
        terminal.read_until("first\r\n")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.read_all().replace("\r", "") == "first\n"
        assert terminal.process.returncode == 130
    assert '"state": "Empty"' in shoal("group", "describe", "leavers", "--json").stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_without_unicode_gets_tables_and_errors(shoal: Run, encoding: str) -> None:
    shoal("topic", "create", "plain", "-p", "1")
    shoal("produce", "plain", stdin="зубатка\n")
    last = ("consume", "plain", "--from", "-1")
    environment = {"PYTHONIOENCODING": encoding}
    shown = shoal(*last, env=environment)
    assert (shown.returncode, shown.stdout) == (
        0,
        "\\u0437\\u0443\\u0431\\u0430\\u0442\\u043a\\u0430\n",
    )
    assert shoal("topic", "describe", "plain", env=environment).returncode == 0
    assert shoal("plan", "--example", "one-leaves", env=environment).returncode == 0
    assert shoal("why", "nobody", "--seconds", "0.5", env=environment).returncode == 3


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("shoal to", "topic"),
        ("shoal topic cre", "create"),
        ("shoal group reset --t", "--to"),
        ("shoal serve --dur", "--durability"),
    ],
)
def test_the_shell_completes_commands_and_flags(shoal: Run, words: str, offered: str) -> None:
    environment = {
        "_SHOAL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert offered in shoal(env=environment).stdout.split()


def test_verbose_says_what_the_client_does_and_no_secret(shoal: Run) -> None:
    shoal("topic", "create", "loud", "-p", "1")
    shown = shoal("topic", "list", "--verbose", env={"SHOAL_SASL_PASSWORD": "c4n4ry"})
    assert shown.returncode == 0
    assert "connected to 127.0.0.1" in shown.stderr
    assert "sasl_password = ****" in shown.stderr
    assert "c4n4ry" not in shown.stderr + shown.stdout


def test_everything_can_be_read_by_programs(shoal: Run) -> None:
    import json

    assert json.loads(shoal("topic", "create", "spoken", "-p", "2", "--json").stdout) == {
        "topic": "spoken",
        "partitions": 2,
    }
    written = shoal("produce", "spoken", "--json", stdin='{"value": "a"}\n{"value": "b"}\n')
    assert json.loads(written.stdout) == {"topic": "spoken", "records": 2}
    read = [json.loads(line) for line in shoal("consume", "spoken", "--json").stdout.splitlines()]
    assert sorted(one["value"] for one in read) == ["a", "b"]
    altered = shoal("topic", "alter", "spoken", "-p", "3", "--json").stdout
    assert json.loads(altered)["partitions"] == 3
    assert json.loads(shoal("topic", "delete", "spoken", "--yes", "--json").stdout) == {
        "deleted": ["spoken"]
    }
