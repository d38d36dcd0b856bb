"""What the shell offers: names of the cluster, quickly or not at all."""

from __future__ import annotations

import socket
import threading
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from shoal.cli import completion
from shoal.testing.broker import Broker
from tests.cli.conftest import Run


def _context(servers: str, **more: Any) -> Any:
    return SimpleNamespace(params={"bootstrap_servers": servers, **more})


def test_topics_and_groups_of_the_cluster_are_offered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "LIMIT_S", 60.0)  # a busy machine is not the question here
    from shoal.client.admin import Admin
    from shoal.types import OffsetAndMetadata, TopicPartition

    servers = broker.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        for name in ("orders", "offers", "payments"):
            admin.create_topic(name, partitions=1)
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(0)})
    assert completion.topics(_context(servers), "o") == ["offers", "orders"]
    assert "__consumer_offsets" not in completion.topics(_context(servers), "")
    assert "__consumer_offsets" in completion.topics(_context(servers), "__")
    assert completion.groups(_context(servers), "bi") == ["billing"]


def test_completion_never_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against somebody who takes the connection and never says a word."""
    monkeypatch.setattr(completion, "LIMIT_S", 0.2)
    started = threading.Event()

    def answer(*_: object) -> list[str]:
        started.wait(30)  # nobody sets it
        return ["late"]

    monkeypatch.setattr(completion, "_answer", answer)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        assert completion.topics(_context(servers), "") == []
    assert time.monotonic() - began < 15


def test_what_goes_wrong_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """No password, no profile file, no such host: nothing is offered, nobody is asked."""
    monkeypatch.setattr(completion, "LIMIT_S", 5.0)
    assert completion.topics(_context("x", security_protocol="SASL_PLAINTEXT"), "") == []
    assert completion.groups(_context("x", profile="absent"), "") == []
    assert completion.groups(_context(":::"), "") == []


def test_scenarios_and_schemes_are_offered_without_a_cluster() -> None:
    assert "member-crashes" in completion.scenarios("member-")
    assert completion.schemes("coop") == ["cooperative"]
    assert "one-leaves" in completion.plan_examples("one")


@pytest.mark.parametrize(
    ("module", "command", "name"),
    [
        ("consume", None, "topics"),
        ("consume", None, "group"),
        ("produce", None, "topic"),
        ("why", None, "group"),
        ("plan", None, "example"),
        ("topic", "describe", "name"),
        ("topic", "delete", "names"),
        ("group", "list", "topic"),
        ("group", "reset", "group"),
        ("group", "delete", "groups"),
        ("lab", "compare", "scenario"),
        ("lab", "run", "scheme"),
    ],
)
def test_arguments_are_completed(module: str, command: str | None, name: str) -> None:
    found: Any = typer.main.get_command(import_module(f"shoal.cli.{module}").app)
    if command is not None:
        found = found.commands[command]
    (param,) = [one for one in found.params if one.name == name]
    assert param._custom_shell_complete is not None


@pytest.mark.slow
def test_the_shell_completes_names(shoal: Run) -> None:
    words = "shoal lab compare rolling"
    environment = {
        "_SHOAL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert "rolling-restart" in shoal(env=environment).stdout.split()
