"""Who may not is told so, where Kafka says it, and nothing was done: every API in every version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from shoal.access.resources import CLUSTER_NAME
from shoal.access.resources import Operation as Op
from shoal.access.resources import ResourceType as Kind
from shoal.broker.authorizer import AllowAll
from shoal.broker.broker import Broker as LiveBroker
from shoal.broker.door import REFUSALS, Form
from shoal.broker.handlers import SERVED
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_cluster import DescribeClusterRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.schema import ZERO_UUID
from tests.broker.asking import commit, fetch_request, produce, topic_id
from tests.broker.kafkas_rights import RIGHTS, Right
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient, batch
from tests.broker.transactional import Transactional

# ``minimal`` calls everything so.
NAME = "x"
NOBODY: frozenset[Any] = frozenset()
TOLD = set(REFUSALS.values())
NOT_ASKED_FOR = -(1 << 31)
CASES = [(key, number) for key in sorted(SERVED) for number in range(len(RIGHTS[ApiKey(key)]))]


class Rules:
    """Allows what ``allowed`` holds, or all but ``denied``; hides some names from lists."""

    def __init__(self) -> None:
        self.version = 0
        self.allowed: set[tuple[Op, Kind]] | None = None
        self.denied: set[tuple[Op, Kind]] = set()
        self.hidden: set[str] = set()
        self.asked: list[tuple[str, str, Op, Kind, str, bool]] = []

    def change(self, **rules: Any) -> None:
        self.allowed, self.denied, self.hidden = None, set(), set()
        for name, value in rules.items():
            setattr(self, name, value)
        self.asked = []
        self.version += 1

    def allows(
        self,
        principal: str,
        host: str,
        operation: Op,
        resource: Kind,
        name: str,
        /,
        *,
        audited: bool,
    ) -> bool:
        self.asked.append((principal, host, operation, resource, name, audited))
        if name in self.hidden or (resource is Kind.CLUSTER) is not (name == CLUSTER_NAME):
            return False
        return self.allows_some(principal, host, operation, resource)

    def allows_some(self, _p: str, _h: str, operation: Op, resource: Kind, /) -> bool:
        if self.allowed is not None:
            return (operation, resource) in self.allowed
        return (operation, resource) not in self.denied


class Guarded:
    """A broker with rules that a test changes, and a client."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.rules = Rules()
        self.identity = b""
        broker.on_loop(lambda live: live.door.install(self.rules))

    def let(self, **rules: Any) -> None:
        self.broker.on_loop(lambda _: self.rules.change(**rules))

    def furnish(self) -> None:
        """What requests name is there: a topic with a record, a group with a position."""
        self.let()
        if self.broker.on_loop(lambda live: live.catalogue.get(NAME)) is None:
            self.broker.create_topic(NAME, 1)
        with RawClient(self.broker.port) as raw:
            self.identity = topic_id(raw, NAME)
            assert produce(raw, NAME, batch(b"v")).error_code == 0
            assert commit(raw, NAME, NAME, 0, 1) == ErrorCode.NONE

    def ask(self, right: Right, key: int, version: int) -> Any:
        """The answer to the smallest request; None if the broker hung up."""
        request = minimal(API[key].request, version)
        right.prepare(request)
        if key != ApiKey.METADATA or version >= 12:
            self._put_ids(request)
        with RawClient(self.broker.port) as raw:
            raw.send(request, version)
            try:
                return raw.receive(key, version)
            except (AssertionError, ConnectionError):
                return None

    def _put_ids(self, message: Any) -> None:
        if isinstance(message, list | tuple):
            for each in message:
                self._put_ids(each)
        elif hasattr(message, "__dataclass_fields__") or hasattr(message, "__slots__"):
            for name in field_names(message):
                value = getattr(message, name)
                if name == "topic_id" and value == ZERO_UUID:
                    message.topic_id = self.identity
                else:
                    self._put_ids(value)

    def state(self) -> Any:
        """Everything that a request could have changed for good."""

        def look(live: LiveBroker) -> Any:
            return (
                live.journal.written,
                {
                    tp: (log.start_offset, log.end_offset)
                    for tp, log in live.directory.partitions.items()
                },
                sorted(live.users.names()),
                live.snapshot()["groups"],
            )

        return self.broker.on_loop(look)


def field_names(message: Any) -> list[str]:
    if is_dataclass(message):
        return [field.name for field in fields(message)]
    return [name for kind in type(message).__mro__ for name in getattr(kind, "__slots__", ())]


