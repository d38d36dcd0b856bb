"""Our assignors in kafka-python's and aiokafka's consumers, in groups with our own."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import aiokafka
import kafka
import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from shoal.client.adapters import for_aiokafka, for_kafka_python
from tests.client.conftest import poll_until


class _Theirs:
    """Another client's consumer in a thread, with what it owns now."""

    def __init__(self):
        self.owned = set()
        self.error = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded)

    def _run(self):
        raise NotImplementedError

    def _guarded(self):
        try:
            self._run()
        except BaseException as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(20)
        assert self.error is None, self.error


class KafkaPython(_Theirs):
    def __init__(self, servers, group, topic, assignor):
        super().__init__()
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[for_kafka_python(assignor)],
        )

    def _run(self):
        while not self._stop.is_set():
            # kafka-python drops the assignment of a join that a poll's timeout cuts short.
            self._consumer.poll(1000)
            self.owned = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()


class Aiokafka(_Theirs):
    def __init__(self, servers, group, topic, assignor):
        super().__init__()
        self._settings = (servers, group, topic, assignor)

    def _run(self):
        asyncio.run(self._main(*self._settings))

    async def _main(self, servers, group, topic, assignor):
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=(for_aiokafka(assignor),),
        )
        await consumer.start()
        while not self._stop.is_set():
            await consumer.getmany(timeout_ms=50)
            self.owned = {tp.partition for tp in consumer.assignment()}
        await consumer.stop()


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "assignor"),
    [
        (KafkaPython, "range"),
        (KafkaPython, "sticky"),
        (KafkaPython, "cooperative-sticky"),
        (Aiokafka, "roundrobin"),
        (Aiokafka, "sticky"),
    ],
)
def test_they_lead_and_follow_with_our_assignor(
    consumer, servers, new_topic, group, kind, assignor
):
    topic = new_topic(5)
    with kind(servers, group, topic, assignor) as theirs:
        wait_for(lambda: len(theirs.owned) == 5 or theirs.error)
        ours = consumer(assignors=[assignor])
        ours.subscribe([topic])
        mine = lambda: {tp.partition for tp in ours.assignment()}  # noqa: E731 - a name for what is waited for
        poll_until(
            ours,
            lambda: (
                mine()
                and theirs.owned
                and mine() | theirs.owned == {0, 1, 2, 3, 4}
                and not mine() & theirs.owned
            ),
            timeout=30,
        )
        assert sorted(map(len, (mine(), theirs.owned))) == [2, 3]
        ours.close()
        wait_for(lambda: len(theirs.owned) == 5 or theirs.error)


def test_who_turns_to_another_topic_claims_nothing_of_the_old_one():
    one, other = for_kafka_python("cooperative-sticky"), for_kafka_python("cooperative-sticky")
    one.on_assignment(ConsumerProtocolAssignment(0, [("old", [0, 1])], b""), 5)
    other.on_assignment(ConsumerProtocolAssignment(0, [], b""), 5)
    members = [
        SimpleNamespace(member_id="one", metadata=one.metadata({"new"})),
        SimpleNamespace(member_id="other", metadata=other.metadata({"old"})),
    ]
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1})
    given = one.assign(cluster, members)
    assert given["one"].assigned_partitions == [("new", [0, 1])]
    assert given["other"].assigned_partitions == [("old", [0, 1])]


def wait_for(done, timeout=20.0):
    tick = threading.Event()
    for _ in range(int(timeout / 0.02)):
        if done():
            return
        tick.wait(0.02)
    raise AssertionError("it did not come to that")


def test_an_assignor_aiokafka_cannot_run_is_refused():
    class OnlyCooperative:
        name = "only"
        version = 0
        from shoal.assign.model import RebalanceProtocol

        supported_protocols = (RebalanceProtocol.COOPERATIVE,)

        def subscription_user_data(self, topics):
            return None

        def assign(self, metadata, subscriptions):
            return {}

        def on_assignment(self, assignment, metadata):
            pass

    with pytest.raises(ValueError, match="cooperative only"):
        for_aiokafka(OnlyCooperative())
    # Its leader would not see what members still read: two would read the same for a while.
    with pytest.raises(ValueError, match="'cooperative-sticky' is for cooperative groups"):
        for_aiokafka("cooperative-sticky")
    with pytest.raises(ValueError, match="no assignor is called 'nope'"):
        for_kafka_python("nope")
