"""A broker for all checks, the doors into it, and the table of client by check."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from shoal.broker.config import Listener
from shoal.testing.broker import Broker
from tests.conformance.client import Door
from tests.conformance.table import TABLE_VARIABLE, write_table

USER, PASSWORD = "ada", "correct horse"

_outcomes: dict[tuple[str, str], str] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember how each check of each client went: ``test_<check>[<client>…]``."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
    client = getattr(item, "callspec", None) and item.callspec.params.get("client")  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
    name = getattr(client, "name", client)
    if not isinstance(name, str) or (report.when != "call" and report.passed):
        return
    check = item.originalname.removeprefix("test_").replace("_", " ")  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
    for parameter, value in item.callspec.params.items():  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
        check += "" if parameter == "client" else f": {value}"
    result = {"passed": "yes", "failed": "FAILED"}.get(report.outcome)
    if result is None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        result = f"not run: {reason.removeprefix('Skipped: ')}"
    key = (check, name)
    if _outcomes.get(key) != "FAILED":
        _outcomes[key] = result


def pytest_sessionfinish() -> None:
    target = os.environ.get(TABLE_VARIABLE)
    if target and _outcomes:
        write_table(Path(target), _outcomes)


@pytest.fixture(autouse=True)
def _their_leaks_are_theirs() -> Iterator[None]:
    """Sockets that a client forgot are collected within its own test, where they are forgiven."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def conformance_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    guarded = Listener(
        port=0,
        certificate_file=str(directory / "server.pem"),
        key_file=str(directory / "server.pem"),
        sasl=("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"),
        advertised=("localhost", 0),
    )
    with Broker(
        listeners=(Listener(port=0), guarded), users={USER: PASSWORD}, durability="group"
    ) as broker:
        broker.certificate_authority_file = str(directory / "ca.pem")  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
        yield broker


@pytest.fixture
def door(conformance_broker: Broker) -> Door:
    return Door(conformance_broker.bootstrap_servers)


@pytest.fixture
def guarded_door(conformance_broker: Broker) -> Door:
    """TLS and a user with a password."""
    port = conformance_broker.live.listeners[1].port
    authority = conformance_broker.certificate_authority_file  # type: ignore[attr-defined]  # pytest's items and outcomes are typed more loosely
    return Door(f"localhost:{port}", ca_file=authority, user=USER, password=PASSWORD)


@pytest.fixture
def topic(conformance_broker: Broker, request: pytest.FixtureRequest) -> str:
    """Four partitions, named after the test."""
    name = "".join(c if c.isalnum() or c == "-" else "-" for c in request.node.name)[-200:]
    conformance_broker.create_topic(name, 4)
    return name


@pytest.fixture
def generation(conformance_broker: Broker) -> Callable[[str], int]:
    """The generation of a group, by the broker's own knowledge."""

    def ask(group: str) -> int:
        def look(live: Any) -> int:
            return int(live.groups.runtime_of(group).machine.group(group).generation)

        return conformance_broker.on_loop(look)

    return ask