def codes_in(message: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(message, list | tuple):
        return set().union(*map(codes_in, message))
    found = set()
    if not isinstance(message, str | bytes | memoryview | int | float | bool | None):
        for name in field_names(message):
            value = getattr(message, name)
            if name.endswith("error_code"):
                found.add(value)
            else:
                found |= codes_in(value)
    return found


def at(message: Any, place: str) -> Any:
    for step in place.split("."):
        message = message[int(step)] if step.isdigit() else getattr(message, step)
    return message


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with Broker() as broker:
        yield Guarded(broker)


def versions_of(key: int, right: Right) -> list[int]:
    return [version for version in SERVED[key].versions(key) if version in right.versions]


def label(case: Any) -> str:
    key, number = case
    return f"{API[key].name}-{number}"


def test_every_api_has_a_line_in_kafkas_table_of_rights():
    assert {API[key].name for key in SERVED if key not in RIGHTS} == set()


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: API[key].name)
def test_a_row_needs_what_kafka_needs(key):
    """No row says more or less than Kafka's, but for details of answers."""
    told = {
        frozenset(
            {(need.operation, need.resource)}
            | {(each.operation, each.resource) for each in need.instead}
        )
        for need in SERVED[key].needs
        if need.form is not Form.DETAIL
    }
    assert told == {frozenset(right.any_of) for right in RIGHTS[ApiKey(key)]}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_who_lacks_a_right_is_told_where_kafka_tells_it_and_nothing_is_done(guarded, case):
    key, number = case
    right = RIGHTS[key][number]
    for version in versions_of(key, right):
        guarded.furnish()
        guarded.let(denied=set(right.any_of))
        before = guarded.state()
        answer = guarded.ask(right, key, version)
        place = right.place_in(version)
        if place:
            code = at(answer, place)
            assert code == REFUSALS[right.resource], (version, ErrorCode.of(code).name)
        else:
            assert not getattr(answer, "groups", ()), version
            assert not getattr(answer, "results", ()), version
        assert guarded.state() == before, f"version {version} did something"
        if place:
            asked = [each for each in guarded.rules.asked if each[2:4] == right.any_of[0]]
            assert ("User:ANONYMOUS", "127.0.0.1", True) in {
                (principal, host, audited) for principal, host, *_, audited in asked
            }, "who asked for it by name is in the audit log"


@pytest.mark.parametrize("case", CASES, ids=label)
def test_no_other_right_is_asked_for(guarded, case):
    """Each right that is enough is enough, with those for what else the request names."""
    key, number = case
    right = RIGHTS[key][number]
    others = {other.any_of[0] for other in RIGHTS[key] if other is not right}
    for enough in right.any_of:
        for version in versions_of(key, right):
            guarded.furnish()
            guarded.let(allowed={enough} | others)
            answer = guarded.ask(right, key, version)
            assert not codes_in(answer) & TOLD, (version, enough)


@pytest.mark.parametrize("key", [key for key in sorted(SERVED) if not RIGHTS[ApiKey(key)]])
def test_some_questions_are_open_to_all(guarded, key):
    for version in SERVED[key].versions(key):
        guarded.let(allowed=set())
        answer = guarded.ask(Right(((Op.READ, Kind.TOPIC),), ""), key, version)
        assert not codes_in(answer) & TOLD


# --- what is not told ---------------------------------------------------------------------------


@pytest.fixture
def raw(guarded: Guarded) -> Iterator[RawClient]:
    guarded.furnish()
    with RawClient(guarded.broker.port) as client:
        yield client


@pytest.mark.parametrize("version", [0, 1, 8, 12, 13])
def test_metadata_of_all_topics_leaves_out_what_one_may_not_see(guarded, raw, version):
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert NAME in [topic.name for topic in raw.ask(everything, version).topics]
    guarded.let(hidden={NAME})
    assert NAME not in [topic.name for topic in raw.ask(everything, version).topics]
    assert not any(audited for *_, audited in guarded.rules.asked), "a list is not audited"


def test_a_hidden_topic_looks_the_same_whether_it_is_there_or_not(guarded, raw):
    guarded.let(hidden={NAME, "none"})
    asked = [MetadataRequest.Topic(name=name) for name in (NAME, "none")]
    there, not_there = raw.ask(MetadataRequest(topics=asked)).topics
    assert (there.error_code, there.topic_id) == (29, ZERO_UUID)
    assert not there.partitions
    not_there.name = there.name
    assert there == not_there
    by_id = MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=guarded.identity)])
    (told,) = raw.ask(by_id).topics
    assert (told.error_code, told.name, told.topic_id) == (29, None, guarded.identity)


