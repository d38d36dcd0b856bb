"""The documented recipes do what they say."""

from __future__ import annotations

import random
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shoal import Consumer, Producer, TopicPartition
from tests.client.conftest import take

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


@pytest.mark.slow
def test_exactly_once_writes_every_result_once_through_crashes_and_aborts(
    producer, servers, new_topic, group
):
    recipe = runpy.run_path(str(EXAMPLES / "exactly_once.py"))
    source, sink = new_topic(2), new_topic(1)
    for n in range(120):
        producer.send(source, f"v{n}", str(n))
    producer.flush(10)
    chance = random.Random(1)
    ours = {"bootstrap_servers": servers, "transactional_id": f"id-{sink}"}
    settings = {
        "group_id": group,
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_poll_records": 10,
    }
    zombies = []

    def live_once() -> int:
        """One life of the program; how many records it got through."""
        done = 0
        with Consumer(bootstrap_servers=servers, **settings) as consumer:
            consumer.subscribe([source])
            writer = Producer(**ours)
            writer.init_transactions()
            for _ in range(6):
                if chance.random() < 0.3:
                    break
                done += recipe["step"](consumer, writer, sink, 1.0)
            # It dies inside a transaction, with results in the log and no commit.
            writer.begin_transaction()
            writer.send(sink, b"of a dead one").result(10)
            zombies.append(writer)
        return done

    try:
        done = lives = 0
        while done < 120:
            done += live_once()
            lives += 1
    finally:
        with Producer(**ours) as last:
            last.init_transactions()  # and whatever is still open is aborted
        for writer in zombies:
            writer.close(1)
    assert lives > 1
    tp = TopicPartition(sink, 0)
    found = []
    with Consumer(bootstrap_servers=servers, **settings) as reader:
        reader.assign([tp])
        reader.seek_to_beginning(tp)
        while reader.position(tp) < reader.end_offsets([tp])[tp]:
            found += [record.value for record in reader.poll(0.2)]
    assert sorted(found) == sorted(f"V{n}".encode() for n in range(120))


@pytest.mark.slow
def test_the_asyncio_service_stores_what_it_answered_and_ends_in_order(servers, topic, consumer):
    command = [sys.executable, str(EXAMPLES / "asyncio_service.py"), servers, topic, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        ready, port = service.stdout.readline().split()
        assert ready == "ready"
        with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as connection:
            stream = connection.makefile("rwb")
            answers = []
            for n in range(20):
                stream.write(b"%d\n" % n)
                stream.flush()
                answers.append(stream.readline())
            assert answers == [b"0 %d\n" % n for n in range(20)]
            service.send_signal(signal.SIGTERM)
            assert stream.readline() == b""
        assert service.stdout.read() == "stopped\n"
        assert service.wait(20) == 0
    one = consumer(group_id=None)
    one.assign([TopicPartition(topic, 0)])
    assert [record.value for record in take(one, 20)] == [b"%d" % n for n in range(20)]
