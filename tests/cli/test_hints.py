"""What to type next after a broker said no."""

from __future__ import annotations

import re

import pytest

from shoal.cli.commands import COMMANDS
from shoal.cli.hints import HINTS, with_hint
from shoal.errors import BrokerError, ConfigError, ErrorCode
from tests.cli.conftest import Run


def test_a_broker_error_is_followed_by_the_command_that_helps() -> None:
    shown = with_hint(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'orders'"))
    assert shown.endswith("'orders'; `shoal topic list` shows the topics")


@pytest.mark.parametrize(
    ("code", "detail", "command"),
    [
        (ErrorCode.NON_EMPTY_GROUP, "stop the members of 'b g' first", "group describe 'b g'"),
        (ErrorCode.INVALID_PARTITIONS, "orders: it has 12", "topic describe orders"),
        (ErrorCode.INVALID_PARTITIONS, "it has 12", "topic describe NAME"),
    ],
)
def test_the_command_names_what_the_error_is_about(
    code: ErrorCode, detail: str, command: str
) -> None:
    assert f"`shoal {command}` shows" in with_hint(BrokerError(code, detail))


def test_an_error_that_names_a_command_and_one_of_another_kind_stay_as_they_are() -> None:
    named = BrokerError(ErrorCode.NON_EMPTY_GROUP, "`shoal group describe g` shows who is in it")
    assert with_hint(named) == str(named)
    assert with_hint(ConfigError("give --to")) == "give --to"


@pytest.mark.parametrize("hint", HINTS.values())
def test_every_hint_names_commands_that_exist(hint: str) -> None:
    named = re.findall(r"`shoal ([a-z-]+)", hint)
    assert named
    assert set(named) <= set(COMMANDS)


def test_a_topic_that_exists_is_said_once_with_the_command_that_shows_it(shoal: Run) -> None:
    assert shoal("topic", "create", "twice", "-p", "3").returncode == 0
    said = "shoal: topic 'twice' exists already; `shoal topic describe twice` shows it\n"
    shown = shoal("topic", "create", "twice")
    assert (shown.returncode, shown.stderr) == (1, said)
    assert shoal("topic", "alter", "twice", "-p", "2").stderr.endswith(
        "a topic can only grow; `shoal topic describe twice` shows it\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (("topic", "describe", "nope"), "`shoal topic list`"),
        (("plan", "--group", "nope"), "there is no group 'nope'; `shoal group list`"),
        (("group", "delete", "nope", "--yes"), "`shoal group list`"),
        (("acl", "list"), "`shoal serve --authorize`"),
        (("transaction", "describe", "nope"), "`shoal transaction list`"),
    ],
)
def test_a_command_that_fails_says_what_to_type(
    shoal: Run, line: tuple[str, ...], hint: str
) -> None:
    shown = shoal(*line)
    assert shown.returncode == 1
    assert len(shown.stderr.splitlines()) == 1
    assert hint in shown.stderr
