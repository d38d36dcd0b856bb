"""Members in the states that tests begin with."""

from __future__ import annotations

from typing import Any

from shoal.errors import ErrorCode
from shoal.wire.apis.join_group import JoinGroupRequest
from tests.group.member_driver import (
    Driver,
    partitions,
)

COOPERATIVE = "cooperative-sticky"
REQUEST_MS = 30_000
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
REDISCOVERS = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


def cooperative(**settings: Any) -> Driver:
    return Driver(COOPERATIVE, **settings)


def rebalance(driver: Driver) -> None:
    """Another member joined: the coordinator wants us to join again."""
    driver.heartbeat(REBALANCING)
    driver.poll()


def stable(**settings: Any) -> Driver:
    driver = Driver(**settings)
    driver.stable(*partitions("t", 0, 1))
    return driver


def joining(**settings: Any) -> Driver:
    driver = Driver(**settings)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.orders.clear()
    return driver


def syncing(**settings: Any) -> Driver:
    driver = joining(**settings)
    driver.join(1)
    return driver


def join_request(driver: Driver) -> JoinGroupRequest:
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    return request
