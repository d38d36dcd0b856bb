"""Exactly-once into your own database: results and offsets in one transaction.

Kafka's committed offsets are not used. Each batch of records writes its results *and* the next
offsets in one SQLite transaction; after a crash the consumer starts from what the database says.
So a record counts once, whenever the program dies.

    python examples/offsets_in_sqlite.py localhost:9092 orders totals.db
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing

from shoal import Consumer, RebalanceListener, TopicPartition

_SCHEMA = """
CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, partition)
);
"""


class FromDatabase(RebalanceListener):
    """Starts every partition we are given where the database left off."""

    def __init__(self, consumer: Consumer, database: sqlite3.Connection) -> None:
        self._consumer = consumer
        self._database = database

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            row = self._database.execute(
                "SELECT next FROM offsets WHERE topic = ? AND partition = ?", tp
            ).fetchone()
            if row is None:
                self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, row[0])


def process(consumer: Consumer, database: sqlite3.Connection, timeout: float) -> int:
    """One poll: its results and offsets become visible together, or not at all."""
    records = consumer.poll(timeout)
    with database:
        for record in records:
            database.execute(
                "INSERT INTO totals VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET amount = amount + excluded.amount",
                (record.key.decode(), int(record.value)),
            )
        for tp, part in records.by_partition().items():
            database.execute(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", (*tp, part[-1].offset + 1)
            )
    return len(records)


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(_SCHEMA)
    return database


def main(servers: str, topic: str, path: str) -> None:
    with (
        closing(open_database(path)) as database,
        Consumer(
            bootstrap_servers=servers, group_id="totals", enable_auto_commit=False
        ) as consumer,
    ):
        consumer.subscribe([topic], FromDatabase(consumer, database))
        while True:
            process(consumer, database, 1.0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
