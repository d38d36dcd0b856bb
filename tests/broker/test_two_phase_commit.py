"""InitProducerId v6 (KIP-939) on a broker: off unless asked for, and a right of its own."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import BrokerConfig, TransactionSettings
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_transactions import DescribeTransactionsRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.registry import ApiKey
from tests.broker.raw_client import RawClient
from tests.broker.transactional import OLD, Transactional, read

ENABLED = BrokerConfig(transactions=TransactionSettings(two_phase_commit=True))
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def advertised(raw: RawClient) -> tuple[int, int]:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    keys = {row.api_key: row for row in raw.ask(request, 3).api_keys}
    row = keys[ApiKey.INIT_PRODUCER_ID]
    return row.min_version, row.max_version


def two_phase(name: str = "t", **given: bool) -> InitProducerIdRequest:
    fields: dict[str, Any] = {"enable2_pc": True, **given}
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1, **fields)


def setting(raw: RawClient) -> str | None:
    name = "transaction.two.phase.commit.enable"
    resource = DescribeConfigsRequest.Resource(
        resource_type=4, resource_name="1", configuration_keys=[name]
    )
    answer = raw.ask(DescribeConfigsRequest(resources=[resource]), 4)
    return next((row.value for row in answer.results[0].configs), None)


def test_the_version_is_not_served_unless_the_setting_says_so():
    with Broker() as broker, RawClient(broker.port) as raw:
        assert advertised(raw) == (0, 5)
        assert setting(raw) == "false"
        with pytest.raises((OSError, EOFError, AssertionError)):
            raw.ask(two_phase(), 6)


def test_a_prepared_transaction_outlives_its_timeout_a_restart_and_is_committed_from_elsewhere(
    tmp_path,
):
    with Broker(data_dir=tmp_path, config=ENABLED) as broker, RawClient(broker.port) as raw:
        broker.create_topic("orders")
        assert advertised(raw) == (0, 6)
        assert setting(raw) == "true"
        one = Transactional(raw, "t", OLD)
        answer = raw.ask(two_phase(), 6)
        assert answer.error_code == ErrorCode.NONE
        one.adopt(answer.producer_id, answer.producer_epoch)
        one.write("orders", b"paid")
    with Broker(data_dir=tmp_path, config=ENABLED) as broker, RawClient(broker.port) as raw:
        described = raw.ask(DescribeTransactionsRequest(transactional_ids=["t"]), 0)
        state = described.transaction_states[0]
        assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 2**31 - 1)
        other = Transactional(raw, "t", OLD)
        other.adopt(one.producer_id, one.epoch)
        other.commit()
        assert read(raw, "orders", committed=True) == [b"paid"]


def test_it_is_a_right_beside_writing():
    def rule(operation: Operation, name: str) -> Acl:
        return Acl(ResourceType.TRANSACTIONAL_ID, name, "User:ANONYMOUS", operation)

    rules = [
        rule(Operation.WRITE, "writes"),
        rule(Operation.WRITE, "both"),
        rule(Operation.TWO_PHASE_COMMIT, "both"),
        rule(Operation.TWO_PHASE_COMMIT, "prepares"),
    ]
    with Broker(config=ENABLED, acls=rules) as broker, RawClient(broker.port) as raw:
        assert raw.ask(two_phase("writes"), 6).error_code == REFUSED
        assert raw.ask(two_phase("prepares"), 6).error_code == REFUSED
        assert raw.ask(two_phase("both"), 6).error_code == ErrorCode.NONE
        assert raw.ask(two_phase("writes", enable2_pc=False), 6).error_code in (
            ErrorCode.NONE,
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        )
        kept = raw.ask(two_phase("both", keep_prepared_txn=True), 6)
        assert kept.error_code == ErrorCode.UNSUPPORTED_VERSION
