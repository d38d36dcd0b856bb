"""Records of ``__consumer_offsets`` for tests, made with the codec the broker writes them with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from shoal.types import TopicPartition
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from shoal.wire.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
    encode_key,
    encode_value,
)

START_MS = 1_700_000_000_000
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


class Journal:
    """A partition of the topic that grows; times are seconds after ``START_MS``."""

    def __init__(self, partition: int = 0) -> None:
        self._partition = partition
        self._rows: list[tuple[bytes | None, bytes | None, int, int, int]] = []

    def raw(self, key: bytes | None, value: bytes | None, at_s: float = 0) -> None:
        at_us = (START_MS + round(at_s * 1000)) * 1000
        self._rows.append((key, value, self._partition, len(self._rows), at_us))

    def write(self, key: Key, value: Value | None, at_s: float = 0) -> None:
        self.raw(encode_key(key), None if value is None else encode_value(value), at_s)

    def commit(self, group: str, tp: TopicPartition, offset: int | None, at_s: float) -> None:
        """Commit, or delete the offset."""
        key = OffsetCommitKey(group=group, topic=tp.topic, partition=tp.partition)
        at_ms = START_MS + round(at_s * 1000)
        value = OffsetCommitValue(offset=offset or 0, metadata="", commit_timestamp=at_ms)
        self.write(key, None if offset is None else value, at_s)

    def generation(
        self,
        group: str,
        number: int,
        members: Mapping[str, Iterable[TopicPartition]],
        at_s: float,
        *,
        topics: Sequence[str] = ("orders",),
        instances: Mapping[str, str] | None = None,
        began_s: float | None = None,
        session_ms: int = 10_000,
        assignor: str = "range",
        is_start: bool = False,
        clients: Mapping[str, str] | None = None,
    ) -> None:
        """A classic generation.

        ``is_start``: as Shoal's broker announces it, with what its members had before.
        """
        instances = instances or {}
        since = START_MS + round((at_s if began_s is None else began_s) * 1000)
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=number,
            protocol=assignor if members else None,
            leader=next(iter(members), None) if not is_start else None,
            current_state_timestamp=since,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=name,
                    group_instance_id=instances.get(name),
                    client_id=(clients or {}).get(name, name),
                    client_host="/127.0.0.1",
                    rebalance_timeout=60_000,
                    session_timeout=session_ms,
                    subscription=ConsumerProtocolSubscription(topics).encode(),
                    assignment=ConsumerProtocolAssignment(list(tps)).encode(),
                )
                for name, tps in members.items()
            ],
        )
        self.write(GroupMetadataKey(group=group), value, at_s)

    def records(self, begin: int = 0, end: int | None = None) -> pa.RecordBatch:
        rows = self._rows[begin:end]
        columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def __len__(self) -> int:
        return len(self._rows)


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]
