"""Membership: subscriptions, callbacks in order, static members, leaving, being thrown out."""

from __future__ import annotations

import re
import threading
import time
import uuid

import pytest

from shoal import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from shoal.errors import (
    CommitFailedError,
    ConfigError,
    ErrorCode,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RebalanceListenerError,
    WakeupError,
)
from shoal.group.member.member_interface import MemberState
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.conftest import poll_until, take
from tests.client.scripted import ScriptedBroker


class Diary(RebalanceListener):
    """Writes down what it is told, and in which thread."""

    def __init__(self):
        self.entries = []
        self.threads = set()

    def _note(self, what, partitions):
        assert partitions == sorted(partitions)
        self.entries.append((what, [tp.partition for tp in partitions]))
        self.threads.add(threading.get_ident())

    def on_partitions_assigned(self, partitions):
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions):
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions):
        self._note("lost", partitions)


class Follower:
    """A second consumer, polling in a thread of its own until told to stop."""

    def __init__(self, consumer, topics, listener=None):
        self.consumer = consumer
        self.error = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(topics, listener))

    def _run(self, topics, listener):
        try:
            self.consumer.subscribe(topics, listener)
            while not self._stop.is_set():
                self.consumer.poll(0.05)
            self.consumer.close()
        except BaseException as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def stop(self):
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def __exit__(self, *_):
        self.stop()


def test_a_member_alone_gets_everything_and_commits(producer, consumer, new_topic):
    topic = new_topic(3)
    for n in range(9):
        producer.send(topic, str(n), partition=n % 3)
    producer.flush(10)
    one = consumer()
    one.subscribe([topic])
    assert one.subscription() == {topic}
    take(one, 9)
    partitions = {TopicPartition(topic, n) for n in range(3)}
    assert one.assignment() == partitions
    one.commit_sync()
    found = one.committed(*partitions)
    assert {tp: at.offset for tp, at in found.items()} == dict.fromkeys(partitions, 3)
    assert one.group_metadata().generation_id == 1
    one.close()
    other = consumer()
    other.subscribe([topic])
    poll_until(other, other.assignment)
    assert {other.position(tp) for tp in partitions} == {3}


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_eager_members_give_up_everything_and_get_it_anew(consumer, new_topic, assignor):
    topic, diary, other_diary = new_topic(4), Diary(), Diary()
    one = consumer(assignors=[assignor])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    assert diary.entries == [("assigned", [0, 1, 2, 3])]
    with Follower(consumer(assignors=[assignor]), [topic], other_diary):
        poll_until(one, lambda: len(one.assignment()) == 2)
        mine = sorted(tp.partition for tp in one.assignment())
        theirs = sorted({0, 1, 2, 3} - set(mine))
        poll_until(one, lambda: other_diary.entries)
    poll_until(one, lambda: len(one.assignment()) == 4)
    assert other_diary.entries == [("assigned", theirs), ("revoked", theirs)]
    assert diary.entries == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", mine),
        ("revoked", mine),
        ("assigned", [0, 1, 2, 3]),
    ]
    assert diary.threads == {threading.get_ident()}
    one.close()
    assert diary.entries[-1] == ("revoked", [0, 1, 2, 3])


def test_cooperative_members_keep_what_stays_theirs(consumer, new_topic):
    topic, diary, other_diary = new_topic(4), Diary(), Diary()
    one = consumer(assignors=["cooperative-sticky"])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    with Follower(consumer(assignors=["cooperative-sticky"]), [topic], other_diary):
        poll_until(one, lambda: len(one.assignment()) == 2)
        mine = sorted(tp.partition for tp in one.assignment())
        theirs = sorted({0, 1, 2, 3} - set(mine))
        poll_until(one, lambda: ("assigned", theirs) in other_diary.entries)
        poll_until(one, lambda: len(diary.entries) == 4)
    poll_until(one, lambda: len(one.assignment()) == 4)
    assert diary.entries == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", theirs),
        ("assigned", []),
        ("assigned", []),
        ("assigned", theirs),
    ]
    # The empty assignment of its first generation passes it by if the other one is back first.
    told = [entry for entry in other_diary.entries if entry != ("assigned", [])]
    assert told == [("assigned", theirs), ("revoked", theirs)]


