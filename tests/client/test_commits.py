"""Commits: what is committed, when callbacks run, what is never done."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shoal import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from shoal.client.offsets import commit_request
from shoal.errors import (
    BrokerError,
    CommitFailedError,
    ErrorCode,
    RequestTimeoutError,
    RetriableError,
)
from shoal.types import ConsumerGroupMetadata
from tests.client.conftest import poll_until, take
from tests.conformance.client import until
from tests.patience import PATIENCE_S


def fill(producer, topic, count):
    for n in range(count):
        producer.send(topic, str(n))
    producer.flush(10)


def test_a_commit_names_the_next_offset_and_keeps_the_note(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer()
    one.assign([tp])
    assert one.committed(tp) == {tp: None}
    take(one, 2)
    one.commit_sync()
    assert one.committed(tp)[tp].offset == 2
    one.commit_sync({tp: OffsetAndMetadata(1, "why")})
    assert one.committed(tp)[tp].offset == 1
    assert one.committed(tp)[tp].metadata == "why"
    assert one.position(tp) == 2
    one.commit_sync({})
    with pytest.raises(ValueError, match="-1"):
        one.commit_sync({tp: OffsetAndMetadata(-1)})


def test_a_note_no_request_can_hold_is_told_where_the_outcome_is(consumer, topic):
    tp = TopicPartition(topic, 0)
    one, told = consumer(), []
    one.assign([tp])
    too_long = {tp: OffsetAndMetadata(1, "x" * 40_000)}
    with pytest.raises(ValueError, match="40000 bytes"):
        one.commit_sync(too_long)
    one.commit_async(too_long, lambda _, error: told.append(str(error)))
    one.commit_sync({})
    assert len(told) == 1
    assert "40000 bytes" in told[0]


def test_an_assigned_reader_starts_where_its_group_committed(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 5)
    consumer().commit_sync({tp: OffsetAndMetadata(3)})
    one = consumer()
    one.assign([tp])
    assert take(one, 1)[0].offset == 3


def test_callbacks_of_async_commits_run_in_order_in_the_callers_thread(consumer, topic):
    tp = TopicPartition(topic, 0)
    told = []

    def callback(offsets, error):
        assert error is None
        told.append((offsets[tp].offset, threading.get_ident()))

    one = consumer()
    one.assign([tp])
    for offset in (1, 2, 3):
        one.commit_async({tp: OffsetAndMetadata(offset)}, callback)
    assert told == []
    # A synchronous commit, of nothing even, first tells what became of the earlier ones.
    one.commit_sync({})
    assert told == [(offset, threading.get_ident()) for offset in (1, 2, 3)]
    assert one.committed(tp)[tp].offset == 3
    one.commit_async({tp: OffsetAndMetadata(4)}, callback)
    poll_until(one, lambda: len(told) == 4)
    one.commit_async({tp: OffsetAndMetadata(5)}, callback)
    one.close()
    assert told[-1][0] == 5


def test_what_a_commit_callback_raises_comes_out_of_the_call(consumer, topic):
    tp = TopicPartition(topic, 0)

    def callback(offsets, error):
        raise LookupError("from the callback")

    one = consumer()
    one.assign([tp])
    one.commit_async({tp: OffsetAndMetadata(1)}, callback)
    with pytest.raises(LookupError, match="from the callback"):
        poll_until(one, lambda: False)


def test_automatic_commits_hold_what_earlier_polls_returned(
    producer, consumer, admin, topic, group
):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 30)
    one = consumer(enable_auto_commit=True, auto_commit_interval_ms=1, max_poll_records=10)
    one.subscribe([topic])
    seen = 0
    while seen < 30:
        # Whatever this poll returns is not processed yet, so it must not be committed.
        seen_before, records = seen, one.poll(5)
        seen += len(records)
        threading.Event().wait(0.05)  # a commit that must not be would arrive by now
        found = admin.group_offsets(group, [tp])[tp]
        assert found is None or found.offset <= seen_before
    one.close()
    assert admin.group_offsets(group, [tp])[tp].offset == 30


def test_without_automatic_commits_closing_commits_nothing(producer, consumer, admin, topic, group):
    fill(producer, topic, 3)
    one = consumer(enable_auto_commit=False)
    one.subscribe([topic])
    take(one, 3)
    one.close()
    assert admin.group_offsets(group) == {}


def test_automatic_commits_work_for_assigned_partitions_too(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer(enable_auto_commit=True)
    one.assign([tp])
    take(one, 3)
    one.close()
    assert consumer().committed(tp)[tp].offset == 3


def test_closing_commits_no_position_that_was_never_polled(producer, consumer, admin, topic, group):
    """It is looked for in the background: what the user committed meanwhile must stay."""
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer(auto_offset_reset="latest", enable_auto_commit=True)
    one.assign([tp])
    until(lambda: one._session.positions[tp].position == 3, "a position, found by itself")
    one.commit_sync({tp: OffsetAndMetadata(2)})
    one.commit_sync()
    one.close()
    assert admin.group_offsets(group)[tp].offset == 2


@pytest.mark.parametrize("way", ["poll", "position", "seek"])
def test_a_position_the_user_knows_of_is_committed(producer, consumer, admin, topic, group, way):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer(auto_offset_reset="latest", enable_auto_commit=True)
    one.assign([tp])
    until(lambda: one._session.positions[tp].position == 3, "a position, found by itself")
    match way:
        case "poll":
            one.poll(0)
        case "position":
            assert one.position(tp) == 3
        case "seek":
            one.seek(tp, 3)
    one.close()
    assert admin.group_offsets(group)[tp].offset == 3


def test_callbacks_that_raise_keep_nothing_from_being_committed_or_told(producer, consumer, topic):
    tp, told = TopicPartition(topic, 0), []
    fill(producer, topic, 3)
    one = consumer(enable_auto_commit=True)
    one.assign([tp])
    take(one, 3)

    def raises(_, error):
        told.append(error)
        raise LookupError(f"callback {len(told)}")

    for _ in range(2):
        one.commit_async({tp: OffsetAndMetadata(1)}, raises)
    with pytest.raises(LookupError, match="callback 1"):
        one.close()
    assert told == [None, None]
    assert consumer().committed(tp)[tp].offset == 3


def test_a_callback_that_raises_while_closing_keeps_nobody_in_the_group(
    consumer, admin, topic, group
):
    one = consumer(session_timeout_ms=60_000)
    one.subscribe([topic])
    poll_until(one, one.assignment)

    def raises(_, error):
        raise LookupError("callback")

    one.commit_async({TopicPartition(topic, 0): OffsetAndMetadata(0)}, raises)
    with pytest.raises(LookupError, match="callback"):
        one.close()
    assert admin.describe_group(group).state == "Empty"


def test_interceptors_hear_of_automatic_commits(producer, consumer, topic):
    tp, heard = TopicPartition(topic, 0), []

    class Ear:
        def on_commit(self, offsets):
            heard.append(offsets[tp].offset)

    fill(producer, topic, 3)
    one = consumer(enable_auto_commit=True, auto_commit_interval_ms=10, interceptors=[Ear()])
    one.assign([tp])
    take(one, 3)
    poll_until(one, lambda: 3 in heard, timeout=5)


def test_interceptors_hear_of_commits_and_cannot_hurt(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    heard = []

    class Ear:
        def on_commit(self, offsets):
            heard.append((offsets[tp].offset, threading.get_ident()))
            raise LookupError("ignored")

    one = consumer(interceptors=[Ear()])
    one.assign([tp])
    one.commit_sync({tp: OffsetAndMetadata(1)})
    assert heard == [(1, threading.get_ident())]
    one.commit_async({tp: OffsetAndMetadata(2)})
    poll_until(one, lambda: len(heard) == 2)


def test_who_is_no_member_cannot_commit_for_a_group_in_use(consumer, admin, topic):
    tp = TopicPartition(topic, 0)
    member = consumer()
    member.subscribe([topic])
    poll_until(member, member.assignment)
    stranger = consumer()
    stranger.assign([tp])
    with pytest.raises(CommitFailedError):
        stranger.commit_sync({tp: OffsetAndMetadata(1)})


def test_a_subscriber_that_has_not_joined_cannot_commit(consumer, topic):
    tp = TopicPartition(topic, 0)
    one = consumer()
    one.subscribe([topic])
    with pytest.raises((CommitFailedError, BrokerError)):
        one.commit_sync({tp: OffsetAndMetadata(1)}, timeout=PATIENCE_S)


# --- against our broker alone, which can be told to fail ---


@pytest.fixture
def alone(shoal_broker):
    shoal_broker.create_topic("t", 1)
    settings = {
        "bootstrap_servers": shoal_broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "retry_backoff_ms": 5,
        "heartbeat_interval_ms": 50,
    }
    with Consumer(**settings) as one:
        yield shoal_broker, one


T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_synchronous_commit_goes_on_until_it_succeeds(alone, code):
    broker, one = alone
    one.subscribe(["t"])
    poll_until(one, one.assignment)
    broker.fail("OffsetCommit", code, times=2)
    one.commit_sync({T0: OffsetAndMetadata(7)}, timeout=10)
    assert one.committed(T0)[T0].offset == 7


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_commit_that_cannot_succeed_raises_at_once(alone, code):
    broker, one = alone
    one.assign([T0])
    broker.fail("OffsetCommit", code)
    with pytest.raises(BrokerError) as caught:
        one.commit_sync({T0: OffsetAndMetadata(7)}, timeout=10)
    assert caught.value.code is code


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_commit_of_one_who_was_thrown_out_fails_and_the_next_poll_rejoins(alone, code):
    broker, one = alone
    one.subscribe(["t"])
    poll_until(one, one.assignment)
    broker.fail("OffsetCommit", code)
    with pytest.raises(BrokerError) as caught:
        one.commit_sync({T0: OffsetAndMetadata(7)}, timeout=10)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        assert caught.value.code is code
        return
    assert isinstance(caught.value, CommitFailedError)
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        # The broker did not really throw it out: there the member it was has to time out.
        one.poll(0.1)
        broker.advance(60)
    poll_until(one, lambda: one.group_metadata().generation_id > 1)
    one.commit_sync({T0: OffsetAndMetadata(7)})


def test_an_asynchronous_commit_is_never_repeated(alone):
    broker, one = alone
    told = []
    one.assign([T0])
    broker.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one.commit_async({T0: OffsetAndMetadata(1)}, lambda offsets, error: told.append(error))
    one.commit_async({T0: OffsetAndMetadata(2)}, lambda offsets, error: told.append(error))
    one.commit_sync({})
    assert isinstance(told[0], RetriableError)
    assert told[1] is None
    assert one.committed(T0)[T0].offset == 2


def test_a_lost_reply_to_a_commit_is_asked_for_again(alone):
    broker, one = alone
    one.assign([T0])
    broker.drop("OffsetCommit", after=True)
    one.commit_sync({T0: OffsetAndMetadata(5)}, timeout=10)
    broker.drop("OffsetFetch", times=2)
    assert one.committed(T0, timeout=10)[T0].offset == 5


def test_automatic_commits_try_again_after_a_passing_error(alone):
    broker, _ = alone
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "auto",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 20,
        "retry_backoff_ms": 5,
    }
    with Consumer(**settings) as one:
        one.assign([T0])
        poll_until(one, lambda: one.position(T0) == 0)
        broker.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
        poll_until(one, lambda: one.committed(T0)[T0] is not None)


@pytest.mark.slow
def test_closing_tells_callbacks_of_commits_that_were_not_answered(alone):
    broker, one = alone
    broker.delay("OffsetCommit", 30, times=2)
    told = []
    for offset in (1, 2):
        one.commit_async(
            {T0: OffsetAndMetadata(offset)}, lambda given, error: told.append((given, error))
        )
    one.close(0.2)
    assert [given[T0].offset for given, _ in told] == [1, 2]
    assert all(isinstance(error, RequestTimeoutError) for _, error in told)


def test_closing_tells_of_a_commit_its_own_listener_made(producer, consumer, topic):
    told = []
    one = consumer()

    class Committing(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            one.commit_async(callback=lambda given, error: told.append((dict(given), error)))

    one.subscribe([topic], Committing())
    producer.send(topic, b"v").result(10)
    take(one, 1)
    one.close(10)
    ((given, error),) = told
    assert error is None
    assert given[TopicPartition(topic, 0)].offset == 1


def test_who_is_no_member_is_no_static_one() -> None:
    nobody = ConsumerGroupMetadata("g", -1, "", "i")
    somebody = ConsumerGroupMetadata("g", 3, "m", "i")
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    told: list[Any] = [commit_request(who, offsets).build(8) for who in (nobody, somebody)]
    assert [request.group_instance_id for request in told] == [None, "i"]
