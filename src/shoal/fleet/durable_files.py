"""Files that are there whole and on disk, or not at all: what a recording is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_parquet(table: pa.Table, path: Path) -> None:
    """Put a table there, in directories made as needed."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, sink.getvalue())


def replace(path: Path, data: Any) -> None:
    """Put a file there, in one step also for whoever reads it now."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def remove(path: Path) -> None:
    """Take a file away for good, and its directory with the last one of a batch."""
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Spark's, where it wrote the file
    folder = path.parent
    rest = list(folder.iterdir())
    if folder.name.startswith("batch=") and all(one.name.startswith((".", "_")) for one in rest):
        for one in rest:
            one.unlink()
        folder.rmdir()
        folder = folder.parent
    _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