def rebalance_that_waits(consumer, admin, group, topic, assignor):
    """A group in the middle of a rebalance: one member rejoined, one is busy in user code."""
    one, busy, new = (consumer(assignors=[assignor]) for _ in range(3))
    one.subscribe([topic])
    busy.subscribe([topic])
    until = time.monotonic() + 20
    while not (one.assignment() and busy.assignment()):
        assert time.monotonic() < until
        one.poll(0.01)
        busy.poll(0.01)
    while admin.describe_group(group).state != "Stable":
        assert time.monotonic() < until
        one.poll(0.01)
        busy.poll(0.01)
    before = one.assignment()
    new.subscribe([topic])
    member = one._session._group.member
    while member.state is not MemberState.PREPARING:
        assert time.monotonic() < until
        new.poll(0.01)
        one.poll(0.01)
    assert admin.describe_group(group).state == "PreparingRebalance"
    return one, busy, new, before


def test_partitions_that_stay_are_read_while_the_others_rebalance(
    producer, consumer, admin, new_topic, group
):
    topic = new_topic(6)
    one, busy, new, before = rebalance_that_waits(
        consumer, admin, group, topic, "cooperative-sticky"
    )
    assert len(before) == 3
    for n in range(20):
        for tp in before:
            producer.send(topic, str(n), partition=tp.partition)
        # New records, fetched and returned although the group is waiting for somebody.
        assert {record.topic_partition for record in take(one, 3)} == before
        assert one.assignment() == before
        assert admin.describe_group(group).state == "PreparingRebalance"
    until = time.monotonic() + 20
    while not (len(one.assignment()) == len(busy.assignment()) == len(new.assignment()) == 2):
        assert time.monotonic() < until
        for member in (one, busy, new):
            member.poll(0.01)
    assert one.assignment() < before


@pytest.mark.parametrize("assignor", ["range", "sticky"])
def test_an_eager_group_stands_still_meanwhile(
    producer, consumer, admin, new_topic, group, assignor
):
    topic = new_topic(6)
    one, busy, new, before = rebalance_that_waits(consumer, admin, group, topic, assignor)
    assert one.assignment() == set()
    for tp in before:
        producer.send(topic, b"x", partition=tp.partition)
    producer.flush(10)
    for _ in range(5):
        assert not one.poll(0.01)
    seen, until = 0, time.monotonic() + 20
    while seen < 3:
        assert time.monotonic() < until
        seen += sum(len(member.poll(0.01)) for member in (one, busy, new))


def test_a_pattern_takes_topics_as_they_appear(admin, consumer, group):
    stem = uuid.uuid4().hex[:8]
    admin.create_topic(f"{stem}-a", partitions=1)
    one = consumer(metadata_max_age_ms=100)
    one.subscribe(re.compile(rf"{stem}-.*"))
    poll_until(one, one.assignment)
    assert one.subscription() == {f"{stem}-a"}
    admin.create_topic(f"{stem}-b", partitions=1)
    admin.create_topic(f"x-{stem}-c", partitions=1)
    poll_until(one, lambda: len(one.assignment()) == 2)
    assert one.subscription() == {f"{stem}-a", f"{stem}-b"}


@pytest.mark.parametrize("excluded", [True, False])
def test_a_pattern_takes_internal_topics_only_if_they_are_wanted(admin, consumer, excluded):
    name, internal = f"{uuid.uuid4().hex[:8]}-a", "__consumer_offsets"
    admin.create_topic(name, partitions=1)
    admin.alter_group_offsets("any", {TopicPartition(name, 0): 0})  # makes the internal one
    one = consumer(exclude_internal_topics=excluded)
    one.subscribe(re.compile(f"{name}|{internal}"))
    poll_until(one, one.assignment)
    assert one.subscription() == ({name} if excluded else {name, internal})


def test_new_partitions_are_found(admin, consumer, topic):
    one = consumer(metadata_max_age_ms=100)
    one.subscribe([topic])
    poll_until(one, one.assignment)
    admin.create_partitions({topic: 3})
    poll_until(one, lambda: len(one.assignment()) == 3)


