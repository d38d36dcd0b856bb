"""Every admin, metadata and group call of aiokafka, with its defaults."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.differential.clients.outcomes import (
    WAIT_S,
    Outcomes,
    await_partitions,
    await_setting,
    awaited,
    plain,
)


def run(servers: str) -> Outcomes:
    return asyncio.run(_run(servers))


async def _run(servers: str) -> Outcomes:
    from aiokafka import AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    out: Outcomes = {}
    topic, group, tp = "aiokafka", "aiokafka-group", TopicPartition("aiokafka", 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    new = NewTopic(topic, 2, 1)
    await awaited(out, "create_topics", lambda: admin.create_topics([new]))
    await awaited(out, "create_topics again", lambda: admin.create_topics([new]))
    await asyncio.to_thread(await_partitions, servers, topic, 2)
    grown = {topic: NewPartitions(3)}
    await awaited(out, "create_partitions", lambda: admin.create_partitions(grown))
    await asyncio.to_thread(await_partitions, servers, topic, 3)
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    for number in range(3):
        await awaited(
            out, f"send_and_wait {number}", lambda: producer.send_and_wait(topic, b"v", partition=0)
        )
    await awaited(out, "partitions_for", lambda: producer.partitions_for(topic))
    await awaited(out, "send", lambda: _sent(producer, topic))
    await awaited(out, "send_batch", lambda: _batch_sent(producer, topic))
    await awaited(out, "flush", producer.flush)
    await producer.stop()

    async def listed() -> bool:
        return topic in await admin.list_topics()

    await awaited(out, "list_topics", listed)
    await awaited(out, "describe_topics", lambda: admin.describe_topics([topic, "unknown"]))
    await awaited(out, "describe_cluster", admin.describe_cluster)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "9000000"})
    await awaited(out, "alter_configs", lambda: admin.alter_configs([resource]))
    await asyncio.to_thread(await_setting, servers, topic, "retention.ms", "9000000")

    async def configs() -> Any:
        (answer,) = await admin.describe_configs([resource])
        return [(*row[:3], sorted(row[4], key=repr)) for row in answer.resources]

    await awaited(out, "describe_configs", configs)
    await awaited(
        out, "delete_records", lambda: admin.delete_records({tp: RecordsToDelete(before_offset=1)})
    )
    await awaited(out, "find_coordinator", lambda: admin.find_coordinator(group))
    await _groups(out, admin, servers, topic, group, tp)
    await awaited(out, "delete_topics", lambda: admin.delete_topics([topic]))
    await admin.close()
    return out


async def _sent(producer: Any, topic: str) -> Any:
    return await (await producer.send(topic, b"v", partition=0))


async def _batch_sent(producer: Any, topic: str) -> Any:
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return await (await producer.send_batch(batch, topic, partition=0))


async def _groups(out: Outcomes, admin: Any, servers: str, topic: str, group: str, tp: Any) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    seen = [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(2)]
    out["consumed"] = plain([(one.partition, one.offset, one.value) for one in seen])
    await awaited(out, "commit", consumer.commit)
    await awaited(out, "committed", lambda: consumer.committed(tp))
    await awaited(out, "position", lambda: consumer.position(tp))
    await awaited(out, "beginning_offsets", lambda: consumer.beginning_offsets([tp]))
    await awaited(out, "end_offsets", lambda: consumer.end_offsets([tp]))
    await awaited(out, "offsets_for_times", lambda: consumer.offsets_for_times({tp: 1}))
    out["assignment"] = plain(consumer.assignment())
    out["subscription"] = plain(consumer.subscription())
    out["partitions_for_topic"] = plain(consumer.partitions_for_topic(topic))
    out["highwater"] = plain(consumer.highwater(tp))
    out["last_stable_offset"] = plain(consumer.last_stable_offset(tp))
    out["last_poll_timestamp"] = bool(consumer.last_poll_timestamp(tp))

    async def has_topic() -> bool:
        return topic in await consumer.topics()

    await awaited(out, "topics", has_topic)
    await awaited(out, "describe_consumer_groups", lambda: admin.describe_consumer_groups([group]))
    await awaited(out, "seek_to_committed", lambda: consumer.seek_to_committed(tp))
    consumer.unsubscribe()
    await _assigned(out, consumer, tp)
    await consumer.stop()

    async def named() -> Any:
        return [row for row in await admin.list_consumer_groups() if row[0] == group]

    await awaited(out, "list_consumer_groups", named)
    await awaited(
        out, "list_consumer_group_offsets", lambda: admin.list_consumer_group_offsets(group)
    )


async def _assigned(out: Outcomes, consumer: Any, tp: Any) -> None:
    """By hand, without a group's say."""
    consumer.assign([tp])
    consumer.pause(tp)
    out["paused"] = plain(consumer.paused())
    consumer.resume(tp)
    for move in ("seek_to_end", "seek_to_beginning"):
        await awaited(out, move, partial(getattr(consumer, move), tp))
        await awaited(out, f"position after {move}", lambda: consumer.position(tp))
    consumer.seek(tp, 2)

    async def many() -> Any:
        found = await consumer.getmany(timeout_ms=1000 * WAIT_S)
        return [record.offset for records in found.values() for record in records]

    await awaited(out, "getmany", many)
    consumer.unsubscribe()
    consumer.subscribe(pattern=f"^{tp.topic}$")
