"""What Spark Declarative Pipelines need beyond pyspark: the packages of Spark Connect."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from tests.peers.cache import fetched, once, run_fetch

PACKAGES = (
    "grpcio==1.85.1",
    "grpcio-status==1.85.1",
    "googleapis-common-protos==1.76.0",
    "protobuf==7.36.2",
    "zstandard==0.25.0",
)


@once
def pipeline_packages() -> Path:
    """A directory for PYTHONPATH; they are no dependency of Shoal, so they stay out of its lock."""

    def fetch(directory: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run_fetch(
            [*command, "--no-deps", "--target", str(directory), *PACKAGES],
            what="the packages of Spark Connect",
        )

    version = f"{sys.version_info.major}{sys.version_info.minor}"
    name = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    return fetched(f"connect-{version}-{name}", fetch)
