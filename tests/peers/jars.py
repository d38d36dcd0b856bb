"""Apache Kafka's and Spark's published jars, by Maven."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.peers.cache import PeerMissingError, fetched, once, program, run_fetch

KAFKA_VERSION = "4.3.0"
# The connector of Spark 4.2 with the companions that can be had; works under pyspark 4.2 and 4.3.
SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
JAVA_MINIMUM = 17

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>shoal</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>"
    "</dependency>"
)


@once
def java() -> str:
    """The ``java`` command, 17 or newer."""
    command = program("java", "install a JDK, 17 or newer")
    shown = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', shown.stderr)
    if version is None or int(version[1]) < JAVA_MINIMUM:
        raise PeerMissingError(f"java is older than {JAVA_MINIMUM} (install a JDK, 17 or newer)")
    return command


def _maven() -> str:
    return program("mvn", "install Maven to fetch Apache Kafka's jars")


@once
def kafka_jars() -> Path:
    """A directory with Apache Kafka's broker, clients and tools, and all they need."""
    java()

    def fetch(directory: Path) -> None:
        dependencies = "".join(
            _DEPENDENCY.format("org.apache.kafka", artifact, KAFKA_VERSION)
            for artifact in ("kafka_2.13", "kafka-tools")
        )
        (directory / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        run_fetch(
            [_maven(), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."],
            what=f"Apache Kafka {KAFKA_VERSION}",
            cwd=directory,
        )

    return fetched(f"kafka-{KAFKA_VERSION}", fetch)


@once
def kafka_clients_jar() -> Path:
    """The client jar alone: Kafka's own assignors and clients."""
    return kafka_jars() / f"kafka-clients-{KAFKA_VERSION}.jar"


@once
def spark_connector_jars() -> tuple[Path, ...]:
    """The jars of ``spark-sql-kafka-0-10``, for ``spark.jars``."""
    java()

    def fetch(directory: Path) -> None:
        # One by one: Spark's parent pom names a repository that is often out of reach.
        for artifact in SPARK_CONNECTOR:
            run_fetch(
                [
                    _maven(),
                    "-q",
                    "-B",
                    "dependency:copy",
                    f"-Dartifact={artifact}",
                    f"-DoutputDirectory={directory}",
                ],
                what=artifact,
            )

    directory = fetched("spark-connector-4.2.0", fetch)
    return tuple(sorted(directory.glob("*.jar")))
