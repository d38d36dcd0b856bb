"""The documented recipes do what they say."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest

from shoal import Consumer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_offsets_in_sqlite_count_every_record_once_through_crashes(
    producer, servers, new_topic, group, tmp_path
):
    recipe = runpy.run_path(str(EXAMPLES / "offsets_in_sqlite.py"))
    topic = new_topic(2)
    expected: dict[str, int] = {}
    for n in range(300):
        key, amount = f"k{n % 7}", n
        expected[key] = expected.get(key, 0) + amount
        producer.send(topic, str(amount), key)
    producer.flush(10)
    path = str(tmp_path / "totals.db")
    chance = random.Random(1)

    class CrashError(Exception):
        pass

    def run_once(crashes: bool) -> bool:
        """One life of the program; whether everything was seen when it ended."""
        database = recipe["open_database"](path)
        settings = {"group_id": group, "enable_auto_commit": False, "max_poll_records": 20}
        with Consumer(bootstrap_servers=servers, **settings) as consumer:
            consumer.subscribe([topic], recipe["FromDatabase"](consumer, database))
            try:
                while _rows_seen(database) < 300:
                    if crashes and chance.random() < 0.2:
                        # In the middle of a transaction: the results are there, not the commit.
                        database.execute("BEGIN")
                        database.execute("UPDATE totals SET amount = amount + 1000000")
                        raise CrashError
                    recipe["process"](consumer, database, 1.0)
            except CrashError:
                return False
            finally:
                database.close()
        return True

    lives = 0
    while not run_once(crashes=lives < 8):
        lives += 1
    database = recipe["open_database"](path)
    found = dict(database.execute("SELECT key, amount FROM totals"))
    database.close()
    assert lives > 2
    assert found == expected


def _rows_seen(database) -> int:
    (count,) = database.execute("SELECT coalesce(sum(next), 0) FROM offsets").fetchone()
    return count
