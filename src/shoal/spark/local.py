"""A local Spark session with the settings that make a Python source fast, and registration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.errors import ConfigError, missing_extra
from shoal.spark.noise import without_noise
from shoal.spark.process_cache import TASKS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

JAVA_MINIMUM: Final = 17

# Why each: facts measured with pyspark 4.3, see docs/spark.md.
SETTINGS: Final = {
    # Loopback TCP between JVM and Python workers stalls for 40 ms per task; sockets do not.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
}
JAVA_OPTIONS: Final = (
    # Arrow's Java library checks bounds and nulls at every access to a value; Spark asks for
    # nulls itself and reads what our own process has just written.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)
_SCRIPT: Final = Path(__file__).with_name("worker-python.sh")
PYTHON_VARIABLE: Final = "SHOAL_SPARK_PYTHON"
"""Read by ``worker-python.sh``: the interpreter it starts."""


def session(
    app_name: str = "shoal",
    *,
    cores: int | None = None,
    quiet: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A local session, ready for ``format("shoal")``.

    Args:
        app_name: Shown in Spark's logs.
        cores: How many tasks run at once; all cores by default.
        quiet: Only errors of Spark's own logging.
        settings: Further Spark settings; they win over ours.

    Raises:
        ConfigError: Spark or Java is missing; says what to install.
    """
    check_prerequisites()
    from pyspark.sql import SparkSession

    count = cores or os.cpu_count() or 2
    os.environ[PYTHON_VARIABLE] = sys.executable
    # The second name is that of the processes which plan, on the driver.
    python = worker_python((settings or {}).get("spark.master", "local"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name) in (None, str(_SCRIPT)):  # the user's choice, not an earlier one
            os.environ[name] = python
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ[TASKS_VARIABLE] = str(count)
    builder = SparkSession.builder.appName(app_name).master(f"local[{count}]")
    chosen = {**SETTINGS, "spark.sql.shuffle.partitions": str(count), **(settings or {})}
    options = [*JAVA_OPTIONS, *([_quiet_option()] if quiet else [])]
    options.append(chosen.get("spark.driver.extraJavaOptions", ""))  # the last one said wins
    chosen["spark.driver.extraJavaOptions"] = " ".join(options).strip()
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with without_noise() if quiet else nullcontext():
        spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def _quiet_option() -> str:
    path = Path(__file__).with_name("quiet-log4j2.properties")
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


def worker_python(master: str) -> str:
    """What Spark starts as Python: where it can, without compiling pyspark again each time.

    Executors of a cluster get the path from here, but neither the script nor its variable.
    """
    is_here = master.partition("[")[0] == "local" and "SPARK_HOME" not in os.environ
    return str(_SCRIPT) if is_here and os.access(_SCRIPT, os.X_OK) else sys.executable


def register(spark: SparkSession) -> None:
    """Make ``format("shoal")`` known to a session; not needed where the package is installed."""
    from shoal.spark.source import ShoalDataSource

    spark.dataSource.register(ShoalDataSource)


def check_prerequisites() -> None:
    """Spark and a fitting Java are there.

    Raises:
        ConfigError: with one line that says what to install.
    """
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError:
        raise missing_extra("Spark", "spark") from None
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or shutil.which(java) is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "Java is not installed"
        raise ConfigError(f"{where}; Spark needs a JDK, {JAVA_MINIMUM} or newer")
    version = _java_version(java)
    if version is not None and version < JAVA_MINIMUM:
        raise ConfigError(f"Java is version {version}; Spark needs {JAVA_MINIMUM} or newer")


def _java_version(java: str) -> int | None:
    shown = subprocess.run(  # noqa: S603 - the path is the user's own Java
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    digits = shown.split('version "')[-1].split(".")
    first = digits[0] if digits[0] != "1" else digits[1]
    return int(first) if first.isdigit() else None
