"""Make ``directory-VERSION/``: a data directory of this release, for later ones to open.

    python -m tests.golden.make_directory

Run it once per release and commit the result; never change one that is there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

from shoal import __version__
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.records.batch import encode_batch
from shoal.types import TopicPartition

START_MS = 1_700_000_000_000
TARGET = Path(__file__).parent / f"directory-{__version__}"


def fill(path: Path) -> None:
    """A rolled topic with an idempotent producer, a compacted one, a raised log start."""
    directory = LogDirectory.open(
        str(path), now_ms=START_MS, durability=Durability.OS, cluster_id="golden"
    )
    rolled = directory.create(
        TopicPartition("rolled", 0),
        now_ms=START_MS,
        topic_id=UUID(int=1),
        config=LogConfig(segment_bytes=1500, index_interval_bytes=200),
    )
    for index in range(40):
        row = (b"key-%d" % index, b"value-%d" % index, [("n", b"%d" % index)], START_MS + index)
        data = encode_batch(
            [row], codec=index % 5, producer_id=7, producer_epoch=1, base_sequence=index
        )
        rolled.append(data, now_ms=START_MS)
    rolled.delete_records(3)
    compacted = directory.create(
        TopicPartition("compacted", 0),
        now_ms=START_MS,
        topic_id=UUID(int=2),
        config=LogConfig(
            segment_bytes=800,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
        ),
    )
    for index in range(40):
        value = None if index == 11 else b"%d" % index
        kept = (b"%d" % (index % 4), value, (), START_MS + index)
        compacted.append(encode_batch([kept]), now_ms=START_MS)
    run_job(directory.checkpoint(START_MS))
    run_job(directory.compact(START_MS))
    directory.close()


def main() -> None:
    assert not TARGET.exists(), f"{TARGET} is there; a golden directory is never changed"
    fill(TARGET)
    shutil.rmtree(TARGET / "lost+found", ignore_errors=True)
    (TARGET / ".lock").unlink()


if __name__ == "__main__":
    main()
