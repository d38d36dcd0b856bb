"""Every error code in the answer to every request of the admin client: retried, or told by name."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from shoal import Admin, TopicPartition
from shoal.errors import BrokerError, ErrorCode
from shoal.testing.broker import Broker
from tests.client import expected_reactions

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]
T0 = TopicPartition("t", 0)
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def broker():
    with Broker(topics=["t"]) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as admin:
        admin.set_password("ann", "pass")
        admin.alter_group_offsets("g", {T0: 0})
        yield admin


numbers = itertools.count(2)


def new_topic(admin):
    name = f"n{next(numbers)}"
    admin.create_topic(name)
    return name


def new_group(admin):
    name = f"g{next(numbers)}"
    admin.alter_group_offsets(name, {T0: 0})
    return name


# API, row of the table, what to prepare, what to call with that, and codes that mean something
# else there: True for a success, False for an error.
CASES = [
    ("CreateTopics", "Admin", None, lambda a, _: new_topic(a), {}),
    ("DeleteTopics", "Admin", new_topic, lambda a, name: a.delete_topics(name), {GONE: False}),
    (
        "CreatePartitions",
        "Admin",
        new_topic,
        lambda a, name: a.create_partitions({name: 2}),
        {GONE: False},
    ),
    (
        "DescribeConfigs",
        "Admin",
        None,
        lambda a, _: a.describe_configs(topic="t"),
        {GONE: False},
    ),
    (
        "IncrementalAlterConfigs",
        "Admin",
        None,
        lambda a, _: a.alter_configs({"retention.ms": "7"}, topic="t"),
        {GONE: False},
    ),
    ("DeleteRecords", "DeleteRecords", None, lambda a, _: a.delete_records({T0: 0}), {}),
    ("DescribeLogDirs", "Admin", None, lambda a, _: a.partition_sizes("t"), {}),
    ("ListGroups", "Group", None, lambda a, _: a.list_groups(), {}),
    (
        "DescribeGroups",
        "Group",
        None,
        lambda a, _: a.describe_group("g"),
        {ErrorCode.GROUP_ID_NOT_FOUND: True},
    ),
    ("DeleteGroups", "Group", new_group, lambda a, name: a.delete_groups(name), {}),
    (
        "OffsetDelete",
        "Group",
        new_group,
        lambda a, name: a.delete_group_offsets(name, [T0]),
        {},
    ),
    ("OffsetFetch", "OffsetFetch", None, lambda a, _: a.group_offsets("g"), {}),
    ("ListTransactions", "Transaction", None, lambda a, _: a.list_transactions(), {}),
    (
        "DescribeProducers",
        "DescribeProducers",
        None,
        lambda a, _: a.describe_producers([T0]),
        {},
    ),
    ("ListOffsets", "ListOffsets", None, lambda a, _: a.list_offsets({T0: "latest"}), {}),
    (
        "DescribeUserScramCredentials",
        "Admin",
        None,
        lambda a, _: a.describe_users("ann"),
        {},
    ),
    (
        "AlterUserScramCredentials",
        "Admin",
        None,
        lambda a, _: a.set_password("ann", "pass"),
        {},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "row", "prepare", "call", "special"), CASES, ids=[case[0] for case in CASES]
)
def test_every_code_is_retried_or_told(broker, admin, api, row, prepare, call, special):
    for code in CODES:
        prepared = prepare(admin) if prepare is not None else None
        broker.fail(api, code)
        passes = special.get(code, expected_reactions.passes(row, code))
        with contextlib.nullcontext() if passes else pytest.raises(BrokerError) as caught:
            call(admin, prepared)
        if caught is not None:
            assert caught.value.code is code, (api, code)
            assert code.name in str(caught.value)
        broker.clear_faults()
