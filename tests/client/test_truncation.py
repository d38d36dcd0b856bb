"""A log that lost its tail, seen by a consumer that has read it (KIP-320)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.client.reactions import RequestReaction, reaction
from shoal.errors import ErrorCode, LogTruncatedError, ShoalError
from shoal.records.batch import iter_headers
from shoal.testing.broker import Broker
from shoal.wire.apis.metadata import MetadataResponse
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.peers import need
from tests.peers.jars import kafka_jars

T0 = TopicPartition("t", 0)
ATTEMPTS = 5


@pytest.fixture
def broker():
    with Broker(topics=["t"]) as broker:
        yield broker


def produce(servers, *values, topic="t"):
    """One batch per value, so that a log can be cut between any two."""
    with Producer(bootstrap_servers=servers, linger_ms=0, acks=1) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result(30)


def values(records):
    return [record.value.decode() for record in records]


def lose_tail(broker, offset):
    """Kill the broker, cut its log at ``offset`` (or not) as a crash might, start it again."""
    broker.kill()
    # As far as the broker wrote down that the log is on disk, a shorter one is corrupt, not cut.
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (broker.data_dir / name).unlink(missing_ok=True)
    (path,) = broker.data_dir.glob("**/t-0/*.log")
    data = path.read_bytes()
    if offset is not None:
        end = next(at for at, header in iter_headers(data) if header.base_offset == offset)
        path.write_bytes(data[:end])
    broker.start()


def reader(broker, **given):
    fast = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, "reconnect_backoff_ms": 5}
    one = Consumer(bootstrap_servers=broker.bootstrap_servers, **{**fast, **given})
    one.assign([T0])
    return one


def test_a_position_past_the_cut_goes_back_to_it_and_nothing_new_is_missed(broker, caplog):
    produce(broker.bootstrap_servers, *"abcdefghij")
    with reader(broker, auto_offset_reset="latest") as one:
        one.seek_to_beginning(T0)
        assert values(take(one, 10)) == [*"abcdefghij"]
        lose_tail(broker, 6)
        # More than was lost: by its number alone offset 10 would look as if nothing happened.
        produce(broker.bootstrap_servers, *"GHIJKL")
        assert values(take(one, 6)) == [*"GHIJKL"]
    assert "the log was cut at offset 6, before our position 10" in caplog.text


def test_columns_know_of_the_cut_too(broker):
    produce(broker.bootstrap_servers, *"abcdefghij")
    with reader(broker) as one:
        seen: list[Any] = []
        while len(seen) < 10:
            seen += one.poll_arrow(5).column("value").to_pylist()
        lose_tail(broker, 6)
        produce(broker.bootstrap_servers, *"GHIJKL")
        while len(seen) < 16:
            seen += one.poll_arrow(5).column("value").to_pylist()
    assert b"".join(seen) == b"abcdefghijGHIJKL"


def test_without_a_policy_the_error_names_partition_offset_and_cut_until_a_seek(broker):
    produce(broker.bootstrap_servers, *"abcdefghij")
    with reader(broker, auto_offset_reset="none") as one:
        one.seek(T0, 0)
        take(one, 10)
        lose_tail(broker, 6)
        produce(broker.bootstrap_servers, *"GHIJKL")
        for _ in range(2):
            with pytest.raises(LogTruncatedError) as caught:
                take(one, 1)
            error = caught.value
            assert (error.topic_partition, error.offset, error.divergent_offset) == (T0, 10, 6)
            assert str(error) == (
                "the log of t-0 was cut at offset 6, and we stand at 10; "
                'auto_offset_reset="none", so seek there to go on'
            )
        one.seek(T0, error.divergent_offset)
        assert values(take(one, 6)) == [*"GHIJKL"]


def test_what_was_fetched_ahead_and_is_gone_is_not_returned(broker):
    produce(broker.bootstrap_servers, *"abcdefghij")
    with reader(broker, auto_offset_reset="none") as one:
        one.seek(T0, 0)
        assert values(take(one, 3)) == [*"abc"]
        lose_tail(broker, 6)
        produce(broker.bootstrap_servers, *"GHIJKL")
        until = time.monotonic() + 10
        one.pause(T0)
        while one._session.positions[T0].fetch_offset != 12:  # the new log is known
            assert time.monotonic() < until
            one.resume(T0)
            one._session._loop.call_soon_threadsafe(one._session._fetcher.kick)
            one.pause(T0)
            assert not one.poll(0.01)
        one.resume(T0)
        assert values(take(one, 9)) == [*"defGHIJKL"]


def test_a_committed_offset_is_checked_before_it_is_read_from(broker):
    produce(broker.bootstrap_servers, *"abcdefghij")
    with reader(broker, group_id="g") as one:
        take(one, 10)
        one.commit_sync()
        assert one.committed(T0)[T0].leader_epoch == 0
    lose_tail(broker, 6)
    produce(broker.bootstrap_servers, *"GHIJKL")
    with reader(broker, group_id="g") as one:
        assert values(take(one, 6)) == [*"GHIJKL"]


def test_a_log_that_lost_nothing_costs_nothing(broker, caplog):
    produce(broker.bootstrap_servers, *"abc")
    with reader(broker, auto_offset_reset="none") as one:
        one.seek(T0, 0)
        take(one, 3)
        broker.restart(kill=True)
        produce(broker.bootstrap_servers, *"def")
        assert values(take(one, 3)) == [*"def"]
        assert one.position(T0) == 6
    assert "was cut" not in caplog.text
    assert broker.counters()["requests"]["OffsetForLeaderEpoch"] == 1


@pytest.mark.parametrize("code", [c for c in ErrorCode if c], ids=lambda code: code.name)
def test_every_answer_of_the_new_leader_has_its_reaction(code):
    with Broker(topics=["t"]) as broker:
        produce(broker.bootstrap_servers, *"abc")
        with reader(broker) as one:
            take(one, 3)
            for _ in range(ATTEMPTS):
                broker.restart(kill=True)
                broker.fail("OffsetForLeaderEpoch", code)
                produce(broker.bootstrap_servers, *"def")
                if reaction("OffsetForLeaderEpoch", code) is not RequestReaction.RAISE:
                    break
                failure = None
                try:
                    taken = take(one, 3)
                except ShoalError as error:
                    failure = error
                if failure is not None:
                    assert code.name in str(failure)
                    break
                # It had asked the new leader before it was told to fail.
                assert values(taken) == [*"def"]
                broker.clear_faults()
            else:
                pytest.fail(f"{code.name} was not told in {ATTEMPTS} attempts")
            assert values(take(one, 3)) == [*"def"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("crash"), st.integers(0, 5)),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(STEPS, st.booleans())
def test_what_was_read_last_at_each_offset_is_what_the_log_holds_in_the_end(steps, as_columns):
    written = 0
    seen: dict[Any, Any] = {}
    number = 0
    with Broker(topics=["t"]) as broker, reader(broker, auto_offset_reset="latest") as one:
        one.seek(T0, 0)

        def read(most):
            if not as_columns:
                records = one.poll(0.2, max_records=most)
                seen.update((record.offset, record.value) for record in records)
                return len(records)
            rows = one.poll_arrow(0.2, max_records=most)
            offsets = rows.column("offset").to_pylist()
            seen.update(zip(offsets, rows.column("value").to_pylist(), strict=True))
            return rows.num_rows

        for what, count in steps:
            if what == "write":
                produce(broker.bootstrap_servers, *(str(number + n) for n in range(count)))
                number, written = number + count, written + count
            elif what == "read":
                read(count)
            elif written:
                lost = min(count, written)
                lose_tail(broker, written - lost if lost else None)
                written -= lost
        # One more record in a new epoch, so that the end of the log is not where it was.
        produce(broker.bootstrap_servers, "end")
        until = time.monotonic() + 20
        while one.position(T0) != written + 1 or seen.get(written) != b"end":
            assert time.monotonic() < until, (one.position(T0), seen, written)
            read(100)
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as check:
            check.assign([T0])
            check.seek(T0, 0)
            log = {record.offset: record.value for record in take(check, written + 1)}
    assert {offset: seen[offset] for offset in log} == log


class Older(ScriptedBroker):
    """Leads with a new epoch in every answer, and has never heard of OffsetForLeaderEpoch."""

    epoch = 0

    def _metadata(self, code):
        answer = super()._metadata(code)
        self.epoch += 1
        for partition in answer.topics[0].partitions:
            partition.leader_epoch = self.epoch
        return answer


def test_a_broker_that_cannot_be_asked_is_read_from_all_the_same():
    with Older() as older:
        older._batch = older._batch[:12] + (0).to_bytes(4, "big") + older._batch[16:]
        with Consumer(bootstrap_servers=older.servers, metadata_max_age_ms=1) as one:
            one.assign([T0])
            one.seek(T0, 0, leader_epoch=0)
            assert len(take(one, RECORDS)) == RECORDS
            one.seek(T0, 5, leader_epoch=0)
            assert len(take(one, RECORDS - 5)) == RECORDS - 5


class HalfGone(Older):
    """A second partition has lost its leader."""

    def _metadata(self, code):
        answer = super()._metadata(code)
        lost = MetadataResponse.Partition(
            partition_index=1, leader_id=-1, leader_epoch=self.epoch, replica_nodes=[2]
        )
        answer.topics[0].partitions.append(lost)
        return answer


def test_a_partition_nobody_leads_keeps_no_other_from_being_checked():
    with HalfGone() as broker, Consumer(bootstrap_servers=broker.servers) as one:
        lost = TopicPartition("t", 1)
        one.assign([lost, T0])
        one.seek(lost, 0, leader_epoch=0)
        one.seek(T0, 0, leader_epoch=0)
        assert len(take(one, RECORDS, timeout=5)) == RECORDS


@pytest.fixture(scope="module")
def three_nodes():
    from tests.peers.kafka import ApacheKafka

    properties = {"unclean.leader.election.enable": "true", "broker.session.timeout.ms": "3000"}
    need(kafka_jars)
    with ApacheKafka(nodes=3, heap="400m", settings=properties) as kafka:
        yield kafka


@pytest.mark.kafka
@pytest.mark.long
def test_an_unclean_election_in_a_real_cluster_is_noticed(three_nodes):
    from tests.peers.kafka import tool

    servers = three_nodes.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        made = tool(
            "TopicCommand",
            *("--bootstrap-server", servers, "--create", "--topic", "cut"),
            *("--replica-assignment", "1:2"),
        )
        assert made.returncode == 0, made.stderr
        admin.describe_topics("cut", timeout=60)
    produce(servers, *"abcdef", topic="cut")
    tp = TopicPartition("cut", 0)
    with (
        Consumer(bootstrap_servers=servers, auto_offset_reset="none") as strict,
        Consumer(bootstrap_servers=servers, auto_offset_reset="latest") as lenient,
    ):
        for one in (strict, lenient):
            one.assign([tp])
            one.seek(tp, 0)
            assert values(take(one, 6, 60)) == [*"abcdef"]
        three_nodes.kill(2)  # the follower misses what comes now
        produce(servers, *"ghij", topic="cut")
        for one in (strict, lenient):
            assert values(take(one, 4, 60)) == [*"ghij"]
        three_nodes.kill(1)
        three_nodes.start(2)  # and leads all the same
        produce(servers, *"GHIJKL", topic="cut")
        with pytest.raises(LogTruncatedError) as caught:
            take(strict, 1, 90)
        assert (caught.value.offset, caught.value.divergent_offset) == (10, 6)
        assert values(take(lenient, 6, 90)) == [*"GHIJKL"]
        three_nodes.start(1)
