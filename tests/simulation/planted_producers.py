"""Bugs planted on the way of a record into the log: the producer's, the broker's, the log's.

A simulation of producers must notice them. Whatever such a simulation found in the real code is
here too.
"""

from __future__ import annotations

from tests.simulation.bug import Bug

SENDING = "client/sender.py"
QUEUE = "client/partition_queue.py"
PRODUCERS = "log/producers.py"
PARTITION = "log/partition.py"

PRODUCER_BUGS = (
    # --- the producer: order and numbers ---------------------------------------------------------
    Bug(
        "a retry gets another sequence",
        QUEUE,
        "if self.producer is not None and batch.base_sequence == NO_SEQUENCE:",
        "if self.producer is not None:",
    ),
    Bug(
        "what may be stored is numbered anew",
        QUEUE,
        "lost = [batch for batch in self.waiting if batch.copies]",
        "lost = [batch for batch in self.waiting if not isinstance(batch.copies, int)]\n"
        "        for batch in self.waiting:\n"
        "            batch.copies = 0",
    ),
    Bug(
        "the next epoch goes on counting",
        QUEUE,
        "        self.next_sequence = 0\n        self.sequence_is_broken = False\n        self",
        "        self.sequence_is_broken = False\n        self",
    ),
    Bug(
        "a broken sequence starts over in the same epoch",
        QUEUE,
        "self.producer = (producer_id, epoch + 1)",
        "self.producer = (producer_id, epoch)",
    ),
    Bug(
        "the first batch may be overtaken",
        SENDING,
        "(queue.is_recovering or not queue.is_known)",
        "queue.is_recovering",
    ),
    Bug(
        "a failed batch is overtaken by what waits",
        QUEUE,
        "self.waiting.extendleft(reversed(self.failed))",
        "self.waiting.extend(self.failed)",
    ),
    Bug(
        "without idempotence a partition has several batches under way",
        SENDING,
        "config.max_in_flight_requests_per_connection if config.is_idempotent else 1",
        "config.max_in_flight_requests_per_connection",
    ),
    Bug(
        "a partition recovers before all answers are in",
        SENDING,
        "            if queue.is_recovering and not queue.in_flight:",
        "            if queue.is_recovering:",
    ),
    Bug(
        "the halves of a batch start at the same sequence",
        QUEUE,
        "                sequence = (sequence + part.record_count) % _SEQUENCES\n",
        "",
    ),
    # --- the producer: what it says --------------------------------------------------------------
    Bug(
        "a lost answer is an acknowledgement",
        SENDING,
        """            self._cluster.mark_stale()
            for batch in _unsettled(batches):
                self._failed(batch, error)""",
        """            self._cluster.mark_stale()
            for batch in _unsettled(batches):
                self._acknowledged(batch, 0, None)""",
    ),
    Bug(
        "the offset of a batch is told for its neighbour",
        SENDING,
        "found = by_partition.get((name, index)) or by_partition.get((ids[name], index))",
        "found = next(iter(by_partition.values()), None)",
    ),
    Bug(
        "a batch that expires is forgotten",
        SENDING,
        "                late.append(batch)\n",
        "                late = late[:]\n",
    ),
    # --- the log: who sent what ------------------------------------------------------------------
    Bug(
        "a batch that is there is appended again",
        PRODUCERS,
        "                    return batch\n",
        "                    return None\n",
    ),
    Bug(
        "a batch may leave a gap",
        PRODUCERS,
        "        if first != expected:\n",
        "        if False:\n",
    ),
    Bug(
        "an old epoch is as good as the new one",
        PRODUCERS,
        "            return ErrorCode.INVALID_PRODUCER_EPOCH\n        # After a marker",
        "            return None\n        # After a marker",
    ),
    Bug(
        "producers are forgotten by a restart",
        "log/replaying.py",
        "            producers.note(header, header.last_offset)",
        "            pass",
    ),
    Bug(
        "a snapshot of lost batches is believed",
        "log/loading.py",
        "            limit = min(limit, max(self.known.recovery_point, segments[0].base_offset))",
        "            limit = 1 << 60",
    ),
    Bug(
        "a producer id is given out twice",
        "broker/catalogue_changes.py",
        'await self.commit([{"kind": "producer_ids", "next": end}])',
        "pass",
    ),
    # --- the log: what is stored -----------------------------------------------------------------
    Bug(
        "records are acknowledged before they are stored",
        "log/durability.py",
        "        if log.high_watermark >= end_offset:\n            if",
        "        if True:\n            if",
    ),
    Bug(
        "a retry is acknowledged before its first copy is stored",
        "log/partition.py",
        "        return self.last_offset + 1",
        "        return 0 if self.duplicate else self.last_offset + 1",
    ),
    Bug(
        "a sync that failed is believed",
        PARTITION,
        "        if error is not None:\n            self.fence(",
        "        if False:\n            self.fence(",
    ),
    Bug(
        "the directory of a new segment is not synced",
        PARTITION,
        "self.unsynced.add(files=index_files, directories=[self.directory])",
        "self.unsynced.add(files=index_files)",
    ),
    Bug(
        "an empty segment makes a hole of the end before it",
        "log/loading.py",
        "            if found.end_position or found.bad:\n",
        "            if True:\n",
    ),
)
