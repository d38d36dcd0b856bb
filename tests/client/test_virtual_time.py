"""The engine's coroutines on virtual time: hours pass in milliseconds, the same each time."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shoal import TopicPartition
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.client.deadlines import Deadline
from shoal.client.leases import Buffers
from shoal.errors import ErrorCode, RequestTimeoutError, RetriableError
from shoal.wire.apis.metadata import MetadataRequest
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.client.virtual import opener, run

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker():
    with ScriptedBroker() as broker:
        yield broker


def session(broker, **settings):
    config = ConsumerConfig(
        bootstrap_servers=broker.servers, auto_offset_reset="earliest", **settings
    )
    # Half a second for everything: about what an empty fetch waits.
    return ConsumerCore(config, Links(config, None, opener(broker, 0.5)))


@pytest.mark.slow
def test_an_hour_of_polling_commits_every_five_seconds_and_refreshes_every_five_minutes(
    broker,
):

    async def hour():
        one = session(broker, group_id="g")
        await one.assign([T0])
        seen = []
        while one._loop.time() < 3600:
            await one.prepare(1.0)
            seen += one.reader.take(100)
        await one.close(5)
        return [record.offset for record in seen]

    offsets, took_s = run(hour())
    assert offsets == [*range(RECORDS)]
    assert 3600 <= took_s < 3610
    assert 700 <= broker.asked["OffsetCommit"] <= 722
    assert 11 <= broker.asked["Metadata"] <= 15


def test_one_answer_that_is_not_kafka_does_not_end_the_refreshes(broker):
    broker.spoil("ApiVersions", lambda _: b"HTTP/1.1 503 Service Unavailable")

    async def watch():
        config = ConsumerConfig(bootstrap_servers=broker.servers)
        cluster = Cluster(config, Links(config, None, opener(broker)))
        cluster.watch(["t"])
        cluster.mark_stale()
        await asyncio.sleep(10)
        await cluster.close()
        return list(cluster.metadata.topics)

    assert run(watch())[0] == ["t"]


@pytest.mark.slow
def test_a_broker_away_for_ten_minutes_is_asked_about_once_a_second_and_found_again(broker):

    async def outage():
        one = session(broker, group_id="g", enable_auto_commit=False)
        await one.assign([T0])
        await one.prepare(5)
        assert len(one.reader.take(100)) == RECORDS
        before = broker.asked["ApiVersions"]
        down_until = one._loop.time() + 600

        def cut(frame):
            return frame if one._loop.time() >= down_until else None

        for api in ("ApiVersions", "Fetch", "Metadata"):
            for _ in range(5000):
                broker.spoil(api, cut)
        while one._loop.time() < down_until:
            await one.prepare(1.0)
        attempts = broker.asked["ApiVersions"] - before
        await one.seek(T0, 4, None)
        while not one.buffer.has_ready:
            await one.prepare(1.0)
        found = [record.offset for record in one.reader.take(100)]
        back_s = one._loop.time() - down_until
        await one.close(1)
        return attempts, found, back_s

    (attempts, found, back_s), _ = run(outage())
    assert found == [*range(4, RECORDS)]
    # Three lanes may try, each no more than about once a second when it lasts.
    assert attempts <= 3 * 600 * 1.3
    assert back_s < 5


def test_the_same_run_takes_the_same_virtual_time(broker):
    async def read():
        one = session(broker)
        await one.assign([T0])
        await one.prepare(10)
        taken = len(one.reader.take(100))
        await one.close(1)
        return taken

    first, second = run(read()), run(read())
    assert first == second
    assert first[0] == RECORDS


times = st.integers(1, 40)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(times, times, times), min_size=1, max_size=8))
@example([(1, 40, 20), (1, 2, 1)]).via("the second is late before the first")
def test_an_answer_is_waited_for_exactly_as_long_as_its_request_allows(broker, requests):
    """Each request: how long after the one before, how long it may take, how long it takes."""
    answers_in_s = iter([0.0, *(takes + 0.5 for _, _, takes in requests)])
    sent = answered = 0.0
    late = []
    for after, limit, takes in requests:
        sent += after
        answered = max(answered, sent + takes + 0.5)  # in the order of the requests
        if answered > sent + limit:
            late.append((sent + limit, sent))
    first_late, began = min(late, default=(None, None))

    async def ask():
        config = ConsumerConfig(bootstrap_servers=broker.servers)
        open_ = opener(broker, lambda _: next(answers_in_s))
        connection = await open_("h", 1, config, None, Buffers(0))
        loop, closed_at = asyncio.get_running_loop(), []
        connection.on_close = lambda: closed_at.append(loop.time())
        futures = []
        for after, limit, _ in requests:
            await asyncio.sleep(after)
            if connection.is_open:
                futures.append(connection.send(MetadataRequest(topics=[]), timeout_s=limit))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        return closed_at, outcomes

    (closed_at, outcomes), _ = run(ask())
    failed = [str(one) for one in outcomes if isinstance(one, RequestTimeoutError)]
    if first_late is None:
        assert not closed_at
        assert not failed
    else:
        assert closed_at == [pytest.approx(first_late)]
        assert f"within {first_late - began:g} s" in failed[0]


@pytest.mark.parametrize("answers_in_s", [0.05, 60], ids=["answered", "cut-short"])
def test_what_went_wrong_is_not_hidden_by_an_attempt_that_ran_out_of_time(broker, answers_in_s):
    """The last attempt ends when the time does; why the others failed is what helps."""

    async def ask():
        config = ConsumerConfig(bootstrap_servers=broker.servers)
        cluster = Cluster(config, Links(config, None, opener(broker, lambda _: next(delays_s))))
        deadline = Deadline(3.0)

        async def attempt():
            await cluster.ask(MetadataRequest(topics=[]), deadline=deadline)
            raise RetriableError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'absent' is not there"
            )

        try:
            await cluster.retrying(attempt, deadline)
        finally:
            await cluster.close()

    # Of the versions, of three attempts, and of those behind them.
    delays_s = chain([0.05] * 4, repeat(answers_in_s))
    with pytest.raises(RequestTimeoutError, match=r"^gave up after 3 s; last failure: .*'absent'"):
        run(ask())