def test_who_may_not_create_is_refused_what_metadata_would_create(guarded, raw):
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name="made-by-asking")])
    guarded.let(denied={(Op.CREATE, Kind.TOPIC), (Op.CREATE, Kind.CLUSTER)})
    (told,) = raw.ask(asked, 9).topics
    assert (told.error_code, told.name) == (29, "made-by-asking")
    assert guarded.broker.on_loop(lambda live: live.catalogue.get("made-by-asking")) is None
    guarded.let(denied={(Op.CREATE, Kind.TOPIC)})
    (told,) = raw.ask(asked, 9).topics
    assert told.error_code == 0, "the right to create on the cluster is enough"


def test_pages_of_topics_leave_out_what_one_may_not_see(guarded, raw):
    everything = DescribeTopicPartitionsRequest(topics=[], cursor=None)
    guarded.let(hidden={NAME})
    answer = raw.ask(everything)
    assert NAME not in [topic.name for topic in answer.topics]
    assert answer.next_cursor is None


def test_groups_one_may_not_see_are_not_listed(guarded, raw):
    guarded.let(denied={(Op.DESCRIBE, Kind.CLUSTER)}, hidden={NAME})
    assert not raw.ask(ListGroupsRequest()).groups
    guarded.let(hidden={NAME})
    assert [group.group_id for group in raw.ask(ListGroupsRequest()).groups] == [NAME]


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_positions_in_hidden_topics_are_left_out_of_all_positions(guarded, raw, version):
    group = OffsetFetchRequest.Group(group_id=NAME, topics=None)
    request = OffsetFetchRequest(groups=[group])
    if version < 8:
        request = OffsetFetchRequest(group_id=NAME, topics=None)

    def topics() -> list[Any]:
        answer = raw.ask(request, version)
        return list(answer.groups[0].topics if version >= 8 else answer.topics)

    assert len(topics()) == 1
    guarded.let(denied={(Op.DESCRIBE, Kind.TOPIC)})
    assert topics() == []


def test_a_refused_topic_says_nothing_of_its_positions(guarded, raw):
    topic = OffsetFetchRequest.Topics(name=NAME, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=NAME, topics=[topic])])
    guarded.let(denied={(Op.DESCRIBE, Kind.TOPIC)})
    (told,) = raw.ask(request, 9).groups[0].topics[0].partitions
    assert (told.committed_offset, told.committed_leader_epoch, told.metadata) == (-1, -1, "")


def test_a_name_is_told_for_an_id_only_to_those_who_may_see_it(guarded, raw):
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=guarded.identity)
    request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
    may_not_delete = {(Op.DELETE, Kind.TOPIC), (Op.DELETE, Kind.CLUSTER)}
    guarded.let(denied=may_not_delete)
    (told,) = raw.ask(request, 6).responses
    assert (told.error_code, told.name) == (29, NAME)
    guarded.let(denied=may_not_delete | {(Op.DESCRIBE, Kind.TOPIC)})
    (told,) = raw.ask(request, 6).responses
    assert (told.error_code, told.name) == (29, None)


