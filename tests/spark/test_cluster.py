"""A cluster as Spark's processes see it. No Spark runs here."""

from __future__ import annotations

import socket

import pytest

from shoal.errors import ConfigError, ConnectionFailedError
from shoal.spark.cluster import ClusterClient, ClusterStock, source_config
from shoal.spark.options import parse_source


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_named_at_once_and_within_the_users_patience(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        port = nobody.getsockname()[1]
        options = parse_source(
            {
                "kafka.bootstrap.servers": f"127.0.0.1:{port}",
                "kafka.default.api.timeout.ms": "400",
                "kafka.request.timeout.ms": "400",
                "subscribe": "orders",
            },
            "batch",
        )
        connection = ClusterClient(source_config(options.properties))
        try:
            with pytest.raises(ConnectionFailedError, match=f"servers=127.0.0.1:{port}: gave up"):
                ClusterStock(connection, options).partitions()
        finally:
            connection.close()
    refused = f"cannot connect to 127.0.0.1:{port}: Connection refused; trying again"
    assert caplog.messages == [refused]


@pytest.mark.slow
def test_a_listener_that_wants_sasl_says_so() -> None:
    from shoal.broker.config import Listener
    from shoal.testing.broker import Broker

    listener = Listener(port=0, sasl=("SCRAM-SHA-256",))
    with Broker(listeners=(listener,), users={"ann": "secret"}) as broker:
        options = parse_source(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}, "batch"
        )
        client = ClusterClient(source_config(options.properties))
        try:
            with pytest.raises(ConfigError, match=r"want SASL \(they offer SCRAM-SHA-256\)"):
                ClusterStock(client, options).partitions()
        finally:
            client.close()
