"""``shoal telemetry``, against a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.commands import app
from shoal.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def telemetry(broker: Broker, *arguments: str) -> Result:
    given = ["telemetry", *arguments, "--bootstrap", broker.bootstrap_servers]
    return CliRunner().invoke(app, given, catch_exceptions=True)


def test_subscriptions_are_set_listed_and_removed(broker: Broker) -> None:
    match = ("--match", "client_id=a.*", "--match", "client_software_name=librdkafka")
    one = telemetry(broker, "set", "lag", "--metrics", "*", "--interval", "2.5", *match)
    assert one.exit_code == 0, one.output
    assert json.loads(telemetry(broker, "list", "--json").stdout) == [
        {
            "name": "lag",
            "metrics": "*",
            "interval.ms": "2500",
            "match": "client_id=a.*,client_software_name=librdkafka",
        }
    ]
    assert "2500" in telemetry(broker, "list").output
    assert telemetry(broker, "remove", "lag").exit_code == 0
    assert json.loads(telemetry(broker, "list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set", "lag"], "nothing to set"),
        (["remove", "none"], "there is no subscription 'none'"),
        (["set", "lag", "--match", "x=y"], "Illegal client matching pattern: x=y"),
    ],
)
def test_a_mistake_is_answered_with_advice(broker: Broker, arguments: list[str], why: str) -> None:
    assert why in str(telemetry(broker, *arguments).exception)