def test_who_may_create_but_not_see_configurations_is_not_told_them(guarded, raw):
    wanted = CreateTopicsRequest.CreatableTopic(
        name="discreet", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    guarded.let(denied={(Op.DESCRIBE_CONFIGS, Kind.TOPIC)})
    (told,) = raw.ask(CreateTopicsRequest(topics=[wanted])).topics
    assert (told.error_code, told.topic_config_error_code) == (0, 29)
    assert not told.configs
    assert told.num_partitions == told.replication_factor == -1


# --- what one may do ----------------------------------------------------------------------------


def bits(*operations: Op) -> int:
    return sum(1 << operation for operation in operations)


def test_answers_list_what_one_may_do(guarded, raw):
    metadata = MetadataRequest(
        topics=[MetadataRequest.Topic(name=NAME)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    groups = DescribeGroupsRequest(groups=[NAME], include_authorized_operations=True)

    def told() -> tuple[int, int, int, int]:
        answer = raw.ask(metadata, 10)
        return (
            answer.topics[0].topic_authorized_operations,
            answer.cluster_authorized_operations,
            raw.ask(cluster).cluster_authorized_operations,
            raw.ask(groups).groups[0].authorized_operations,
        )

    everything = 0b1_1111_1010_0000
    assert told() == (0b1101_1111_1000, everything, everything, 0b1101_0100_1000)
    of_topic, of_group = {Op.DESCRIBE, Op.WRITE}, {Op.DESCRIBE, Op.READ}
    guarded.let(
        allowed={(each, Kind.TOPIC) for each in of_topic}
        | {(each, Kind.GROUP) for each in of_group}
        | {(Op.ALTER, Kind.CLUSTER)}
    )
    assert told() == (bits(*of_topic), 0, 0, bits(*of_group))
    assert not any(audited for *_, name, audited in guarded.rules.asked if name == CLUSTER_NAME)


def test_what_nobody_asked_for_is_not_looked_up(guarded, raw):
    guarded.let()
    answer = raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=NAME)]), 10)
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    assert {operation for _, _, operation, *_ in guarded.rules.asked} == {Op.DESCRIBE}


# --- sessions, the quick way, and who cannot be told ----------------------------------------------


def test_a_fetch_session_ends_with_the_right_to_read(guarded, raw):
    """Its partitions are named once; every fetch is judged anew."""
    tp = TopicPartition(NAME, 0)
    end = guarded.broker.on_loop(lambda live: live.directory.partitions[tp].end_offset)
    first = raw.ask(fetch_request(NAME, end, session_epoch=0), 12)
    assert first.responses[0].partitions[0].error_code == 0
    guarded.let(denied={(Op.READ, Kind.TOPIC)})
    again = fetch_request(NAME, 0, session_id=first.session_id, session_epoch=1)
    again.topics = []
    (told,) = raw.ask(again, 12).responses
    assert told.partitions[0].error_code == 29
    assert not told.partitions[0].records


def test_a_refused_produce_without_acknowledgement_ends_the_connection(guarded, raw):
    guarded.let(denied={(Op.WRITE, Kind.TOPIC)})
    before = guarded.state()
    produce(raw, NAME, batch(b"v"), acks=0)
    assert raw.is_cut()
    assert guarded.state() == before


@pytest.fixture(scope="module", params=["os", "group"])
def quick(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    with Broker(durability=request.param) as broker:
        yield Guarded(broker)


@pytest.mark.parametrize("version", [9, 13])
def test_a_right_that_is_taken_away_counts_for_the_next_batch_on_the_quick_way(quick, version):
    quick.furnish()
    with RawClient(quick.broker.port) as raw:

        def write() -> int:
            code: int = produce(raw, NAME, batch(b"v"), version=version).error_code
            return code

        assert [write(), write(), write()] == [0, 0, 0]
        quick.let(denied={(Op.WRITE, Kind.TOPIC)})
        before = quick.state()
        assert [write(), write()] == [29, 29]
        assert quick.state() == before
        quick.let(denied={(Op.READ, Kind.TOPIC)})
        assert [write(), write()] == [0, 0]


def test_the_right_to_an_id_that_is_taken_away_counts_for_the_next_batch_of_its_transaction(quick):
    quick.furnish()
    with RawClient(quick.broker.port) as raw:
        one = Transactional(raw, "id")
        assert one.init() is ErrorCode.NONE
        one.write(NAME, b"v")
        assert [one.produce(NAME, b"v"), one.produce(NAME, b"v")] == [0, 0]
        quick.let(denied={(Op.WRITE, Kind.TRANSACTIONAL_ID)})
        assert one.produce(NAME, b"v") is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        quick.let(denied={(Op.READ, Kind.TRANSACTIONAL_ID)})
        assert one.produce(NAME, b"v") is ErrorCode.NONE


def test_the_quick_way_asks_once_as_long_as_nothing_changes(quick):
    quick.furnish()
    with RawClient(quick.broker.port) as raw:
        produce(raw, NAME, batch(b"v"))
        produce(raw, NAME, batch(b"v"))
        quick.broker.on_loop(lambda _: quick.rules.asked.clear())
        for _ in range(5):
            assert produce(raw, NAME, batch(b"v")).error_code == 0
        assert quick.rules.asked == []


def test_without_rules_everything_is_allowed():
    with Broker() as broker:
        door = broker.on_loop(lambda live: live.door)
        assert isinstance(door.authorizer, AllowAll)
