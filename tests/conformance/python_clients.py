"""The Python clients behind one small interface, so that a check is written once for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.conformance.client import (
    PARTITIONS,
    Client,
    Door,
    Member,
    Offsets,
    Polling,
)
from tests.peers import need
from tests.peers.suites import python_codecs

# --- confluent-kafka ---------------------------------------------------------------------------


class ConfluentKafka:
    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies = ("range", "roundrobin", "cooperative-sticky")
    static = deletes_groups = True

    def settings(self, door: Door, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap.servers": door.servers, "log_level": 2, **more}
        if door.user is not None:
            found |= {
                "security.protocol": "SASL_SSL" if door.ca_file else "SASL_PLAINTEXT",
                "sasl.mechanism": door.mechanism,
                "sasl.username": door.user,
                "sasl.password": door.password,
            }
        if door.ca_file is not None:
            found["ssl.ca.location"] = door.ca_file
            found.setdefault("security.protocol", "SSL")
        return found

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        from confluent_kafka import Producer

        settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5}
        producer = Producer(self.settings(door, **settings))
        offsets: list[int] = []
        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset())

        for value in values:
            producer.produce(topic, value, on_delivery=delivered)
        assert producer.flush(20) == 0
        assert not failures
        return len(offsets)

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member:
        client = self

        class Theirs(Polling):
            def _run(self) -> None:
                from confluent_kafka import Consumer

                settings = {
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "partition.assignment.strategy": strategy,
                    "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 300,
                }
                if instance is not None:
                    settings["group.instance.id"] = instance
                consumer = Consumer(client.settings(door, **settings))
                consumer.subscribe([topic])
                while not self._stop.is_set():
                    message = consumer.poll(0.05)
                    if message is not None and message.error() is None:
                        self._values.append(message.value() or b"")
                    self._assignment = frozenset(tp.partition for tp in consumer.assignment())
                consumer.close()

        return Theirs()

    def _consumer(self, door: Door, group: str) -> Any:
        from confluent_kafka import Consumer

        return Consumer(self.settings(door, **{"group.id": group, "enable.auto.commit": False}))

    def committed(self, door: Door, topic: str, group: str) -> Offsets:
        from confluent_kafka import TopicPartition

        consumer = self._consumer(door, group)
        found = consumer.committed([TopicPartition(topic, p) for p in PARTITIONS], timeout=10)
        consumer.close()
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None:
        from confluent_kafka import TopicPartition

        consumer = self._consumer(door, group)
        wanted = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()

    def _admin(self, door: Door) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.settings(door))

    def describe(self, door: Door, group: str) -> tuple[str, int]:
        admin = self._admin(door)
        (future,) = admin.describe_consumer_groups([group]).values()
        found = future.result(10)
        return found.state.name.title().replace("_", ""), len(found.members)

    def delete_group(self, door: Door, group: str) -> None:
        admin = self._admin(door)
        (future,) = admin.delete_consumer_groups([group]).values()
        future.result(10)


# --- kafka-python ------------------------------------------------------------------------------


def _plug_in_codecs() -> None:
    """kafka-python takes snappy and zstd from packages that are not among our dependencies."""
    import sys

    import kafka.codec

    sys.path.append(str(need(python_codecs)))
    try:
        import snappy
        import zstandard
    finally:
        sys.path.pop()
    kafka.codec.snappy, kafka.codec.zstd = snappy, zstandard


class KafkaPython:
    name = "kafka-python"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")
    static = deletes_groups = True

    def settings(self, door: Door) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap_servers": door.servers}
        if door.user is not None:
            found |= {
                "security_protocol": "SASL_SSL" if door.ca_file else "SASL_PLAINTEXT",
                "sasl_mechanism": door.mechanism,
                "sasl_plain_username": door.user,
                "sasl_plain_password": door.password,
            }
        if door.ca_file is not None:
            found["ssl_cafile"] = door.ca_file
            found.setdefault("security_protocol", "SSL")
        return found

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        from kafka import KafkaProducer

        if codec in ("snappy", "zstd"):
            _plug_in_codecs()
        producer = KafkaProducer(
            **self.settings(door),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
        )
        futures = [producer.send(topic, value) for value in values]
        producer.flush(20)
        offsets = [future.get(10).offset for future in futures]
        producer.close()
        return len(offsets)

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member:
        client = self

        class Theirs(Polling):
            def _run(self) -> None:
                from kafka import KafkaConsumer
                from kafka.coordinator.assignors.cooperative_sticky import (
                    CooperativeStickyAssignor,
                )
                from kafka.coordinator.assignors.range import RangePartitionAssignor
                from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
                from kafka.coordinator.assignors.sticky.sticky_assignor import (
                    StickyPartitionAssignor,
                )

                assignors = {
                    "range": RangePartitionAssignor,
                    "roundrobin": RoundRobinPartitionAssignor,
                    "sticky": StickyPartitionAssignor,
                    "cooperative-sticky": CooperativeStickyAssignor,
                }
                consumer = KafkaConsumer(
                    topic,
                    **client.settings(door),
                    group_id=group,
                    group_instance_id=instance,
                    auto_offset_reset="earliest",
                    partition_assignment_strategy=[assignors[strategy]],
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=300,
                )
                while not self._stop.is_set():
                    # Not less: 3.0.12 forgets an assignment that arrives while a poll times out.
                    for records in consumer.poll(1000).values():
                        self._values += [record.value for record in records]
                    self._assignment = frozenset(tp.partition for tp in consumer.assignment())
                consumer.close()

        return Theirs()

    def _consumer(self, door: Door, group: str) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(**self.settings(door), group_id=group, enable_auto_commit=False)

    def committed(self, door: Door, topic: str, group: str) -> Offsets:
        from kafka import TopicPartition

        consumer = self._consumer(door, group)
        found = {p: consumer.committed(TopicPartition(topic, p)) for p in PARTITIONS}
        consumer.close()
        return {p: offset for p, offset in found.items() if offset is not None}

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None:
        from kafka import OffsetAndMetadata, TopicPartition

        consumer = self._consumer(door, group)
        consumer.commit(
            {
                TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1)
                for p, offset in offsets.items()
            }
        )
        consumer.close()

    def _admin(self, door: Door) -> Any:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(**self.settings(door))

    def describe(self, door: Door, group: str) -> tuple[str, int]:
        admin = self._admin(door)
        found = admin.describe_groups([group])[group]
        admin.close()
        return found["group_state"], len(found["members"])

    def delete_group(self, door: Door, group: str) -> None:
        admin = self._admin(door)
        admin.delete_groups([group])
        admin.close()


# --- aiokafka ----------------------------------------------------------------------------------


class AioKafka:
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies = ("range", "roundrobin", "sticky")
    static, deletes_groups = True, False

    def settings(self, door: Door) -> dict[str, Any]:
        import ssl

        found: dict[str, Any] = {"bootstrap_servers": door.servers}
        if door.user is not None:
            found |= {
                "security_protocol": "SASL_SSL" if door.ca_file else "SASL_PLAINTEXT",
                "sasl_mechanism": door.mechanism,
                "sasl_plain_username": door.user,
                "sasl_plain_password": door.password,
            }
        if door.ca_file is not None:
            found["ssl_context"] = ssl.create_default_context(cafile=door.ca_file)
            found.setdefault("security_protocol", "SSL")
        return found

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        from aiokafka import AIOKafkaProducer

        async def run() -> int:
            producer = AIOKafkaProducer(
                **self.settings(door),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
            )
            await producer.start()
            try:
                futures = [await producer.send(topic, value) for value in values]
                return len([(await future).offset for future in futures])
            finally:
                await producer.stop()

        return asyncio.run(run())

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member:
        client = self

        class Theirs(Polling):
            def _run(self) -> None:
                asyncio.run(self._poll())

            async def _poll(self) -> None:
                from aiokafka import AIOKafkaConsumer
                from aiokafka.coordinator.assignors.range import RangePartitionAssignor
                from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
                from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
                    StickyPartitionAssignor,
                )

                assignors = {
                    "range": RangePartitionAssignor,
                    "roundrobin": RoundRobinPartitionAssignor,
                    "sticky": StickyPartitionAssignor,
                }
                consumer = AIOKafkaConsumer(
                    topic,
                    **client.settings(door),
                    group_id=group,
                    group_instance_id=instance,
                    auto_offset_reset="earliest",
                    partition_assignment_strategy=[assignors[strategy]],
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=300,
                )
                await consumer.start()
                try:
                    while not self._stop.is_set():
                        for records in (await consumer.getmany(timeout_ms=50)).values():
                            self._values += [record.value for record in records]
                        self._assignment = frozenset(tp.partition for tp in consumer.assignment())
                finally:
                    await consumer.stop()

        return Theirs()

    def _with_consumer(self, door: Door, group: str, use: Callable[[Any], Any]) -> Any:
        from aiokafka import AIOKafkaConsumer

        async def run() -> Any:
            consumer = AIOKafkaConsumer(
                **self.settings(door), group_id=group, enable_auto_commit=False
            )
            await consumer.start()
            try:
                return await use(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def committed(self, door: Door, topic: str, group: str) -> Offsets:
        from aiokafka import TopicPartition

        async def use(consumer: Any) -> Any:
            where = [TopicPartition(topic, p) for p in PARTITIONS]
            consumer.assign(where)
            return {each.partition: await consumer.committed(each) for each in where}

        found = self._with_consumer(door, group, use)
        return {p: offset for p, offset in found.items() if offset is not None}

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None:
        from aiokafka import TopicPartition

        where = {TopicPartition(topic, p): offset for p, offset in offsets.items()}

        async def use(consumer: Any) -> None:
            consumer.assign(list(where))
            await consumer.commit(where)

        self._with_consumer(door, group, use)

    def _with_admin(self, door: Door, use: Callable[[Any], Any]) -> Any:
        from aiokafka.admin import AIOKafkaAdminClient

        async def run() -> Any:
            admin = AIOKafkaAdminClient(**self.settings(door))
            await admin.start()
            try:
                return await use(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def describe(self, door: Door, group: str) -> tuple[str, int]:
        async def use(admin: Any) -> tuple[str, int]:
            (response,) = await admin.describe_consumer_groups([group])
            (found,) = response.groups
            return found[2], len(found[5])

        return self._with_admin(door, use)  # type: ignore[no-any-return]  # what is run decides the type

    def delete_group(self, door: Door, group: str) -> None:
        raise NotImplementedError("aiokafka has no call for it")


PYTHON_CLIENTS: tuple[Client, ...] = (ConfluentKafka(), KafkaPython(), AioKafka())
