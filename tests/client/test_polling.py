"""How polls and loops over records get along with time, with other tasks and with the end."""

from __future__ import annotations

import time

import pytest

from shoal import Consumer, Producer, RebalanceListener

RECORDS = 200


@pytest.fixture
def settings(shoal_broker):
    shoal_broker.create_topic("t", 1)
    with Producer(bootstrap_servers=shoal_broker.bootstrap_servers) as producer:
        for n in range(RECORDS):
            producer.send("t", str(n))
    return {"bootstrap_servers": shoal_broker.bootstrap_servers, "auto_offset_reset": "earliest"}


class Losses(RebalanceListener):
    def __init__(self):
        self.count = 0

    def on_partitions_lost(self, partitions):
        self.count += 1


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.01, 1.5], ids=["many short polls", "one long poll"])
def test_who_polls_is_in_the_group_however_short_the_poll_interval(settings, timeout):
    losses = Losses()
    interval_ms = 300  # much less than the interval of heartbeats
    with Consumer(group_id="g", max_poll_interval_ms=interval_ms, **settings) as one:
        one.subscribe(["t"], losses)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            one.poll(timeout, max_records=1)
    assert losses.count == 0
