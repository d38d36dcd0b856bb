"""The callbacks of a rebalance, in exactly the order Kafka's own consumer has them.

Every test writes one diary for everything that happens to a member: the assignor's hearing, the
listener's callbacks with what is owned at that moment, and what is committed by then.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shoal import RebalanceListener, TopicPartition
from shoal.assign.loading import load
from shoal.errors import CommitFailedError, RebalanceListenerError
from shoal.testing.broker import Broker
from tests.client.conftest import poll_until, take
from tests.client.test_groups import Diary, Follower

EAGER = ["range", "roundrobin", "sticky"]
ALL = [*EAGER, "cooperative-sticky"]


class Hearing:
    """An assignor that notes when it is told its assignment."""

    def __init__(self, name, diary):
        (self._inner,) = load([name])
        self._diary = diary

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def on_assignment(self, assignment, metadata):
        self._diary.entries.append(
            ("assignor", sorted(tp.partition for tp in assignment.partitions))
        )
        self._inner.on_assignment(assignment, metadata)


class Owner(Diary):
    """A diary that also notes what the consumer owns while it is told something."""

    def __init__(self):
        super().__init__()
        self.consumer: Any = None
        self.owned = []

    def _note(self, what, partitions):
        super()._note(what, partitions)
        self.owned.append(sorted(tp.partition for tp in self.consumer.assignment()))


@pytest.mark.parametrize("assignor", ALL)
def test_the_assignor_hears_before_the_listener(consumer, new_topic, assignor):
    topic, diary = new_topic(2), Diary()
    one = consumer(assignors=[Hearing(assignor, diary)])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    one.close()
    assert diary.entries == [("assignor", [0, 1]), ("assigned", [0, 1]), ("revoked", [0, 1])]


@pytest.mark.parametrize("assignor", EAGER)
def test_eager_owns_all_while_it_revokes_nothing_afterwards_and_all_when_assigned(
    consumer, new_topic, assignor
):
    topic, diary = new_topic(2), Owner()
    one = diary.consumer = consumer(assignors=[assignor])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    one.enforce_rebalance()
    poll_until(one, lambda: len(diary.entries) == 3)
    assert diary.entries == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [0, 1])]
    assert diary.owned == [[0, 1], [0, 1], [0, 1]]
    one.unsubscribe()
    assert diary.entries[3:] == [("revoked", [0, 1])]
    assert one.assignment() == frozenset()


@pytest.mark.parametrize("assignor", EAGER)
def test_eager_is_called_back_with_nothing_too_but_not_before_the_first_join(
    consumer, new_topic, assignor
):
    topic, diary, idle = new_topic(1), Diary(), Diary()
    one, two = consumer(assignors=[assignor]), consumer(assignors=[assignor])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    with Follower(two, [topic], idle):
        poll_until(one, lambda: idle.entries)
        # Whoever has the partition, the other was told of an empty assignment.
        one.enforce_rebalance()
        poll_until(one, lambda: len(idle.entries) >= 3 and len(diary.entries) >= 5)
    both = [diary.entries[:5], idle.entries[:3]]
    has_it = [[0] if entries[-1] == ("assigned", [0]) else [] for entries in both]
    assert sorted(has_it) == [[], [0]]
    first, second = both
    assert first[:2] == [("assigned", [0]), ("revoked", [0])]
    assert [what for what, _ in first] == ["assigned", "revoked"] * 2 + ["assigned"]
    assert [what for what, _ in second] == ["assigned", "revoked", "assigned"]
    assert first[2][1] == first[3][1]
    assert second[0][1] == second[1][1]


def test_cooperative_is_told_of_nothing_new_and_never_of_nothing_revoked(consumer, new_topic):
    topic, diary = new_topic(2), Owner()
    one = diary.consumer = consumer(assignors=["cooperative-sticky"])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    one.enforce_rebalance()
    poll_until(one, lambda: len(diary.entries) == 2)
    assert diary.entries == [("assigned", [0, 1]), ("assigned", [])]
    assert diary.owned == [[0, 1], [0, 1]]


def test_cooperative_gives_up_a_topic_it_no_longer_wants_before_it_joins(consumer, new_topic):
    first, second, told = new_topic(1), new_topic(1), []
    one = consumer(assignors=["cooperative-sticky"])

    class Named(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            told.append(("assigned", partitions, one.group_metadata().generation_id))

        def on_partitions_revoked(self, partitions):
            told.append(("revoked", partitions, one.group_metadata().generation_id))

    one.subscribe([first, second], Named())
    poll_until(one, lambda: len(one.assignment()) == 2)
    one.subscribe([second], Named())
    poll_until(one, lambda: len(told) == 3)
    gone, kept = TopicPartition(first, 0), TopicPartition(second, 0)
    assert told == [
        ("assigned", sorted([gone, kept]), 1),
        ("revoked", [gone], 1),  # still in the old generation: before the join
        ("assigned", [], 2),
    ]
    assert one.assignment() == {kept}


@pytest.mark.parametrize("assignor", ALL)
def test_positions_are_committed_before_the_revoked_callback(
    producer, consumer, admin, new_topic, group, assignor
):
    topic, seen = new_topic(1), []
    tp = TopicPartition(topic, 0)
    for n in range(5):
        producer.send(topic, str(n))
    producer.flush(10)
    one = consumer(assignors=[assignor], enable_auto_commit=True)

    class Looks(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            found = admin.group_offsets(group, partitions)[tp]
            seen.append(None if found is None else found.offset)

    one.subscribe([topic], Looks())
    take(one, 5)
    one.close()
    assert seen == [5]


@pytest.mark.parametrize("assignor", ALL)
def test_what_is_revoked_can_be_committed_in_the_callback(
    producer, consumer, admin, new_topic, group, assignor
):
    topic = new_topic(2)
    for n in range(10):
        producer.send(topic, str(n), partition=n % 2)
    producer.flush(10)
    one = consumer(assignors=[assignor])

    class Commits(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            one.commit_sync()

    one.subscribe([topic], Commits())
    take(one, 10)
    assert admin.group_offsets(group) == {}
    with Follower(consumer(assignors=[assignor]), [topic]) as other:
        poll_until(one, lambda: len(one.assignment()) == 1 and other.consumer.assignment())
        assert {at.offset for at in admin.group_offsets(group).values()} == {5}


@pytest.mark.parametrize(("assignor", "kept"), [("range", False), ("cooperative-sticky", True)])
def test_a_pause_lasts_as_long_as_the_partition_is_kept(consumer, new_topic, assignor, kept):
    topic, diary = new_topic(1), Diary()
    tp = TopicPartition(topic, 0)
    one = consumer(assignors=[assignor])
    one.subscribe([topic], diary)
    poll_until(one, one.assignment)
    one.pause(tp)
    before = len(diary.entries)
    one.enforce_rebalance()
    poll_until(one, lambda: len(diary.entries) > before and diary.entries[-1][0] == "assigned")
    assert one.paused() == ({tp} if kept else set())


class Breaks(RebalanceListener):
    """Raises in every callback but the first."""

    def __init__(self):
        self.told = []

    def on_partitions_revoked(self, partitions):
        self.told.append("revoked")
        raise LookupError(f"error {len(self.told)}")

    def on_partitions_assigned(self, partitions):
        self.told.append("assigned")
        if len(self.told) > 1:
            raise LookupError(f"error {len(self.told)}")


def test_an_error_before_the_join_stops_nothing(consumer, topic):
    one, listener = consumer(assignors=["range"]), Breaks()
    one.subscribe([topic], listener)
    poll_until(one, one.assignment)
    one.enforce_rebalance()
    for number, told in ((2, "revoked"), (3, "assigned")):
        with pytest.raises(RebalanceListenerError) as caught:
            poll_until(one, lambda: False)
        assert str(caught.value.__cause__) == f"error {number}"
        assert listener.told[-1] == told
        # Whatever it raised, what was revoked is gone, and what was assigned is ours.
        assert len(one.assignment()) == (told == "assigned")
    assert listener.told == ["assigned", "revoked", "assigned"]
    assert one.assignment() == {TopicPartition(topic, 0)}
    one.poll(0)  # told once
    with pytest.raises(RebalanceListenerError):
        one.close()
    assert listener.told[3:] == ["revoked"]


def test_the_first_of_two_errors_is_told_after_both_callbacks_ran(consumer, new_topic):
    topic, listener = new_topic(2), Breaks()
    one = consumer(assignors=["cooperative-sticky"])
    one.subscribe([topic], listener)
    poll_until(one, one.assignment)
    with Follower(consumer(assignors=["cooperative-sticky"]), [topic]):
        with pytest.raises(RebalanceListenerError) as caught:
            poll_until(one, lambda: False)
        assert str(caught.value.__cause__) == "error 2"
        assert listener.told == ["assigned", "revoked", "assigned"]
        assert len(one.assignment()) == 1
        one.subscribe([topic])  # without the listener, so that the end is quiet


# --- thrown out: needs a broker whose clock can be moved ---


@pytest.fixture
def broker():
    with Broker(topics=["t"]) as broker:
        yield broker


@pytest.fixture
def member(broker):
    from shoal import Consumer

    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=20,
    ) as one:
        yield one


def throw_out(broker, member):
    """Forget the members of every group, as a coordinator does after their session."""
    broker.advance(60)
    poll_ends = member._session._group.member
    for _ in range(1000):
        if poll_ends.generation.is_reset:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the member did not hear of it")


def test_nothing_is_read_between_the_commit_before_a_rebalance_and_the_end_of_it(broker):
    """What is read then is not in the commit: whoever gets the partition reads it again."""
    from shoal import Consumer, Producer

    servers, records = broker.bootstrap_servers, 60
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(records):
            producer.send("t", str(n))
    with Consumer(
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=3_600_000,
        assignors=["range"],
        max_poll_records=5,
    ) as one:
        one.subscribe(["t"])
        seen = [record.offset for record in take(one, 5)]
        broker.delay("OffsetCommit", 0.3)
        one.enforce_rebalance()
        while len(seen) < records:
            seen += [record.offset for record in one.poll(0.02)]
        assert one.group_metadata().generation_id == 2
    assert seen == [*range(records)]


@pytest.mark.parametrize("assignor", ALL)
def test_who_was_thrown_out_loses_at_the_next_poll_and_is_assigned_anew(broker, assignor):
    from shoal import Consumer

    diary = Diary()
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        heartbeat_interval_ms=20,
        assignors=[assignor],
    ) as one:
        one.subscribe(["t"], diary)
        poll_until(one, one.assignment)
        throw_out(broker, one)
        assert diary.entries == [("assigned", [0])]
        with pytest.raises(CommitFailedError):
            one.commit_sync({TopicPartition("t", 0): _at(0)})
        poll_until(one, lambda: len(diary.entries) == 3)
        assert diary.entries == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_who_was_thrown_out_and_ends_loses_and_does_not_revoke(broker, member, end):
    diary = Diary()
    member.subscribe(["t"], diary)
    poll_until(member, member.assignment)
    throw_out(broker, member)
    getattr(member, end)()
    assert diary.entries == [("assigned", [0]), ("lost", [0])]


def test_a_listener_without_lost_hears_revoked(broker, member):
    told = []

    class Plain:
        def on_partitions_assigned(self, partitions):
            told.append("assigned")

        def on_partitions_revoked(self, partitions):
            told.append("revoked")

    member.subscribe(["t"], Plain())
    poll_until(member, member.assignment)
    throw_out(broker, member)
    poll_until(member, lambda: len(told) == 3)
    assert told == ["assigned", "revoked", "assigned"]


def _at(offset):
    from shoal import OffsetAndMetadata

    return OffsetAndMetadata(offset)


def test_a_program_that_ends_in_a_callback_ends_and_is_told_the_same_again_if_it_goes_on(
    consumer, topic
):
    told, outcome = [], []

    class Leaving(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            told.append(partitions)
            if len(told) == 1:
                raise SystemExit(3)

    def program():
        one = consumer()
        one.subscribe([topic], Leaving())
        try:
            poll_until(one, lambda: told)
        except SystemExit as end:
            outcome.append(end.code)
        poll_until(one, lambda: len(told) == 2)
        one.close(5)
        outcome.append("closed")

    running = threading.Thread(target=program, daemon=True)
    running.start()
    running.join(20)
    assert outcome == [3, "closed"]
    assert told == [[TopicPartition(topic, 0)]] * 2


def test_what_a_program_that_ends_in_unsubscribe_was_to_give_up_can_still_be_committed(
    producer, consumer, topic
):
    owned = []
    producer.send(topic, b"v").result(10)
    one = consumer()

    class Leaving(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            owned.append(one.assignment())
            if len(owned) == 1:
                raise KeyboardInterrupt
            one.commit_sync()

    one.subscribe([topic], Leaving())
    take(one, 1)
    with pytest.raises(KeyboardInterrupt):
        one.unsubscribe()
    one.close(5)
    tp = TopicPartition(topic, 0)
    assert owned == [{tp}] * 2
    assert consumer().committed(tp)[tp].offset == 1
