"""What a sink that writes exactly once must keep, whatever goes wrong: T14.

    T14 only transactions that a decision names are committed, and only by a driver that ruled when
        it decided; a micro-batch is decided once, or revised once at a time; no row is committed
        twice, and in the end the rows are those of the input

The model is made of what stands in the logs below their high watermarks: the journal's claims and
decisions in their order, and the records and markers of the output. It shares no code with what it
judges.

Rule: the journal is looked at first: what it allows must stand before what is done by it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from shoal.broker.broker import Broker
from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.records.batch import BatchHeader, decode_batch, iter_headers
from shoal.records.markers import is_abort_marker
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.sink_swarm import JOURNAL, OUTPUT
from shoal.types import TopicPartition

_READ_BYTES = 1 << 20


class SinkWatcher:
    """Watches the journal and the output of one query."""

    def __init__(self, rows: dict[int, list[str]]) -> None:
        self._input = rows
        self._read_to: dict[TopicPartition, int] = {}
        self.holes: set[int] = set()
        """Of the journal: what a power cut took, and nobody was promised."""
        self._claim: list[int] | None = None
        self.decided: dict[tuple[int, int], Any] = {}
        """Micro-batch and revision: its tasks."""
        self._allowed: set[tuple[int, int]] = set()
        """Producer ids and epochs of transactions that a decision names."""
        self._open: dict[tuple[TopicPartition, int], list[tuple[int, str]]] = {}
        """Epoch and row, by partition and producer."""
        self.committed: Counter[str] = Counter()

    def look(self, broker: Broker) -> None:
        for wanted in (JOURNAL, OUTPUT):
            for tp, log in broker.directory.partitions.items():
                if tp.topic == wanted and self._read_to.get(tp, 0) < log.high_watermark:
                    self._look_at(tp, log)

    def _look_at(self, tp: TopicPartition, log: PartitionLog) -> None:
        offset = self._read_to.get(tp, 0)
        while offset < log.high_watermark:
            read = log.read(offset, _READ_BYTES)
            if read.error is ErrorCode.CORRUPT_MESSAGE:
                if tp.topic == JOURNAL:
                    self.holes.add(offset)
                offset += 1
                continue
            demand(read.error is ErrorCode.NONE, "T14", f"{tp} cannot be read at {offset}")
            data = read.read_bytes()
            for position, header in iter_headers(data):
                offset = header.next_offset
                if header.is_control:
                    self._ended(tp, header, commit=not is_abort_marker(data, position))
                    continue
                for record in decode_batch(data, position):
                    key, value = bytes(record.key or b""), bytes(record.value or b"")
                    if tp.topic == JOURNAL:
                        self._noted(json.loads(key)[1], json.loads(value), header)
                    else:
                        mine = self._open.setdefault((tp, header.producer_id), [])
                        mine.append((header.producer_epoch, value.decode()))
        self._read_to[tp] = offset

    def _noted(self, kind: str, said: Any, header: BatchHeader) -> None:
        own = said["token"] == [header.producer_id, header.producer_epoch]
        demand(own, "T14", f"{said} is written by {header.producer_id}, {header.producer_epoch}")
        if kind == "claim":
            self._claim = said["token"]
            return
        if said["token"] != self._claim:
            return  # behind another driver's claim: it does not count
        if said["is_done"]:
            left = self._missing(said["batch"])
            demand(not left, "T14", f"micro-batch {said['batch']} is done without {left}")
            return
        place = said["batch"], said["revision"]
        same = self.decided.setdefault(place, said["tasks"]) == said["tasks"]
        demand(same, "T14", f"micro-batch and revision {place} are decided a second time")
        for task in said["tasks"]:
            if task["transaction"] is not None:
                _, producer_id, epoch, _ = task["transaction"]
                self._allowed.add((producer_id, epoch))

    def _ended(self, tp: TopicPartition, header: BatchHeader, *, commit: bool) -> None:
        for epoch, row in self._open.pop((tp, header.producer_id), []):
            if not commit:
                continue
            is_allowed = (header.producer_id, epoch) in self._allowed
            demand(is_allowed, "T14", f"row {row} is committed, and no decision names it")
            self.committed[row] += 1
            demand(self.committed[row] == 1, "T14", f"row {row} is committed twice")

    def _missing(self, batch_id: int) -> list[str]:
        """Rows that are neither committed nor about to be."""
        under_way = {row for rows in self._open.values() for _, row in rows}
        rows = self._input[batch_id]
        return [row for row in rows if not self.committed[row] and row not in under_way]

    def judge(self) -> None:
        """After the last restart: what came in went out, each row once."""
        wanted = Counter(row for rows in self._input.values() for row in rows)
        lost, added = wanted - self.committed, self.committed - wanted
        demand(not lost, "T14", f"rows are lost: {sorted(lost)}")
        demand(not added, "T14", f"rows were added: {sorted(added)}")

    def demand_nothing_open(self, broker: Broker) -> None:
        for tp, log in broker.directory.partitions.items():
            stable, end = log.last_stable_offset, log.high_watermark
            demand(stable == end, "T14", f"{tp} is stable up to {stable} of {end}")
