"""The awaitable face of administration: the same methods, on the caller's loop."""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
import uuid

import pytest

from docs import generate_async_admin
from shoal import Admin, AsyncAdmin, TopicPartition
from shoal.errors import BrokerError, ErrorCode, RequestTimeoutError


def test_topics_settings_offsets_and_groups(servers, group):
    topic = f"t-{uuid.uuid4().hex[:12]}"
    tp = TopicPartition(topic, 0)

    async def run():
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.create_topic(topic, partitions=2, configs={"retention.ms": "60000"})
            assert topic in await admin.list_topics()
            described = (await admin.describe_topics(topic))[topic]
            assert len(described.partitions) == 2
            configs = await admin.describe_configs(topic=topic)
            assert configs["retention.ms"].value == "60000"
            end = (await admin.list_offsets({tp: "latest"}))[tp]
            assert end is not None
            assert end.offset == 0
            await admin.alter_group_offsets(group, {tp: 0})
            committed = (await admin.group_offsets(group))[tp]
            assert committed is not None
            assert committed.offset == 0
            await admin.delete_groups(group)
            with pytest.raises(BrokerError) as refused:
                await admin.create_topic(topic)
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            await admin.delete_topics(topic)

    asyncio.run(run())


def test_many_may_ask_at_once(servers):
    async def run():
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            found = await asyncio.gather(*(admin.describe_cluster() for _ in range(10)))
            assert len({one.cluster_id for one in found}) == 1

    asyncio.run(run())


def test_a_cancelled_call_leaves_the_admin_usable_and_nothing_behind(shoal_broker):
    async def run():
        async with AsyncAdmin(bootstrap_servers=shoal_broker.bootstrap_servers) as admin:
            for turns in range(10):
                task = asyncio.create_task(admin.list_topics())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            assert await admin.list_topics() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await admin.close()
        with pytest.raises(RuntimeError, match="this client is closed"):
            await admin.list_topics()

    asyncio.run(run())
    assert not [one for one in threading.enumerate() if one.name == "shoal-admin"]


def test_a_call_ends_in_time_while_the_loop_goes_on():
    async def run():
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:9") as admin:
            with pytest.raises((RequestTimeoutError, ConnectionError)):
                await admin.list_topics(timeout=0.2)

    asyncio.run(run())


def test_its_methods_are_those_of_admin():
    made = ast.dump(ast.parse(generate_async_admin.module()))
    kept = ast.dump(ast.parse(generate_async_admin.TARGET.read_text()))
    assert made == kept, "run python -m docs.generate_async_admin, then ruff format"
    for name, method in inspect.getmembers(Admin, inspect.isfunction):
        if not name.startswith("_"):
            awaited = getattr(AsyncAdmin, name)
            # What only looks at what is known needs no await.
            assert inspect.iscoroutinefunction(awaited) == (name != "metrics"), name
            assert inspect.signature(awaited) == inspect.signature(method), name
