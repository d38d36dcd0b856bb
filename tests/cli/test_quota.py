"""``shoal quota``, against a broker."""

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


def quota(broker: Broker, *arguments: str) -> Result:
    given = ["quota", *arguments, "--bootstrap", broker.bootstrap_servers]
    return CliRunner().invoke(app, given, catch_exceptions=True)


def test_quotas_are_set_listed_and_removed(broker):
    one = quota(broker, "set", "--user", "ann", "--produce-bytes", "1000", "--request-percent", "5")
    assert one.exit_code == 0, one.output
    quota(broker, "set", "--default-user", "--client-id", "app", "--fetch-bytes", "2000")
    listed = json.loads(quota(broker, "list", "--json").stdout)
    assert listed == [
        {"user": "ann", "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 5.0}},
        {"user": None, "client-id": "app", "quotas": {"consumer_byte_rate": 2000.0}},
    ]
    assert "user (default), client-id app" in quota(broker, "list").output
    assert quota(broker, "remove", "--user", "ann").exit_code == 0
    quota(broker, "remove", "--default-user", "--client-id", "app")
    assert json.loads(quota(broker, "list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set", "--user", "ann"], "nothing to set"),
        (["set", "--produce-bytes", "1"], "whom is the quota for"),
        (["set", "--user", "ann", "--produce-bytes", "0"], "more than 0"),
        (["remove"], "whom is the quota for"),
        (["set", "--user", "a", "--default-user", "--produce-bytes", "1"], "not both"),
    ],
)
def test_a_mistake_is_answered_with_advice(broker, arguments, why):
    assert why in str(quota(broker, *arguments).exception)
