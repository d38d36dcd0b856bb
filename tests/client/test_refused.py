"""Nobody listens at the addresses a client was given: it says so at once, and gives up soon."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys

import pytest

from shoal import Consumer, TopicPartition
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig
from shoal.client.connection import is_refusal, open_connection
from shoal.client.deadlines import Deadline
from shoal.client.group_admin import describe_group
from shoal.client.leases import Buffers
from shoal.errors import ConnectionFailedError, RequestTimeoutError
from tests.client.scripted import ScriptedBroker
from tests.client.virtual import opener, run

PATIENCE_S = 10


def refused(where):
    error = ConnectionFailedError(f"cannot connect to {where}: Connection refused")
    error.__cause__ = ConnectionRefusedError()
    return error


def cluster_of(addresses, open_):
    """A cluster whose connections are opened by ``open_(host, seconds since the start)``."""

    async def attempt(host, port, config, tls, buffers):
        connection = open_(host, asyncio.get_running_loop().time())
        return await connection(host, port, config, tls, buffers)

    config = AdminConfig.from_settings({"bootstrap_servers": addresses})
    return Cluster(config, Links(config, None, attempt))


async def ask(cluster, timeout=60.0):
    try:
        return await cluster.topics(["t"], Deadline(timeout))
    except (ConnectionFailedError, RequestTimeoutError) as error:
        return error
    finally:
        await cluster.close()


def test_a_call_gives_up_soon_when_every_address_refuses():
    def refuse(host, _):
        raise refused(host)

    async def body():
        return await ask(cluster_of("one:1,two:2", refuse))

    error, seconds = run(body())
    assert isinstance(error, ConnectionFailedError)
    assert str(error) == (
        "no broker for 10 s, check bootstrap_servers: cannot connect to one: Connection refused; "
        "cannot connect to two: Connection refused"
    )
    assert PATIENCE_S / 2 < seconds <= PATIENCE_S + 1


def test_a_call_of_several_steps_gives_up_as_soon():
    def refuse(host, _):
        raise refused(host)

    async def body():
        cluster = cluster_of("one:1", refuse)
        with pytest.raises(ConnectionFailedError, match=r"^no broker for 10 s"):
            # Finding the coordinator is a call of its own, repeated within the one for the group.
            await describe_group(cluster, "g", Deadline(60))
        await cluster.close()

    _, seconds = run(body())
    # The pause it was in when the time was over may last up to 1.2 s.
    assert PATIENCE_S / 2 < seconds <= PATIENCE_S + 1.2


def test_a_time_that_is_given_and_shorter_is_kept():
    def refuse(host, _):
        raise refused(host)

    async def body():
        return await ask(cluster_of("one:1", refuse), timeout=3)

    error, seconds = run(body())
    assert isinstance(error, RequestTimeoutError)
    assert str(error).endswith("cannot connect to one: Connection refused")
    assert seconds <= 3


def test_an_address_that_is_only_slow_is_waited_for():
    def half(host, _):
        if host == "one":
            raise refused(host)
        raise ConnectionFailedError("two was not ready within 10 s")

    async def body():
        return await ask(cluster_of("one:1,two:2", half))

    error, seconds = run(body())
    assert isinstance(error, RequestTimeoutError)
    assert seconds > 50


@pytest.fixture
def broker():
    with ScriptedBroker() as broker:
        yield broker


def test_a_broker_that_starts_a_little_later_is_found(broker):
    def late(host, now):
        if now < PATIENCE_S - 3:
            raise refused(host)
        return opener(broker)

    async def body():
        return await ask(cluster_of("one:1", late))

    metadata, _ = run(body())
    assert "t" in metadata.topics


def test_a_broker_that_was_there_once_is_waited_for(broker):
    def gone(host, now):
        if now >= 1:
            raise refused(host)
        return opener(broker)

    async def body():
        cluster = cluster_of("one:1", gone)
        await cluster.topics(["t"], Deadline(5))
        cluster._links.close()
        cluster._links = cluster_of("one:1", gone)._links
        await asyncio.sleep(1)
        try:
            await cluster.topics(["other"], Deadline(40))
        except RequestTimeoutError as error:
            return error
        finally:
            await cluster.close()

    error, seconds = run(body())
    assert isinstance(error, RequestTimeoutError)
    assert seconds > 30


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no.such.invalid"])
def test_what_a_system_says_of_such_an_address_is_recognised(host):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def attempt():
        try:
            await open_connection(host, port, AdminConfig(), None, Buffers(0))
        except ConnectionFailedError as error:
            return error

    assert is_refusal(asyncio.run(attempt()))


def test_other_failures_are_no_refusals():
    assert not is_refusal(None)
    assert not is_refusal(ConnectionFailedError("the connection was closed"))
    timed_out = ConnectionFailedError("h")
    timed_out.__cause__ = OSError("Multiple exceptions: [Errno 111] x, [Errno 113] y")
    assert not is_refusal(timed_out)


def test_a_consumer_says_at_once_and_once_that_nobody_listens(caplog):
    with (
        caplog.at_level(logging.WARNING),
        Consumer(bootstrap_servers="127.0.0.1:9") as one,
    ):
        one.assign([TopicPartition("t", 0)])
        assert not one.poll(1.5)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["cannot connect to 127.0.0.1:9: Connection refused; trying again"]


def test_a_program_without_logging_says_it_on_standard_error():
    script = "\n".join(
        [
            "from shoal import Producer",
            "producer = Producer(bootstrap_servers='127.0.0.1:9', max_block_ms=500)",
            "try: producer.send('t', 'v')",
            "except Exception as error: print(type(error).__name__)",
            "producer.close()",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == "cannot connect to 127.0.0.1:9: Connection refused; trying again\n"
    assert done.stdout == "RequestTimeoutError\n"
