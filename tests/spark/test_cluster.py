"""A cluster as Spark's processes see it. No Spark runs here."""

from __future__ import annotations

import socket

import pytest

from shoal.errors import ConnectionFailedError
from shoal.spark.cluster import ClusterStock, Connection, source_config
from shoal.spark.options import parse_source


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_named_within_the_users_patience() -> None:
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
        connection = Connection(source_config(options.properties))
        try:
            with pytest.raises(ConnectionFailedError, match=f"servers=127.0.0.1:{port}: gave up"):
                ClusterStock(connection, options).partitions()
        finally:
            connection.close()
