"""One Spark session and one broker for the whole run: both are costly to start, cheap to share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peers import PeerMissingError, need
from tests.peers.jars import java, spark_connector_jars
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal.testing.broker import Broker

# Short jobs: less compiling and a simple collector start faster (docs/spark.md).
_SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


# Spark's callback server waits with select(), which knows no descriptor above 1023; the brokers of
# the tests before may have taken all of those. So a few are kept from the start.
_KEPT = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]


def _listen_for_callbacks(spark: SparkSession) -> None:
    """Start the server that ``foreachBatch`` and listeners need, on a descriptor it can use."""
    from pyspark.java_gateway import ensure_callback_server_started

    while _KEPT:
        os.close(_KEPT.pop())
    ensure_callback_server_started(spark.sparkContext._gateway)


def _end(spark: SparkSession) -> None:
    """Stop Spark and see its Java off: it would outlive the tests by a moment."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session writes its event log, for the search for secrets."""
    return tmp_path_factory.mktemp("event-log")


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, event_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session of the run; with Spark's own Kafka connector if a selected test compares."""
    need(java)
    pytest.importorskip("pyspark")
    from shoal.spark.local import session

    settings = {
        "spark.driver.extraJavaOptions": _SHORT_JOBS,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.session.timeZone": "UTC",
    }
    if any(item.get_closest_marker("kafka") for item in request.session.items):
        # Without it, the tests that need it say so themselves.
        with suppress(PeerMissingError):
            settings["spark.jars"] = ",".join(map(str, spark_connector_jars()))
    spark = session("shoal-tests", cores=2, quiet=True, settings=settings)
    _listen_for_callbacks(spark)
    yield spark
    _end(spark)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    from shoal.testing.broker import Broker

    with Broker() as running:
        yield running


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Topics]:
    """Topics whose names belong to this test alone, and what was written to them."""
    with Topics(broker.bootstrap_servers, request.node.name) as made:
        yield made


@pytest.fixture
def python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs started by a test find the tests' own modules."""
    root = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", root if not before else f"{root}{os.pathsep}{before}")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
