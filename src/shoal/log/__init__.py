"""Partition logs on disk, in Kafka's own format.

``LogDirectory`` holds ``PartitionLog``s; ``Syncer`` makes appends durable for many at once. In this
package only ``disk.py`` touches files, and ``recovery.py`` judges bytes without touching any.
"""

from __future__ import annotations

from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.durability import Syncer
from shoal.log.jobs import Job, run_job
from shoal.log.partition import AppendResult, Origin, PartitionLog, ReadResult

__all__ = [
    "AppendResult",
    "Durability",
    "Job",
    "LogConfig",
    "LogDirectory",
    "Origin",
    "PartitionLog",
    "ReadResult",
    "Syncer",
    "run_job",
]
