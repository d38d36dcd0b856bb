"""What a consumer returns, and where it stands: assign mode, positions, seek, pause."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from shoal import Consumer, Node, OffsetAndTimestamp, TopicPartition
from shoal.errors import (
    ErrorCode,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    RequestTimeoutError,
)
from shoal.types import TimestampType
from shoal.wire.apis.metadata import MetadataResponse
from tests.client.conftest import take
from tests.client.scripted import ScriptedBroker
from tests.patience import is_quick


def fill(producer, topic, count, partition=0, start_ms=1_000_000):
    futures = [
        producer.send(topic, f"v{n}", f"k{n}", partition=partition, timestamp_ms=start_ms + n)
        for n in range(count)
    ]
    producer.flush(10)
    return [future.result(0).offset for future in futures]


def test_a_record_comes_back_as_it_was_sent(producer, consumer, topic):
    producer.send(
        topic, b"value", b"key", timestamp_ms=123, headers=[("a", b"1"), ("b", None), ("a", b"")]
    )
    producer.send(topic, None, None, timestamp_ms=124)
    producer.flush(10)
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    first, second = take(one, 2)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (first.key, first.value, first.timestamp_ms) == (b"key", b"value", 123)
    assert first.timestamp_type is TimestampType.CREATE_TIME
    assert list(first.headers) == [("a", b"1"), ("b", None), ("a", b"")]
    assert (second.offset, second.key, second.value, list(second.headers)) == (1, None, None, [])
    assert first.topic_partition == TopicPartition(topic, 0)


def test_an_empty_poll_is_false_and_takes_its_time_only(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    one.position(TopicPartition(topic, 0))
    assert is_quick(0.1, lambda: _empty(one, 0))
    assert is_quick(0.3, lambda: _empty(one, 0.15))


def _gives_up(call):
    with pytest.raises(RequestTimeoutError):
        call()


def _empty(consumer, seconds):
    before = time.monotonic()
    assert not consumer.poll(seconds)
    assert time.monotonic() - before >= seconds


def test_records_are_grouped_by_partition_and_counted(producer, consumer, new_topic):
    topic = new_topic(2)
    fill(producer, topic, 5, 0)
    fill(producer, topic, 7, 1)
    one = consumer(max_poll_records=4)
    one.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    seen: dict[Any, Any] = {}
    while sum(map(len, seen.values())) < 12:
        records = one.poll(5)
        assert 0 < len(records) <= 4
        for tp, part in records.by_partition().items():
            seen.setdefault(tp, []).extend(record.offset for record in part)
    assert seen == {TopicPartition(topic, 0): [*range(5)], TopicPartition(topic, 1): [*range(7)]}


def test_iterating_gives_records_for_ever(producer, consumer, topic):
    fill(producer, topic, 3)
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    values = []
    for record in one:
        values.append(record.value)
        if len(values) == 3:
            break
    assert values == [b"v0", b"v1", b"v2"]


def test_latest_sees_only_what_comes_after(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer(auto_offset_reset="latest")
    one.assign([tp])
    assert one.position(tp) == 3
    fill(producer, topic, 2)
    assert [record.offset for record in take(one, 2)] == [3, 4]


def test_none_is_an_error_which_names_the_partitions(consumer, new_topic):
    topic = new_topic(2)
    one = consumer(auto_offset_reset="none")
    one.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    with pytest.raises(NoOffsetForPartitionError) as caught:
        one.poll(10)
    assert caught.value.topic_partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    one.seek(TopicPartition(topic, 0), 0)
    one.seek(TopicPartition(topic, 1), 0)
    assert not one.poll(0.1)


def test_a_position_outside_the_log_is_reset_or_an_error(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 3)
    one = consumer(auto_offset_reset="earliest")
    one.assign([tp])
    one.seek(tp, 99)
    assert take(one, 1)[0].offset == 0
    other = consumer(auto_offset_reset="none")
    other.assign([tp])
    other.seek(tp, 99)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        other.poll(10)
    assert caught.value.topic_partitions == (tp,)
    other.seek(tp, 1)
    assert take(other, 1)[0].offset == 1


def test_a_topic_nobody_knows_keeps_no_other_waiting(producer, consumer, topic):
    fill(producer, topic, 3)
    one = consumer(allow_auto_create_topics=False)
    one.assign([TopicPartition(topic, 0), TopicPartition(f"{topic}-misspelt", 0)])
    assert [record.offset for record in take(one, 3)] == [0, 1, 2]


def test_seek_leaves_what_was_buffered(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 20)
    one = consumer(max_poll_records=5)
    one.assign([tp])
    assert [record.offset for record in take(one, 5)] == [0, 1, 2, 3, 4]
    assert one.position(tp) == 5
    one.seek(tp, 17)
    assert one.position(tp) == 17
    assert [record.offset for record in take(one, 3)] == [17, 18, 19]
    one.seek_to_beginning(tp)
    assert take(one, 1)[0].offset == 0
    one.seek_to_end()
    assert one.position(tp) == 20
    with pytest.raises(ValueError, match="-1 is not an offset"):
        one.seek(tp, -1)


def test_a_partition_that_is_not_ours_is_refused(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    stranger = TopicPartition(topic, 7)
    for call in (
        lambda: one.seek(stranger, 0),
        lambda: one.position(stranger),
        lambda: one.pause(stranger),
        lambda: one.seek_to_end(stranger),
    ):
        with pytest.raises(ValueError, match="not assigned"):
            call()


def test_pause_keeps_what_is_buffered_for_later(producer, consumer, new_topic):
    topic = new_topic(2)
    quiet, loud = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(producer, topic, 6, 0)
    fill(producer, topic, 6, 1)
    one = consumer(max_poll_records=2)
    one.assign([quiet, loud])
    before = [record for record in take(one, 2) if record.partition == 0]
    one.pause(quiet)
    assert one.paused() == {quiet}
    rest: list[Any] = []
    while len(rest) < 4:
        rest += one.poll(5)
    assert {record.partition for record in rest} == {1}
    one.resume(quiet)
    assert one.paused() == set()
    after = take(one, 6 - len(before))
    assert [r.offset for r in before + after if r.partition == 0] == [*range(6)]


def test_a_new_assignment_drops_the_old_one(producer, consumer, new_topic):
    topic = new_topic(2)
    fill(producer, topic, 3, 0)
    fill(producer, topic, 3, 1)
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    take(one, 1)
    one.assign([TopicPartition(topic, 1)])
    assert one.assignment() == {TopicPartition(topic, 1)}
    assert {record.partition for record in take(one, 3)} == {1}
    one.assign([])
    with pytest.raises(RuntimeError, match=r"subscribe\(\) or assign\(\)"):
        one.poll(0)


def test_questions_about_offsets(producer, consumer, new_topic):
    topic = new_topic(2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(producer, topic, 5, 0, start_ms=1000)
    one = consumer()
    assert one.beginning_offsets([full, empty]) == {full: 0, empty: 0}
    assert one.end_offsets([full, empty]) == {full: 5, empty: 0}
    found = one.offsets_for_times({full: 1002, empty: 0})
    assert found[empty] is None
    assert found[full] == OffsetAndTimestamp(2, 1002, found[full].leader_epoch)
    assert one.offsets_for_times({full: 9999}) == {full: None}
    with pytest.raises(ValueError, match="negative"):
        one.offsets_for_times({full: -1})
    one.assign([full])
    one.seek(full, 1)
    assert one.lag(full) == 4


def test_questions_about_a_topic_nobody_reads_hear_of_its_new_partitions(admin, consumer, topic):
    one = consumer()
    assert one.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
    assert len(one.partitions_for(topic)) == 1
    admin.create_partitions({topic: 3})
    assert one.end_offsets([TopicPartition(topic, 2)], timeout=10) == {TopicPartition(topic, 2): 0}
    admin.create_partitions({topic: 4})
    assert len(one.partitions_for(topic)) == 4


def test_partitions_for_names_leader_and_replicas(consumer, new_topic):
    topic = new_topic(3)
    found = consumer().partitions_for(topic)
    assert [info.partition for info in found] == [0, 1, 2]
    for info in found:
        assert info.leader is not None
        assert info.leader in info.replicas
        assert info.leader in info.in_sync_replicas
        assert info.offline_replicas == ()
    assert topic in consumer().list_topics()


def test_deserializers_get_bytes_and_never_none(producer, consumer, topic):
    producer.send(topic, "12", "a")
    producer.send(topic, None, "b")
    producer.flush(10)
    one = consumer(key_deserializer=bytes.decode, value_deserializer=int)
    one.assign([TopicPartition(topic, 0)])
    assert [(r.key, r.value) for r in take(one, 2)] == [("a", 12), ("b", None)]


def test_a_failing_deserializer_names_the_record_and_can_be_passed(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    for value in ("1", "2", "x", "4"):
        producer.send(topic, value)
    producer.flush(10)
    one = consumer(value_deserializer=int)
    one.assign([tp])
    assert [record.value for record in take(one, 2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            one.poll(5)
        assert (caught.value.topic_partition, caught.value.offset) == (tp, 2)
        assert isinstance(caught.value.__cause__, ValueError)
    assert one.position(tp) == 2
    one.seek(tp, 3)
    assert take(one, 1)[0].value == 4


def test_interceptors_do_not_hear_of_polls_that_brought_nothing(producer, consumer, topic):
    heard = []

    class Ear:
        def on_consume(self, records):
            heard.append(len(records))
            return records

    one = consumer(interceptors=[Ear()])
    one.assign([TopicPartition(topic, 0)])
    for _ in range(3):
        assert not one.poll(0.01)
    assert heard == []
    producer.send(topic, b"v").result(10)
    take(one, 1)
    assert heard == [1]


def test_an_interceptor_that_raises_leaves_the_records_as_they_were(producer, consumer, topic):
    class Broken:
        def on_consume(self, records):
            raise LookupError("broken interceptor")

    fill(producer, topic, 3)
    one = consumer(interceptors=[Broken()])
    one.assign([TopicPartition(topic, 0)])
    assert one.poll(10)[0].value == b"v0"


def test_interceptors_change_and_filter_and_never_hurt(producer, consumer, topic, caplog):
    class Shout:
        closed = False

        def on_consume(self, records):
            for record in records:
                record.value = record.value.upper()
            return [record for record in records if record.offset != 1]

        def close(self):
            Shout.closed = True

    class Broken:
        def on_consume(self, records):
            raise LookupError("broken interceptor")

        def close(self):
            raise LookupError("broken close")

    fill(producer, topic, 3)
    one = consumer(interceptors=[Broken(), Shout(), Broken()])
    one.assign([TopicPartition(topic, 0)])
    seen: list[Any] = []
    while len(seen) < 2:
        seen += one.poll(5)
    assert [record.value for record in seen] == [b"V0", b"V2"]
    assert one.position(TopicPartition(topic, 0)) == 3
    one.close()
    assert Shout.closed
    assert "broken interceptor" in caplog.text


def test_every_blocking_call_keeps_its_timeout():
    # Nobody listens there (a port of the discard range, refused at once).
    with Consumer(bootstrap_servers="127.0.0.1:9", group_id="g") as one:
        tp = TopicPartition("t", 0)
        one.assign([tp])
        for call in (
            lambda: one.position(tp, timeout=0.1),
            lambda: one.committed(tp, timeout=0.1),
            lambda: one.commit_sync({tp: _offset(1)}, timeout=0.1),
            lambda: one.end_offsets([tp], timeout=0.1),
            lambda: one.partitions_for("t", timeout=0.1),
            lambda: one.list_topics(timeout=0.1),
            lambda: one.offsets_for_times({tp: 0}, timeout=0.1),
        ):
            assert is_quick(0.25, partial(_gives_up, call))
        assert is_quick(0.25, lambda: one.poll(0.1))
        before = time.monotonic()
    assert time.monotonic() - before < 10


def _offset(value):
    from shoal import OffsetAndMetadata

    return OffsetAndMetadata(value)


class HalfDown(ScriptedBroker):
    """Two partitions: one led here with a replica that is down, one without a leader."""

    def _metadata(self, code):
        def partition(index, leader, replicas, isr, offline):
            return MetadataResponse.Partition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline,
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            )

        partitions = [partition(0, 1, [1, 2], [1], [2]), partition(1, -1, [2], [], [2])]
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=1, host="127.0.0.1", port=self.port, rack="here")
            ],
            controller_id=1,
            topics=[MetadataResponse.Topic(name="t", partitions=partitions)],
        )


def test_partitions_for_says_what_is_offline_and_who_is_not_known():
    with HalfDown() as broker, Consumer(bootstrap_servers=broker.servers) as one:
        led, lost = one.partitions_for("t")
        alive, gone = Node(1, "127.0.0.1", broker.port, "here"), Node(2, "", -1)
        assert (led.topic, led.partition, led.leader) == ("t", 0, alive)
        assert led.replicas == (alive, gone)
        assert led.in_sync_replicas == (alive,)
        assert led.offline_replicas == (gone,)
        assert (lost.leader, lost.replicas, lost.in_sync_replicas) == (None, (gone,), ())
        assert lost.offline_replicas == (gone,)
        assert one.list_topics() == {"t": [led, lost]}
