"""Consumers in groups of the new protocol (KIP-848), against scripts and Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from shoal import (
    Admin,
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.errors import BrokerError, CommitFailedError, ConfigError, ErrorCode
from shoal.testing.broker import Broker
from tests.client.conftest import poll_until, take
from tests.client.scripted_group import ScriptedGroup
from tests.peers import need
from tests.peers.jars import kafka_jars

T0 = TopicPartition("t", 0)

# --- a scripted coordinator ---


@pytest.fixture
def coordinator() -> Iterator[ScriptedGroup]:
    with ScriptedGroup() as broker:
        yield broker


@pytest.fixture
def scripted(coordinator: ScriptedGroup) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        given = {
            "bootstrap_servers": coordinator.servers,
            "group_id": "g",
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_interval_ms": 60_000,
            "retry_backoff_ms": 10,
            **settings,
        }
        made.append(Consumer(**given))
        return made[-1]

    yield make
    for one in made:
        one.close(2)


class Listener:
    def __init__(self) -> None:
        self.seen: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.seen.append(("assigned", sorted(partitions)))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.seen.append(("revoked", sorted(partitions)))

    def on_partitions_lost(self, partitions: Any) -> None:
        self.seen.append(("lost", sorted(partitions)))


def test_a_consumer_joins_reads_commits_and_leaves_by_heartbeats_alone(coordinator, scripted):
    consumer = scripted()
    listener = Listener()
    consumer.subscribe(["t"], listener)
    assert len(take(consumer, 10)) == 10
    consumer.commit_sync()
    metadata = consumer.group_metadata()
    consumer.close()
    first, *_, last = coordinator.heartbeats
    assert (first.member_epoch, first.member_id) == (0, metadata.member_id)
    assert re.fullmatch(r"[\w-]{22}", first.member_id)
    assert last.member_epoch == -1
    (commit,) = coordinator.commits
    assert commit.generation_id_or_member_epoch == 1
    assert commit.member_id == metadata.member_id
    assert coordinator.asked["JoinGroup"] == 0
    assert listener.seen == [("assigned", [T0]), ("revoked", [T0])]


def test_a_topic_of_which_only_the_id_is_known_is_asked_for(coordinator, scripted):
    coordinator.names_by_id_only = True
    consumer = scripted()
    consumer.subscribe(pattern="t|u")
    assert len(take(consumer, 10)) == 10
    assert consumer.subscription() == {"t"}
    assert coordinator.heartbeats[0].subscribed_topic_regex == "t|u"


def test_a_commit_by_a_stale_epoch_is_sent_again_by_the_new_one(coordinator, scripted):
    consumer = scripted()
    consumer.subscribe(["t"])
    take(consumer, 10)
    coordinator.epoch = 7
    coordinator.fail("OffsetCommit", ErrorCode.STALE_MEMBER_EPOCH)
    consumer.commit_sync()
    assert [one.generation_id_or_member_epoch for one in coordinator.commits][-1] == 7
    assert consumer.group_metadata().generation_id == 7


def test_a_stale_commit_of_what_somebody_else_may_own_is_refused_and_not_sent_again(
    coordinator, scripted
):
    consumer = scripted()
    consumer.subscribe(["t"])
    take(consumer, 1)
    coordinator.fail("OffsetCommit", ErrorCode.STALE_MEMBER_EPOCH)
    with pytest.raises(CommitFailedError) as failure:
        consumer.commit_sync({TopicPartition("t", 5): OffsetAndMetadata(3)})
    assert failure.value.code is ErrorCode.STALE_MEMBER_EPOCH
    assert len(coordinator.commits) == 1


def test_a_commit_of_who_is_not_a_member_any_more_fails_and_the_heartbeat_tells(
    coordinator, scripted
):
    consumer = scripted()
    listener = Listener()
    consumer.subscribe(["t"], listener)
    take(consumer, 10)
    coordinator.fail("OffsetCommit", ErrorCode.UNKNOWN_MEMBER_ID)
    coordinator.fail("ConsumerGroupHeartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(CommitFailedError):
        consumer.commit_sync()
    poll_until(consumer, lambda: ("lost", [T0]) in listener.seen)
    poll_until(consumer, lambda: consumer.assignment() == {T0})


def test_what_is_given_up_is_committed_before_and_told_after(coordinator, scripted):
    consumer = scripted(enable_auto_commit=True)
    listener = Listener()
    consumer.subscribe(["t"], listener)
    take(consumer, 10)
    coordinator.partitions = []
    poll_until(consumer, lambda: consumer.assignment() == frozenset())
    assert coordinator.commits[-1].topics[0].partitions[0].committed_offset == 10

    def told() -> list[int]:
        later = [one for one in coordinator.heartbeats if one.member_epoch > 0]
        return [len(one.topic_partitions) for one in later if one.topic_partitions is not None]

    poll_until(consumer, lambda: told() == [1, 0])
    assert listener.seen[-2:] == [("revoked", [T0]), ("assigned", [])]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
    ids=lambda code: code.name,
)
def test_a_refused_join_is_raised_by_poll_with_the_brokers_words(coordinator, scripted, code):
    coordinator.fail("ConsumerGroupHeartbeat", code)
    consumer = scripted()
    consumer.subscribe(["t"])
    with pytest.raises(BrokerError, match="scripted") as failure:
        poll_until(consumer, lambda: False, timeout=5)
    assert failure.value.code is code


def test_a_group_that_can_be_joined_later_is_joined_later(coordinator, scripted):
    coordinator.fail("ConsumerGroupHeartbeat", ErrorCode.UNRELEASED_INSTANCE_ID)
    consumer = scripted(group_instance_id="i")
    consumer.subscribe(["t"])
    with pytest.raises(BrokerError):
        poll_until(consumer, lambda: False, timeout=5)
    assert len(take(consumer, 10)) == 10
    consumer.close()
    assert coordinator.heartbeats[-1].member_epoch == -2


def test_a_pattern_for_the_broker_is_refused_in_a_classic_group(scripted):
    consumer = scripted(group_protocol="classic")
    with pytest.raises(ConfigError, match=r"^pattern='a\.\*' is matched by the broker, in groups"):
        consumer.subscribe(pattern="a.*")


def test_a_broker_without_the_new_protocol_is_said_to_have_none(coordinator, scripted):
    del coordinator.versions[68]
    consumer = scripted()
    consumer.subscribe(["t"])
    with pytest.raises(BrokerError, match=r'has no group_protocol="consumer"; use "auto" or'):
        poll_until(consumer, lambda: False, timeout=5)


def test_a_broker_whose_new_protocol_takes_no_pattern_is_said_to_take_none(coordinator, scripted):
    coordinator.versions[68] = 0  # a preview, in Kafka 3.7 to 3.9
    consumer = scripted()
    consumer.subscribe(pattern="t.*")
    with pytest.raises(BrokerError, match="or takes no pattern"):
        poll_until(consumer, lambda: False, timeout=5)
    consumer.subscribe(["t"])
    assert len(take(consumer, 10)) == 10


# --- auto ---


def test_auto_takes_the_new_protocol_where_it_is_offered(coordinator, scripted):
    consumer = scripted(group_protocol="auto")
    consumer.subscribe(["t"])
    assert len(take(consumer, 10)) == 10
    assert coordinator.heartbeats
    assert coordinator.asked["JoinGroup"] == 0


@pytest.mark.parametrize("why", ["no api", "switched off", "told so", "a classic group"])
def test_auto_joins_by_the_classic_protocol_where_there_is_no_other(coordinator, scripted, why):
    if why == "no api":
        del coordinator.versions[68]
    elif why == "switched off":
        coordinator.features = {"group.version": 0}
    else:
        is_off = why == "told so"
        code = ErrorCode.UNSUPPORTED_VERSION if is_off else ErrorCode.GROUP_ID_NOT_FOUND
        coordinator.fail("ConsumerGroupHeartbeat", code, times=9)
    consumer = scripted(group_protocol="auto")
    listener = Listener()
    consumer.subscribe(["t"], listener)
    assert len(take(consumer, 10)) == 10
    assert consumer.group_metadata().member_id == "classic"
    assert listener.seen == [("assigned", [T0])]
    assert len(coordinator.heartbeats) <= 1


def test_auto_says_that_a_classic_group_takes_no_pattern_for_the_broker(coordinator, scripted):
    del coordinator.versions[68]
    consumer = scripted(group_protocol="auto")
    consumer.subscribe(pattern="a.*")
    for _ in range(2):
        with pytest.raises(ConfigError, match="is matched by the broker, in groups of the new"):
            poll_until(consumer, lambda: False, timeout=5)
    consumer.subscribe(["t"])
    assert len(take(consumer, 10)) == 10


# --- our broker, and Apache Kafka ---


@pytest.fixture(scope="module")
def quick_kafka() -> Iterator[str]:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    quick = {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.max.size": "3",
    }
    with ApacheKafka(heap="512m", settings=quick) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def quick_shoal() -> Iterator[str]:
    groups = GroupSettings(
        consumer_heartbeat_interval_ms=200, consumer_assignment_interval_ms=0, consumer_max_size=3
    )
    with Broker(config=BrokerConfig(groups=groups)) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(
    params=["shoal", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def servers(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"quick_{request.param}")
    return found


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin.create_topic(name, partitions=6)
    return name


@pytest.fixture
def member(servers: str, group: str) -> Iterator[Callable[..., Consumer]]:
    """Makes members of one group; closes them afterwards."""
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        given = {
            "bootstrap_servers": servers,
            "group_id": group,
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            **settings,
        }
        made.append(Consumer(**given))
        return made[-1]

    yield make
    for one in made:
        one.close(5)


def produce(servers: str, topic: str, count: int, first: int = 0) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number), partition=number % 6)
        producer.flush()


def poll_all(members: list[Consumer], done: Callable[[], object], timeout: float = 30) -> list[int]:
    """Poll all of them in turn until ``done``; the numbers that came."""
    seen: list[int] = []
    until = time.monotonic() + timeout
    while not done():
        held = [len(one.assignment()) for one in members]
        assert time.monotonic() < until, f"it did not come to that: {held}"
        for one in members:
            seen += [int(record.value) for record in one.poll(0.05)]
    return seen


def shares(*members: Consumer) -> list[int]:
    return sorted(len(one.assignment()) for one in members)


def test_partitions_move_between_members_and_no_record_comes_twice(
    servers, admin, topic, member, group
):
    produce(servers, topic, 60)
    first = member()
    listener = Listener()
    first.subscribe([topic], listener)
    seen: list[int] = []
    seen += poll_all([first], lambda: shares(first) == [6])
    second = member()
    second.subscribe([topic])
    seen += poll_all([first, second], lambda: shares(first, second) == [3, 3])
    produce(servers, topic, 60, first=60)
    assert [what for what, _ in listener.seen] == ["assigned", "revoked", "assigned"]
    described = admin.describe_group(group)
    assert (described.protocol, described.assignor) == ("consumer", "uniform")
    second.close()
    until = time.monotonic() + 30
    while len(seen) < 120:
        assert time.monotonic() < until, f"{len(seen)} of 120"
        seen += poll_all([first], lambda: True) or [int(r.value) for r in first.poll(0.2)]
    assert sorted(seen) == list(range(120))
    assert shares(first) == [6]
    first.close()
    assert admin.describe_group(group).members == ()


def test_columns_and_awaiting_consumers_are_members_too(servers, topic, member, group):
    produce(servers, topic, 60)
    columns = member()
    columns.subscribe([topic])
    rows: list[int] = []
    until = time.monotonic() + 30
    while len(rows) < 60 and time.monotonic() < until:
        rows += [int(value) for value in columns.poll_arrow(0.2)["value"].to_pylist()]
    assert sorted(rows) == list(range(60))

    async def awaiting() -> int:
        settings = {"bootstrap_servers": servers, "group_id": group, "group_protocol": "consumer"}
        async with AsyncConsumer(**settings) as second:
            await second.subscribe([topic])
            until = time.monotonic() + 30
            while len(second.assignment()) != 3 and time.monotonic() < until:
                await second.poll(0.1)
            return len(second.assignment())

    shared: list[int] = []
    thread = threading.Thread(target=lambda: shared.append(asyncio.run(awaiting())))
    thread.start()
    while thread.is_alive():
        columns.poll_arrow(0.05)
    thread.join()
    assert shared == [3]


def test_a_listener_commits_what_it_gives_up(servers, topic, member):
    produce(servers, topic, 60)
    first = member(enable_auto_commit=False)

    class Commits(Listener):
        def on_partitions_revoked(self, partitions: Any) -> None:
            first.commit_sync()
            super().on_partitions_revoked(partitions)

    first.subscribe([topic], Commits())
    seen = [int(one.value) for one in take(first, 60)]
    second = member(enable_auto_commit=False)
    second.subscribe([topic])
    seen += poll_all([first, second], lambda: shares(first, second) == [3, 3])
    assert sorted(seen) == list(range(60))
    assert all(one is not None for one in second.committed(second.assignment()).values())


def test_a_static_member_comes_back_to_what_it_had_and_nobody_takes_its_name(topic, member):
    static = member(group_instance_id="one")
    other = member()
    static.subscribe([topic])
    other.subscribe([topic])
    poll_all([static, other], lambda: shares(static, other) == [3, 3])
    had = static.assignment()
    thief = member(group_instance_id="one")
    thief.subscribe([topic])
    with pytest.raises(BrokerError) as failure:
        poll_until(thief, lambda: False, timeout=10)
    assert failure.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    thief.close()
    epoch = other.group_metadata().generation_id
    static.close()
    back = member(group_instance_id="one")
    back.subscribe([topic])
    poll_all([back, other], lambda: back.assignment() == had)
    assert other.group_metadata().generation_id == epoch, "nobody else heard of it"


def test_a_member_that_was_removed_loses_everything_and_joins_again(topic, member, admin, group):
    one = member(group_instance_id="one")
    listener = Listener()
    one.subscribe([topic], listener)
    poll_all([one], lambda: shares(one) == [6])
    before = one.group_metadata()
    admin.remove_members(group, "one")
    everything = sorted(TopicPartition(topic, number) for number in range(6))
    poll_until(one, lambda: ("lost", everything) in listener.seen)
    poll_all([one], lambda: shares(one) == [6])
    after = one.group_metadata()
    assert after.member_id == before.member_id
    assert after.generation_id > before.generation_id


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll(topic, member, admin, group):
    slow = member(max_poll_interval_ms=1_000)
    listener = Listener()
    slow.subscribe([topic], listener)
    poll_all([slow], lambda: shares(slow) == [6])
    until = time.monotonic() + 20
    while admin.describe_group(group).members:
        assert time.monotonic() < until
        time.sleep(0.1)
    everything = sorted(TopicPartition(topic, number) for number in range(6))
    poll_all([slow], lambda: ("lost", everything) in listener.seen)
    poll_all([slow], lambda: shares(slow) == [6])


def test_the_broker_matches_a_pattern_and_says_what_is_wrong_with_one(
    servers, member, admin, topic
):
    one = member()
    one.subscribe(pattern=f"{topic}(-[a-z]+)?")
    poll_all([one], lambda: shares(one) == [6])
    assert one.subscription() == {topic}
    one.subscribe(pattern=f"{topic}-(")
    with pytest.raises(BrokerError) as failure:
        poll_until(one, lambda: False, timeout=10)
    assert failure.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    one.subscribe([topic])
    poll_all([one], lambda: shares(one) == [6])


def test_a_compiled_pattern_is_matched_here_and_sees_new_topics(member, admin, topic):
    one = member(metadata_max_age_ms=200)
    one.subscribe(re.compile(rf"{topic}(?!-not).*"))
    poll_all([one], lambda: shares(one) == [6])
    admin.create_topic(f"{topic}-more", partitions=2)
    admin.create_topic(f"{topic}-not", partitions=2)
    poll_all([one], lambda: shares(one) == [8])
    assert one.subscription() == {topic, f"{topic}-more"}


def test_the_brokers_assignor_is_asked_for_by_name(member, admin, topic, group):
    one = member(group_remote_assignor="range")
    one.subscribe([topic])
    poll_all([one], lambda: shares(one) == [6])
    assert admin.describe_group(group).assignor == "range"
    wrong = member(group_remote_assignor="mine")
    wrong.subscribe([topic])
    with pytest.raises(BrokerError) as failure:
        poll_until(wrong, lambda: False, timeout=10)
    assert failure.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_group_that_is_full_is_joined_when_somebody_leaves(member, topic):
    three = [member() for _ in range(3)]
    for one in three:
        one.subscribe([topic])
    poll_all(three, lambda: shares(*three) == [2, 2, 2])
    fourth = member()
    fourth.subscribe([topic])
    with pytest.raises(BrokerError) as failure:
        poll_until(fourth, lambda: False, timeout=10)
    assert failure.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    three.pop().close()
    until = time.monotonic() + 20
    while shares(*three, fourth) != [2, 2, 2]:
        assert time.monotonic() < until
        for one in three:
            one.poll(0.02)
        with suppress(BrokerError):
            fourth.poll(0.02)


def test_a_changed_subscription_moves_partitions_of_both_topics(member, admin, topic):
    other = f"{topic}-other"
    admin.create_topic(other, partitions=2)
    one = member()
    listener = Listener()
    one.subscribe([topic], listener)
    poll_all([one], lambda: shares(one) == [6])
    one.subscribe([other], listener)
    poll_all([one], lambda: {tp.topic for tp in one.assignment()} == {other})
    assert ("revoked", sorted(TopicPartition(topic, n) for n in range(6))) in listener.seen


def test_a_topic_made_anew_is_read_from_its_start(servers, member, admin, topic):
    produce(servers, topic, 12)
    one = member()
    one.subscribe([topic])
    assert len(take(one, 12)) == 12
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=6)
    produce(servers, topic, 6, first=100)
    seen: list[int] = []
    until = time.monotonic() + 30
    while len(seen) < 6:
        assert time.monotonic() < until, seen
        seen += [int(record.value) for record in one.poll(0.1)]
    assert sorted(seen) == list(range(100, 106))


def test_auto_is_a_member_of_the_new_kind_and_shares_with_classic_ones(member, admin, topic, group):
    classic = member(group_protocol="classic", heartbeat_interval_ms=100)
    classic.subscribe([topic])
    poll_all([classic], lambda: shares(classic) == [6])
    auto = member(group_protocol="auto")
    auto.subscribe([topic])
    poll_all([classic, auto], lambda: shares(classic, auto) == [3, 3])
    assert admin.describe_group(group).protocol == "consumer"
    auto.close()
    poll_all([classic], lambda: shares(classic) == [6])


def test_offsets_are_committed_in_a_transaction_by_the_newest_epoch(servers, topic, group):
    produce(servers, topic, 12)
    settings: Any = {"bootstrap_servers": servers, "group_id": group, "group_protocol": "auto"}
    with (
        Consumer(auto_offset_reset="earliest", enable_auto_commit=False, **settings) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=f"x-{group}") as producer,
    ):
        consumer.subscribe([topic])
        take(consumer, 12)
        offsets = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in consumer.assignment()}
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        found = consumer.committed(consumer.assignment())
        assert {tp: one and one.offset for tp, one in found.items()} == {
            tp: one.offset for tp, one in offsets.items()
        }


def test_a_coordinator_that_restarts_finds_its_members_where_they_were(tmp_path, group):
    groups = GroupSettings(consumer_heartbeat_interval_ms=100)
    with Broker(data_dir=tmp_path, topics={"t": 4}, config=BrokerConfig(groups=groups)) as broker:
        settings: Any = {"bootstrap_servers": broker.bootstrap_servers, "group_id": group}
        with Consumer(group_protocol="consumer", **settings) as consumer:
            listener = Listener()
            consumer.subscribe(["t"], listener)
            poll_until(consumer, lambda: len(consumer.assignment()) == 4)
            before = consumer.group_metadata()
            broker.restart(kill=True)
            until = time.monotonic() + 20
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                while True:
                    consumer.poll(0.1)
                    described = admin.describe_group(group)
                    if [one.member_id for one in described.members] == [before.member_id]:
                        break
                    assert time.monotonic() < until
            consumer.commit_sync({TopicPartition("t", 0): OffsetAndMetadata(0)})
            assert consumer.group_metadata().member_id == before.member_id
            assert [what for what, tps in listener.seen if tps] == ["assigned"]
