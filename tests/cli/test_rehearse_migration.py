"""``shoal plan --rehearse-migration`` on live groups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner, Result

from shoal import Admin, Assignor, Consumer, TopicPartition
from shoal.assign import Assignment
from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.cli.commands import app
from shoal.errors import BrokerError, ErrorCode
from shoal.testing.broker import Broker
from tests.patience import PATIENCE_S


class Attaching(Assignor):
    """A custom assignor that attaches bytes."""

    name = "attaching"

    def assign(self, metadata, subscriptions):
        tps = [TopicPartition("t", number) for number in range(metadata.partition_counts["t"])]
        return {member: Assignment(tps, b"mine") for member in subscriptions}


@contextmanager
def joined(broker: Broker, **settings) -> Iterator[None]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", **settings) as consumer:
        consumer.subscribe(["t"])
        end = time.monotonic() + 2 * PATIENCE_S
        while not consumer.assignment():
            assert time.monotonic() < end
            consumer.poll(0.1)
        yield


def rehearse(broker: Broker, *more: str) -> Result:
    where = ["--bootstrap", broker.bootstrap_servers]
    return CliRunner().invoke(app, ["plan", "--rehearse-migration", "g", *more, *where])


def test_what_is_rehearsed_is_what_happens():
    with Broker(topics={"t": 4}) as broker:
        with joined(broker, assignors=["range"]):
            shown = rehearse(broker)
            assert shown.exit_code == 0, shown.output
            assert "1 member; it would be converted" in shown.output
            assert "uniform (broker)" in shown.output
            answer = json.loads(rehearse(broker, "--json").output)
            assert not answer["blocked"]
            assert [row["step"].split(", ")[1] for row in answer["steps"]] == [
                "range",
                "uniform (broker)",
                "range (broker)",
            ]
        with joined(broker, group_protocol="consumer"):
            assert "speaks the consumer protocol already" in rehearse(broker).output


def test_what_is_blocked_is_said_and_would_be_refused():
    groups = GroupSettings(consumer_migration_policy="downgrade")
    with (
        Broker(topics={"t": 4}, config=BrokerConfig(groups=groups)) as broker,
        joined(broker, assignors=[Attaching]),
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        shown = rehearse(broker)
        assert shown.exit_code == 3, shown.output
        assert "it would be refused" in shown.output
        assert "group.consumer.migration.policy is downgrade" in shown.output
        assert "'attaching' attaches data" in shown.output
        assert admin.describe_group("g").members[0].attached == 4
        with pytest.raises(BrokerError) as refused, joined(broker, group_protocol="consumer"):
            pass
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("more", [("--group", "g"), ("--example", "unequal")])
def test_another_group_beside_it_is_refused(more):
    shown = CliRunner().invoke(app, ["plan", "--rehearse-migration", "g", *more])
    assert shown.exit_code != 0


def test_a_group_nobody_knows_is_an_error():
    with Broker() as broker:
        shown = rehearse(broker)
        assert shown.exit_code != 0
