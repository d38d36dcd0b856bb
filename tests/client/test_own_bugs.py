"""A bug of ours in the background is told by the call that waits for its work, never silence."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from shoal import Consumer, Producer, TopicPartition
from shoal.broker.config import BrokerConfig, TopicDefaults
from shoal.client.cluster import Cluster
from shoal.client.fetcher import Fetcher
from shoal.testing import Broker

pytestmark = pytest.mark.timeout(60)


def test_a_failure_nobody_expects_in_a_fetch_is_raised_by_poll_and_reading_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle, calls = Fetcher._handle, itertools.count()

    def fails_once(self: Fetcher, round_: object, answer: object) -> bool:
        if next(calls) == 0:
            raise ZeroDivisionError("planted")
        return handle(self, round_, answer)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Fetcher, "_handle", fails_once)
    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        producer.send("t", b"x").result(10)
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning(TopicPartition("t", 0))
        with pytest.raises(ZeroDivisionError, match="planted"):
            consumer.poll(timeout=10)
        assert [record.value for record in consumer.poll(timeout=10)] == [b"x"]
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)


def test_a_failure_nobody_expects_in_a_refresh_does_not_end_refreshing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refresh, calls = Cluster.refresh, itertools.count()

    async def fails_once(self: Cluster, *arguments: object) -> object:
        if next(calls) == 1:
            raise ZeroDivisionError("planted")
        return await refresh(self, *arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Cluster, "refresh", fails_once)
    with Broker(
        topics={"t": 1}, config=BrokerConfig(topics=TopicDefaults(auto_create=False))
    ) as broker:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        with Consumer(**settings, group_id="g", auto_offset_reset="earliest") as consumer:
            # The second topic appears later: it is found by a refresh in the background.
            consumer.subscribe(["t", "later"])
            consumer.poll(timeout=0.5)
            broker.create_topic("later", 1)
            with Producer(**settings) as producer:
                producer.send("later", b"y").result(10)
            found: list[Any] = []
            while not found:
                found += [record.value for record in consumer.poll(timeout=1)]
            assert found == [b"y"]
    assert "metadata refresh failed" in caplog.text
