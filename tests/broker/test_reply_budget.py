"""How much a few bytes may ask for: every API, with one name over and over, and with many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
import pytest

from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.broker.handlers import SERVED
from shoal.broker.memory import ELEMENT_BYTES, TOO_MUCH, MemoryBudget
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.delete_acls import DeleteAclsRequest
from shoal.wire.apis.describe_acls import DescribeAclsRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.describe_transactions import DescribeTransactionsRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.fields import ArrayOf, StructOf, fields_of
from shoal.wire.frames import encode_request
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient
from tests.broker.test_connection import LIMITS, Echo, framed, receive, until
from tests.broker.transactional import Transactional

NAME = "x"  # what a minimal message names, whatever it is
PARTITIONS = 300
REQUEST_BYTES = 19 << 10
REPLY_MAX_BYTES = 4 << 20
GROWTH_MAX_BYTES = 64 << 20
CPU_MAX_SECONDS = 2.0
MIB = 1 << 20
# Those that end the connection, wait for others, or make and remove things.
_NOT_ASKED = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DELETE_TOPICS})
RULE = Acl(ResourceType.CLUSTER, "kafka-cluster", "User:*", 2)
EVERYTHING = [
    Acl(kind, "*", "User:*", 2)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


def committed(raw: RawClient, group: str, count: int) -> None:
    rows = [
        OffsetCommitRequest.Partition(
            partition_index=number, committed_offset=number, committed_metadata=""
        )
        for number in range(count)
    ]
    topic = OffsetCommitRequest.Topic(name=NAME, partitions=rows)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    answer = raw.ask(request, 8)
    assert {row.error_code for row in answer.topics[0].partitions} == {0}


def joined(raw: RawClient, group: str, metadata: bytes = b"") -> None:
    """One member, which is alone and so in the group at once."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=metadata)],
    )
    assert raw.ask(request, 3).error_code == 0


def heartbeat(raw: RawClient, group: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[NAME],
        topic_partitions=[],
    )
    assert raw.ask(request, 1).error_code == 0


def furnished(raw: RawClient) -> None:
    """What is named "x" is large, whatever it is."""
    committed(raw, NAME, PARTITIONS)
    one = Transactional(raw, NAME)
    one.init()
    one.add(*((NAME, number) for number in range(PARTITIONS)))
    assert one.produce(NAME, b"v") is ErrorCode.NONE


@pytest.fixture(scope="module")
def large() -> Iterator[Broker]:
    rules = [*EVERYTHING, RULE]
    rules += [Acl(ResourceType.TOPIC, f"t{n}", "User:a", Operation.READ) for n in range(50)]
    with Broker(topics={NAME: PARTITIONS}, acls=rules) as broker, RawClient(broker.port) as raw:
        furnished(raw)
        yield broker


def filled(struct: type, version: int, *, everything: bool) -> Any:
    """The smallest message with its arrays repeated until it has ``REQUEST_BYTES``."""
    message = minimal(struct, version)
    for field in fields_of(struct):
        if not field.exists_in(version) or field.spec.tag is not None:
            continue
        kind = field.kind
        if isinstance(kind, ArrayOf):
            (element,) = getattr(message, field.name)
            if everything and isinstance(kind.element, StructOf):
                _ask_for_everything(element, kind.element.struct, version)
            setattr(message, field.name, [element])
            once = len(message.encode(version))
            setattr(message, field.name, [element, element])
            each = max(1, len(message.encode(version)) - once)
            room = REQUEST_BYTES // each
            setattr(message, field.name, [element] * max(1, room))
            break
    return message


def _ask_for_everything(element: Any, struct: type, version: int) -> None:
    for field in fields_of(struct):
        if (
            field.exists_in(version)
            and isinstance(field.kind, ArrayOf)
            and field.nullable_in(version)
        ):
            setattr(element, field.name, None)


@pytest.mark.parametrize("everything", [False, True], ids=["named", "everything"])
@pytest.mark.parametrize("key", sorted(set(SERVED) - _NOT_ASKED), ids=lambda key: API[key].name)
def test_no_request_of_19_kib_makes_a_reply_of_megabytes(large, key, everything):
    version = SERVED[key].versions(key).stop - 1
    message = filled(API[key].request, version, everything=everything)
    process = psutil.Process()
    before, began = process.memory_info().rss, time.process_time()
    with RawClient(large.port, timeout=20) as raw:
        raw.sock.sendall(b"".join(encode_request(key, version, 1, "hostile", message)))
        frame = raw.receive_frame()  # None: the connection was closed, which is as good
    assert frame is None or len(frame) <= REPLY_MAX_BYTES
    assert process.memory_info().rss - before <= GROWTH_MAX_BYTES
    assert large.counters()["memory_bytes"]["built"] == 0
    assert time.process_time() - began <= CPU_MAX_SECONDS


class Question(NamedTuple):
    request: Any
    version: int
    rows: str
    told: str = "error_code"


FEW = 50
GROUPS = [f"g{number}" for number in range(40)]


def questions() -> dict[str, Question]:
    groups = [OffsetFetchRequest.Group(group_id=name, topics=None) for name in GROUPS]
    wanted = DescribeProducersRequest.TopicRequest(
        name=NAME, partition_indexes=list(range(FEW + 10))
    )
    names = [MetadataRequest.Topic(name=f"absent-{number}") for number in range(FEW + 10)]
    return {
        "DescribeGroups": Question(DescribeGroupsRequest(groups=GROUPS), 5, "groups"),
        "ConsumerGroupDescribe": Question(
            ConsumerGroupDescribeRequest(
                group_ids=[f"c{number}" for number in range(20)],
                include_authorized_operations=False,
            ),
            1,
            "groups",
        ),
        "OffsetFetch": Question(OffsetFetchRequest(groups=groups), 8, "groups"),
        "DescribeProducers": Question(
            DescribeProducersRequest(topics=[wanted]), 0, "topics.0.partitions"
        ),
        "DescribeTransactions": Question(
            DescribeTransactionsRequest(transactional_ids=["a", "b", NAME]),
            0,
            "transaction_states",
        ),
        "Metadata": Question(
            MetadataRequest(topics=names, allow_auto_topic_creation=False), 9, "topics"
        ),
        "DescribeConfigs": Question(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.Resource(
                        resource_type=32, resource_name=name, configuration_keys=None
                    )
                    for name in GROUPS
                ]
            ),
            4,
            "results",
        ),
    }


