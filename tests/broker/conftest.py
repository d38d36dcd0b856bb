"""One broker per module for tests that keep apart by topic names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.broker.config import BrokerConfig
from shoal.testing.broker import Broker
from tests.broker.raw_client import RawClient


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    # Records of tests carry times of long ago: no round of retention may come between.
    with Broker(config=BrokerConfig(retention_check_seconds=86_400)) as broker:
        yield broker


@pytest.fixture
def raw(shared_broker: Broker) -> Iterator[RawClient]:
    with RawClient(shared_broker.port) as client:
        yield client


@pytest.fixture
def topic(shared_broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of one partition, named after the test."""
    name = request.node.name.replace("[", ".").replace("]", "")[-200:]
    shared_broker.create_topic(name, 1)
    return name
