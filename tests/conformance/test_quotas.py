"""Apache Kafka's own tool sets, shows and removes quotas of our broker."""

from __future__ import annotations

import pytest

from shoal import Admin
from shoal.testing.broker import Broker
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.kafka]
NAMES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def test_kafka_configs_sets_shows_and_removes_quotas() -> None:
    need(java)
    need(kafka_jars)
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:

        def configs(*arguments: str) -> str:
            where = ("--bootstrap-server", broker.bootstrap_servers)
            done = tool("kafka.admin.ConfigCommand", *where, *arguments, timeout=100)
            assert done.returncode == 0, done.stdout + done.stderr[-2000:]
            return done.stdout

        ann = ("--entity-type", "users", "--entity-name", "ann")
        values = ",".join(f"{name}={number}" for number, name in enumerate(NAMES, 1_000))
        configs("--alter", *ann, "--add-config", values)
        assert admin.describe_quotas() == {
            (("user", "ann"),): {name: float(n) for n, name in enumerate(NAMES, 1_000)}
        }
        shown = configs("--describe", *ann)
        assert all(f"{name}={n}" in shown for n, name in enumerate(NAMES, 1_000)), shown
        configs("--alter", *ann, "--delete-config", ",".join(NAMES))
        assert admin.describe_quotas() == {}
