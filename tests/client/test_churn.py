"""Members come and go while records flow: none is lost, none is doubled."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from shoal import Consumer
from shoal.errors import CommitFailedError, RebalanceInProgressError, RequestTimeoutError


class Worker(threading.Thread):
    """Processes batch by batch: what it could commit counts, what it could not does not."""

    def __init__(self, settings, topic, processed, lock, life):
        super().__init__()
        self._settings = settings
        self._topic = topic
        self._processed = processed
        self._lock = lock
        self._life = life
        self.generation = 0
        self.error = None

    def run(self):
        try:
            with Consumer(**self._settings) as one:
                one.subscribe([self._topic])
                for _ in range(self._life):
                    records = one.poll(0.02)
                    # Every completed rebalance of the group is one generation.
                    self.generation = max(self.generation, one.group_metadata().generation_id)
                    if not records:
                        continue
                    try:
                        one.commit_sync(timeout=10)
                    except (CommitFailedError, RebalanceInProgressError, RequestTimeoutError):
                        # Not ours any more: someone else will process them. Go back to what is
                        # committed for what is still ours.
                        self._go_back(one)
                        continue
                    with self._lock:
                        self._processed += [(r.partition, r.offset) for r in records]
        except BaseException as error:
            self.error = error

    @staticmethod
    def _go_back(one):
        mine = one.assignment()
        for tp, at in one.committed(*mine).items():
            if tp in one.assignment():
                one.seek(tp, 0 if at is None else at.offset)


def churn(servers, producer, topic, group, partitions, target, assignor):
    processed: list[Any] = []
    lock = threading.Lock()
    chance = random.Random(7)
    settings = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 20,
        "max_poll_records": 50,
        "assignors": [assignor],
        "retry_backoff_ms": 10,
    }
    rebalances = sent = 0
    alive: list[Worker] = []
    while rebalances < target or len(processed) < sent:
        if rebalances < target:
            for _ in range(20):
                producer.send(topic, b"x" * 20, partition=sent % partitions)
                sent += 1
        finished = [worker for worker in alive if not worker.is_alive()]
        rebalances = max([rebalances, *(worker.generation for worker in alive)])
        for worker in finished:
            assert worker.error is None, worker.error
            alive.remove(worker)
        while len(alive) < 4:
            life = chance.randrange(2, 40) if rebalances < target else 60
            worker = Worker(settings, topic, processed, lock, life)
            worker.start()
            alive.append(worker)
        alive[0].join(0.05)
    for worker in alive:
        worker.join()
        assert worker.error is None, worker.error
    return processed, sent, rebalances


def check(processed, sent, partitions):
    expected = {(n % partitions, n // partitions) for n in range(sent)}
    assert set(processed) == expected, "lost"
    assert len(processed) == len(set(processed)), "doubled"


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_little_churn_loses_and_doubles_nothing(servers, producer, new_topic, group, assignor):
    topic = new_topic(4)
    processed, sent, _ = churn(servers, producer, topic, group, 4, 30, assignor)
    check(processed, sent, 4)


@pytest.mark.long
@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_thousand_rebalances_lose_and_double_nothing(
    servers, producer, new_topic, group, assignor
):
    topic = new_topic(4)
    processed, sent, rebalances = churn(servers, producer, topic, group, 4, 1000, assignor)
    check(processed, sent, 4)
    assert rebalances >= 1000
