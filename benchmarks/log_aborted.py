"""Committed reads from a log with very many aborted transactions.

Each transaction is one batch of one record and its marker. A fetch reads 64 KiB below the last
stable offset and finds which transactions were aborted in it; both logs are asked in turn, and
CPU time is counted. The index is what a restarted broker loads into memory for the large log.

Goals: a fetch at the start, in the middle and at the end of a log with 1,000,000 aborted
transactions takes at most 1.2 times as long as with 1,000; the index takes less than 64 MB.

    python -m benchmarks log_aborted [--transactions N]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.log import NOW_MS, TP, a_directory, opened
from benchmarks.measuring import Report, Row, json_argument
from shoal.errors import ErrorCode
from shoal.log.partition import Origin, PartitionLog
from shoal.records.batch import encode_batch
from shoal.records.markers import encode_marker

FETCH_BYTES = 64 << 10
FEW = 1000
FETCHES = 100
ROUNDS = 15


def fill(path: Path, transactions: int) -> None:
    """Many at a time, as the broker itself may append them."""
    directory = opened(path)
    log = directory.create(TP, now_ms=NOW_MS)
    pairs = [_transaction(producer_id) for producer_id in range(50)]
    for number in range(0, transactions, len(pairs)):
        data = b"".join(pairs[: transactions - number])
        result = log.append(data, now_ms=NOW_MS, origin=Origin.BROKER)
        assert result.error is ErrorCode.NONE, result
    directory.close()


def _transaction(producer_id: int) -> bytes:
    """A batch and the marker that aborts it."""
    return encode_batch(
        [(None, b"value", (), NOW_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
    ) + encode_marker(commit=False, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)


def fetch(log: PartitionLog, offset: int) -> int:
    read = log.read(offset, FETCH_BYTES, max_offset=log.last_stable_offset)
    return len(log.aborted_transactions(offset, read.next_offset))


def fetches_ms(log: PartitionLog, offset: int) -> float:
    began = time.process_time()
    for _ in range(FETCHES):
        fetch(log, offset)
    return (time.process_time() - began) * 1000 / FETCHES


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main(arguments: list[str]) -> None:
    many = 1_000_000
    if "--transactions" in arguments:
        many = int(arguments[arguments.index("--transactions") + 1])
    report = Report("log_aborted")
    with a_directory() as few_path, a_directory() as many_path:
        fill(few_path, FEW)
        fill(many_path, many)
        few = opened(few_path).partitions[TP]
        before_mb = resident_mb()
        large = opened(many_path).partitions[TP]
        fetch(large, 0)
        index_mb = resident_mb() - before_mb
        listed = len(large.aborted_transactions(0, large.end_offset))
        assert listed == many, listed
        for name, share in (("start", 0.0), ("middle", 0.5), ("end", 1.0)):
            places = [place_of(log, share) for log in (few, large)]
            assert fetch(few, places[0]) == fetch(large, places[1])
            took = [
                (fetches_ms(few, places[0]), fetches_ms(large, places[1])) for _ in range(ROUNDS)
            ]
            small_ms, large_ms = sorted(took, key=lambda pair: pair[1] / pair[0])[ROUNDS // 2]
            report.add(
                Row(
                    f"fetch at the {name}, {many:,} aborted transactions",
                    "ms of CPU",
                    large_ms,
                    peer=small_ms,
                    peer_name=f"{FEW:,} aborted",
                    goal=">= 0.83x",
                    higher_is_better=False,
                )
            )
        report.add(Row("transaction index in memory", "MB", index_mb, goal="< 64"))
    report.finish(json_argument(arguments))


def place_of(log: PartitionLog, share: float) -> int:
    """An even offset (where data stands), with a whole fetch behind it."""
    size = log.size_bytes
    per_offset = size / log.end_offset
    last = log.end_offset - int(FETCH_BYTES / per_offset) - 2
    return int(share * last) // 2 * 2


if __name__ == "__main__":
    main(sys.argv[1:])