def test_a_leader_finds_new_partitions_of_a_topic_only_others_read(admin, consumer, new_topic):
    mine, theirs = new_topic(1), new_topic(1)
    leader = consumer(metadata_max_age_ms=200)
    leader.subscribe([mine])
    poll_until(leader, leader.assignment)
    with Follower(consumer(), [theirs]) as other:
        poll_until(leader, other.consumer.assignment)
        admin.create_partitions({theirs: 3})
        poll_until(leader, lambda: len(other.consumer.assignment()) == 3)


def test_a_pattern_lets_go_of_topics_that_are_deleted(admin, consumer):
    stem = uuid.uuid4().hex[:8]
    for letter in "ab":
        admin.create_topic(f"{stem}-{letter}", partitions=1)
    one = consumer(metadata_max_age_ms=100)
    one.subscribe(re.compile(rf"{stem}-.*"))
    poll_until(one, lambda: len(one.assignment()) == 2)
    admin.delete_topics(f"{stem}-a")
    poll_until(one, lambda: one.assignment() == {TopicPartition(f"{stem}-b", 0)})
    assert one.subscription() == {f"{stem}-b"}


def test_a_list_after_a_pattern_and_a_pattern_after_a_list_win(admin, consumer):
    stem = uuid.uuid4().hex[:8]
    names = [f"{stem}-{letter}" for letter in "abc"]
    for name in names:
        admin.create_topic(name, partitions=1)
    one = consumer()
    one.subscribe(re.compile(rf"{stem}-[ab]"))
    poll_until(one, lambda: {tp.topic for tp in one.assignment()} == {*names[:2]})
    one.subscribe([names[2]])
    poll_until(one, lambda: {tp.topic for tp in one.assignment()} == {names[2]})
    one.subscribe(re.compile(rf"{stem}-[bc]"))
    poll_until(one, lambda: {tp.topic for tp in one.assignment()} == {*names[1:]})


def test_the_last_subscription_wins(consumer, new_topic):
    first, second, diary = new_topic(1), new_topic(1), Diary()
    one = consumer()
    one.subscribe([first], diary)
    poll_until(one, one.assignment)
    one.subscribe([second], diary)
    assert one.subscription() == {second}
    poll_until(one, lambda: one.assignment() == {TopicPartition(second, 0)})
    one.subscribe([])
    assert one.subscription() == set()
    assert one.assignment() == set()
    one.assign([TopicPartition(first, 0)])
    with pytest.raises(RuntimeError, match="unsubscribe"):
        one.subscribe([first])
    one.unsubscribe()
    one.subscribe([first])
    with pytest.raises(RuntimeError, match="unsubscribe"):
        one.assign([TopicPartition(first, 0)])


def test_a_group_needs_a_name(servers):
    with Consumer(bootstrap_servers=servers) as one:
        with pytest.raises(ConfigError, match="group_id"):
            one.subscribe(["t"])
        with pytest.raises(ConfigError, match="group_id"):
            one.commit_sync()
        with pytest.raises(ConfigError, match="group_id"):
            one.group_metadata()


def test_a_subscription_to_a_topic_made_later(admin, consumer, producer):
    topic = f"later-{uuid.uuid4().hex[:8]}"
    one = consumer(metadata_max_age_ms=100, allow_auto_create_topics=False)
    one.subscribe([topic])
    poll_until(one, lambda: one.group_metadata().generation_id > 0)
    assert one.assignment() == set()
    admin.create_topic(topic, partitions=1)
    poll_until(one, one.assignment)


def test_closing_leaves_the_group(admin, consumer, topic, group):
    one = consumer()
    one.subscribe([topic])
    poll_until(one, one.assignment)
    assert [m.assignment for m in admin.describe_group(group).members] == [
        (TopicPartition(topic, 0),)
    ]
    one.close()
    assert admin.describe_group(group).state == "Empty"
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.poll(0)


