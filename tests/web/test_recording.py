"""Yesterday after a restart: what was recorded is on the page of the next dashboard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.recording import RecordingKeeper

pytestmark = pytest.mark.slow


def test_a_recording_brings_rebalances_and_lag_back(tmp_path: Path) -> None:
    with Broker(topics={"orders": 1}) as broker:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        with Producer(**settings) as producer:
            for _ in range(5):
                producer.send("orders", b"x")
        with Consumer(**settings, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            while not consumer.poll(1.0):
                pass
            consumer.commit_sync()
        with Admin(**settings) as admin:
            first = RecordingKeeper(ClusterWatch("a", admin, settings), tmp_path)
            first._recorder.round()
            first._recorder.close()
            watch = ClusterWatch("b", admin, settings)
            again = RecordingKeeper(watch, tmp_path)
            assert again.load() >= 1
            again._recorder.close()
        causes = [one["cause"] for one in watch.feed()]
        assert "group started" in causes
        lags = watch.lags("g")
        assert lags is not None
        assert list(lags.whole.lags) == [0]
        assert lags.whole.times[0] <= time.time()
        assert TopicPartition("orders", 0).topic in lags.topics
