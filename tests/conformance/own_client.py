"""Our own client behind the interface of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal import Admin, Consumer, Producer, TopicPartition
from tests.conformance.client import PARTITIONS, Door, Member, Offsets, Polling


class Shoal:
    name = "shoal"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")
    static = deletes_groups = True

    def settings(self, door: Door) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap_servers": door.servers}
        if door.user is not None:
            found |= {
                "security_protocol": "SASL_SSL" if door.ca_file else "SASL_PLAINTEXT",
                "sasl_mechanism": door.mechanism,
                "sasl_username": door.user,
                "sasl_password": door.password,
            }
        if door.ca_file is not None:
            found["ssl_cafile"] = door.ca_file
            found.setdefault("security_protocol", "SSL")
        return found

    def produce(
        self, door: Door, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> int:
        with Producer(
            **self.settings(door), compression_type=codec, enable_idempotence=idempotent
        ) as producer:
            futures = [producer.send(topic, value) for value in values]
            return len([future.result(20).offset for future in futures])

    def member(
        self, door: Door, topic: str, group: str, *, strategy: str, instance: str | None
    ) -> Member:
        client = self

        class Ours(Polling):
            def _run(self) -> None:
                with Consumer(
                    **client.settings(door),
                    group_id=group,
                    group_instance_id=instance,
                    auto_offset_reset="earliest",
                    assignors=[strategy],
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=300,
                ) as consumer:
                    consumer.subscribe([topic])
                    while not self._stop.is_set():
                        self._values += [record.value for record in consumer.poll(0.05)]
                        self._assignment = frozenset(tp.partition for tp in consumer.assignment())

        return Ours()

    def committed(self, door: Door, topic: str, group: str) -> Offsets:
        with Admin(**self.settings(door)) as admin:
            found = admin.group_offsets(group, [TopicPartition(topic, p) for p in PARTITIONS])
        return {tp.partition: at.offset for tp, at in found.items() if at is not None}

    def commit(self, door: Door, topic: str, group: str, offsets: Offsets) -> None:
        with Admin(**self.settings(door)) as admin:
            admin.alter_group_offsets(
                group, {TopicPartition(topic, p): offset for p, offset in offsets.items()}
            )

    def describe(self, door: Door, group: str) -> tuple[str, int]:
        with Admin(**self.settings(door)) as admin:
            found = admin.describe_group(group)
        return found.state, len(found.members)

    def delete_group(self, door: Door, group: str) -> None:
        with Admin(**self.settings(door)) as admin:
            admin.delete_groups(group)