class SlowToName(ScriptedBroker):
    """Gives out a member id only after the consumer began to close; notes who leaves."""

    def __init__(self):
        super().__init__()
        self.closing = threading.Event()
        self.left = []

    def _message(self, key, request, code):
        match key:
            case ApiKey.API_VERSIONS:
                answer = super()._message(key, request, code)
                answer.api_keys += [
                    ApiVersionsResponse.ApiVersion(api_key=api, min_version=most, max_version=most)
                    for api, most in ((ApiKey.JOIN_GROUP, 9), (ApiKey.LEAVE_GROUP, 5))
                ]
                return answer
            case ApiKey.JOIN_GROUP:
                self.closing.wait(10)
                threading.Event().wait(0.1)
                return JoinGroupResponse(
                    error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="the-name"
                )
            case ApiKey.LEAVE_GROUP:
                self.left += [member.member_id for member in request.members]
                return LeaveGroupResponse()
        return super()._message(key, request, code)


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_who_ends_while_it_joins_first_hears_its_name_and_then_leaves(end):
    with SlowToName() as broker:
        with Consumer(bootstrap_servers=broker.servers, group_id="g") as one:
            one.subscribe(["t"])
            poll_until(one, lambda: broker.asked["JoinGroup"])
            broker.closing.set()
            getattr(one, end)()
        assert broker.left == ["the-name"]


class HoldsJoins(SlowToName):
    """Holds the second JoinGroup, and all that comes behind it, until somebody leaves."""

    def _message(self, key, request, code):
        if key is ApiKey.JOIN_GROUP and request.member_id:
            self.closing.wait(6)
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if key is ApiKey.JOIN_GROUP:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="the-name")
        if key is ApiKey.LEAVE_GROUP:
            self.closing.set()
        return super()._message(key, request, code)


def test_who_leaves_does_not_wait_behind_its_own_join():
    with HoldsJoins() as broker, Consumer(bootstrap_servers=broker.servers, group_id="g") as one:
        one.subscribe(["t"])
        poll_until(one, lambda: broker.asked["JoinGroup"] == 2)
        one.close(4)
        assert broker.left == ["the-name"]


def test_who_leaves_during_a_join_that_waits_is_not_waited_for(consumer, admin, new_topic, group):
    topic = new_topic(3)
    one, busy, new, _ = rebalance_that_waits(consumer, admin, group, topic, "range")
    new.close()  # its JoinGroup is held by the broker at this moment
    assert len(admin.describe_group(group).members) == 2
    until = time.monotonic() + 15
    while len(one.assignment()) + len(busy.assignment()) != 3:
        assert time.monotonic() < until
        one.poll(0.01)
        busy.poll(0.01)


def test_a_static_member_comes_back_without_a_rebalance(admin, consumer, new_topic, group):
    topic = new_topic(2)
    one = consumer(group_instance_id="left")
    one.subscribe([topic])
    other = consumer(group_instance_id="right")
    with Follower(other, [topic]):
        poll_until(one, lambda: len(one.assignment()) == 1 and len(other.assignment()) == 1)
        mine, generation = one.assignment(), one.group_metadata().generation_id
        one.close()
        assert len(admin.describe_group(group).members) == 2
        again = consumer(group_instance_id="left")
        again.subscribe([topic])
        poll_until(again, again.assignment)
        assert again.assignment() == mine
        assert again.group_metadata().generation_id == generation
    admin.remove_members(group, "left", "right")
    assert admin.describe_group(group).members == ()


def test_a_second_static_member_of_the_same_name_fences_the_first(consumer, topic):
    one = consumer(group_instance_id="same", heartbeat_interval_ms=100)
    one.subscribe([topic])
    poll_until(one, one.assignment)
    two = consumer(group_instance_id="same", heartbeat_interval_ms=100)
    two.subscribe([topic])
    poll_until(two, two.assignment)
    with pytest.raises(FencedInstanceIdError):
        poll_until(one, lambda: False)


def test_enforce_rebalance_rejoins(consumer, topic):
    one = consumer()
    one.subscribe([topic])
    poll_until(one, one.assignment)
    before = one.group_metadata().generation_id
    one.enforce_rebalance("because")
    poll_until(one, lambda: one.group_metadata().generation_id > before)


