"""Topics straight from the segment files of a data directory: no broker (option ``logDir``)."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.spark.options import SourceOptions
from shoal.spark.stock import Stock


def log_files(options: SourceOptions) -> Stock:
    """The records of a data directory."""
    raise ConfigError(f"option logDir={options.log_dir}: reading files is not there yet")