@pytest.fixture(scope="module")
def small() -> Iterator[Broker]:
    """A broker whose replies have few elements, and where everything is more than that."""
    limits = BrokerLimits(elements_per_reply=FEW)
    with (
        Broker(
            topics={NAME: PARTITIONS},
            config=BrokerConfig(limits=limits),
            acls=[*EVERYTHING, RULE],
        ) as broker,
        RawClient(broker.port) as raw,
    ):
        for name in GROUPS:
            committed(raw, name, 7)
            joined(raw, name, bytes(5 * ELEMENT_BYTES))
        for number in range(20):
            heartbeat(raw, f"c{number}")
        furnished(raw)
        for number in range(FEW + 10):
            Transactional(raw, f"id-{number}").init()
        yield broker


def rows_of(answer: Any, path: str) -> list[Any]:
    for step in path.split("."):
        answer = answer[int(step)] if step.isdigit() else getattr(answer, step)
    return list(answer)


@pytest.mark.parametrize("name", questions())
def test_what_a_reply_has_no_room_for_is_refused_one_by_one(small, name):
    asked = questions()[name]
    with RawClient(small.port) as raw:
        rows = rows_of(raw.ask(asked.request, asked.version), asked.rows)
    codes = [row.error_code for row in rows]
    assert TOO_MUCH in codes, "it ends somewhere"
    first = codes.index(TOO_MUCH)
    assert first > 0, "there is room for some"
    assert set(codes[first:]) == {TOO_MUCH}, "and behind that there is none"
    assert len(rows) <= 100
    assert small.counters()["memory_bytes"]["built"] == 0


@pytest.mark.parametrize(
    ("request_", "version", "rows"),
    [
        (
            ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
            0,
            "transaction_states",
        ),
        (DescribeLogDirsRequest(topics=None), 4, "results"),
        (
            DescribeAclsRequest(
                resource_type_filter=1,
                pattern_type_filter=1,
                resource_name_filter=None,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            ),
            3,
            "resources",
        ),
        (ListGroupsRequest(), 4, "groups"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "encode") else str(value),
)
def test_a_list_that_has_no_room_is_refused_as_a_whole(small, request_, version, rows):
    with RawClient(small.port) as raw:
        answer = raw.ask(request_, version)
        if answer.error_code == 0:
            assert len(getattr(answer, rows)) <= FEW
        else:
            assert answer.error_code == TOO_MUCH
            assert not getattr(answer, rows)
        refused = type(request_).__name__ in ("ListTransactionsRequest", "DescribeLogDirsRequest")
        assert (answer.error_code == TOO_MUCH) or not refused


@pytest.mark.parametrize(("room", "left"), [(2, 4), (12, 0)])
def test_rules_whose_filter_was_refused_are_still_there(room, left):
    any_acl = DeleteAclsRequest.Filter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    config = BrokerConfig(limits=BrokerLimits(elements_per_reply=room))
    with (
        Broker(config=config, acls=[*EVERYTHING, RULE]) as broker,
        RawClient(broker.port) as raw,
    ):
        rows = raw.ask(DeleteAclsRequest(filters=[any_acl] * 30), 3).filter_results
        assert [row.error_code for row in rows[2:]] == [TOO_MUCH] * 28
        assert len(list(broker.live.acls or ())) == left


def test_a_reply_is_charged_while_it_is_made(large, monkeypatch):
    peaks: list[int] = []
    hold = MemoryBudget.hold_built

    def watched(self: MemoryBudget, change_bytes: int) -> None:
        hold(self, change_bytes)
        peaks.append(self.built)

    monkeypatch.setattr(MemoryBudget, "hold_built", watched)
    with RawClient(large.port) as raw:
        raw.ask(MetadataRequest(topics=None), 9)
    assert max(peaks) >= PARTITIONS * ELEMENT_BYTES
    assert peaks[-1] == 0


def test_replies_that_wait_for_one_before_them_are_charged_and_stop_the_reading():
    async def scenario() -> None:
        limits = LIMITS._replace(in_flight_bytes=16 * MIB)
        first = []

        def answer(exchange: Any, body: bytes) -> None:
            if body == b"first":
                first.append(exchange)
            else:
                exchange.send([framed(bytes(MIB))])

        async with Echo(answer, limits) as echo:
            memory = echo.server.memory
            reader, writer = await echo.connect()
            writer.write(framed(b"first"))
            writer.writelines(framed(b"x" * 1000) for _ in range(50))
            await until(lambda: memory.built >= 15 * MIB)
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert memory.built <= 18 * MIB, "the rest is not read"
            first[0].send([framed(b"done")])
            assert await receive(reader) == b"done"
            for _ in range(50):
                assert len(await receive(reader)) == MIB
            assert memory.built == 0
            writer.write(framed(b"first"))
            writer.writelines(framed(b"x") for _ in range(3))
            await until(lambda: memory.built == 3 * MIB + 12)
            writer.close()
            await until(lambda: memory.built == 0 and memory.requests == 0)

    asyncio.run(scenario())