def test_a_listener_may_use_the_consumer(producer, consumer, new_topic):
    topic = new_topic(2)
    for n in range(10):
        producer.send(topic, str(n), partition=n % 2)
    producer.flush(10)
    one = consumer()

    class Seeker(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            for tp in partitions:
                one.seek(tp, 3)
                assert one.position(tp) == 3

        def on_partitions_revoked(self, partitions):
            one.commit_sync()

    one.subscribe([topic], Seeker())
    assert sorted(r.offset for r in take(one, 4)) == [3, 3, 4, 4]
    one.close()
    reader = consumer()
    committed = reader.committed(TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert [at.offset for at in committed.values()] == [5, 5]


def test_what_a_listener_raises_comes_out_of_poll_and_all_goes_on(producer, consumer, topic):
    producer.send(topic, b"x").result(10)

    class Broken(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            raise LookupError("not today")

    one = consumer()
    one.subscribe([topic], Broken())
    with pytest.raises(RebalanceListenerError) as caught:
        poll_until(one, lambda: False)
    assert isinstance(caught.value.__cause__, LookupError)
    assert take(one, 1)[0].value == b"x"


def test_a_wakeup_inside_a_callback_repeats_the_callback(consumer, topic):
    calls = []
    one = consumer()

    class Interrupted(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            calls.append(list(partitions))
            if len(calls) == 1:
                one.wakeup()
                one.commit_sync({partitions[0]: OffsetAndMetadata(0)})

    one.subscribe([topic], Interrupted())
    with pytest.raises(WakeupError):
        poll_until(one, lambda: False)
    poll_until(one, lambda: len(calls) == 2)
    assert calls[0] == calls[1] == [TopicPartition(topic, 0)]


@pytest.mark.slow
def test_who_polls_too_seldom_is_out_and_hears_of_it(producer, consumer, topic):
    diary = Diary()
    producer.send(topic, b"x").result(10)
    one = consumer(max_poll_interval_ms=300, heartbeat_interval_ms=100)
    one.subscribe([topic], diary)
    take(one, 1)
    threading.Event().wait(0.6)  # user code that takes too long
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        one.commit_sync()
    poll_until(one, lambda: len(diary.entries) >= 3)
    assert diary.entries == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


def test_heartbeats_go_on_while_user_code_works(consumer, topic, admin, group):
    one = consumer(session_timeout_ms=6000, heartbeat_interval_ms=50)
    one.subscribe([topic])
    poll_until(one, one.assignment)
    before = one.group_metadata()
    threading.Event().wait(0.2)
    assert admin.describe_group(group).state == "Stable"
    one.commit_sync({TopicPartition(topic, 0): OffsetAndMetadata(0)})
    assert one.group_metadata() == before


def test_a_close_in_the_middle_of_a_rebalance_commits_what_was_read(
    producer, consumer, admin, new_topic, group
):
    """A cooperative member goes on reading while it waits for the others to join."""
    topic = new_topic(2)
    settings = {"assignors": ["cooperative-sticky"], "auto_commit_interval_ms": 3_600_000}
    one, slow = (consumer(enable_auto_commit=True, **settings) for _ in range(2))
    one.subscribe([topic])
    slow.subscribe([topic])
    while not (len(one.assignment()) == len(slow.assignment()) == 1):
        one.poll(0.05)
        slow.poll(0.05)
    (tp,) = one.assignment()
    with Follower(consumer(**settings), [topic]):
        poll_until(one, lambda: is_rebalancing(one, tp))
        producer.send(topic, b"read in between", partition=tp.partition).result(10)
        assert take(one, 1)[0].topic_partition == tp
        # The slow one comes back to poll while the other is closing.
        closed = threading.Event()
        timer = threading.Timer(0.3, poll_until, (slow, closed.is_set))
        timer.start()
        one.close()
        closed.set()
        timer.join()
        assert admin.group_offsets(group)[tp].offset == 1


def is_rebalancing(consumer, tp):
    try:
        consumer.commit_sync({tp: OffsetAndMetadata(0)})
    except RebalanceInProgressError:
        return True
    return False
