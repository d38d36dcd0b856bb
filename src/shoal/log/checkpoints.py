"""The small text files beside the segments: what stands in them, and how to read it back.

Pure: text in, values out. A reader returns ``None`` for anything it does not understand, because
every one of these files can be derived again or replaced by a safe default; the caller decides.

    recovery-point-offset-checkpoint   0 ⏎ count ⏎ "topic partition offset" per line
    log-start-offset-checkpoint        the same; so are the two below
    replication-offset-checkpoint
    cleaner-offset-checkpoint
    leader-epoch-checkpoint            0 ⏎ count ⏎ "epoch start_offset" per line
    partition.metadata                 version: 0 ⏎ topic_id: 22 characters
    meta.properties                    key=value lines
    shoal.checkpoint                   ours: corrupt ranges, and how far compaction came
    shoal-index.checkpoint             ours: checksums of the index files
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import crc32

from shoal.types import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
STATE: Final = "shoal.checkpoint"
SEALS: Final = "shoal-index.checkpoint"


class SharedFiles(NamedTuple):
    """The checkpoints of a directory as they were to be at one moment; ``number`` counts these."""

    number: int
    files: Mapping[str, bytes]
    partitions: frozenset[TopicPartition]
    """Of which they speak."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return _encode_lines(lines)


def decode_offsets(data: bytes | None) -> dict[TopicPartition, int] | None:
    rows = _decode_lines(data, width=3)
    if rows is None:
        return None
    try:
        return {TopicPartition(topic, int(part)): int(offset) for topic, part, offset in rows}
    except ValueError:
        return None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode_lines([f"{epoch} {start}" for epoch, start in entries])


def decode_epochs(data: bytes | None) -> list[tuple[int, int]] | None:
    """None unless epochs and start offsets both grow, which they always do."""
    rows = _decode_lines(data, width=2)
    if rows is None:
        return None
    try:
        entries = [(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        return None
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            return None
    if any(epoch < 0 or start < 0 for epoch, start in entries):
        return None
    return entries


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def _decode_lines(data: bytes | None, *, width: int) -> list[list[str]] | None:
    if data is None:
        return None
    try:
        lines = data.decode("ascii").split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        return None
    rows = [line.split() for line in lines[2 : 2 + count]]
    if version != 0 or count < 0 or len(rows) != count or any(len(row) != width for row in rows):
        return None
    return rows


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {show_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes | None) -> UUID | None:
    for line in (data or b"").decode("ascii", "replace").split("\n"):
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            return read_id(value.strip())
    return None


def show_id(value: UUID) -> str:
    """An id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def read_id(text: str) -> UUID | None:
    try:
        data = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return None
    return UUID(bytes=data) if len(data) == 16 else None


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()


def decode_properties(data: bytes | None) -> dict[str, str]:
    found = {}
    for line in (data or b"").decode("utf-8", "replace").split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value.strip()
    return found


class CorruptRange(NamedTuple):
    """Bytes of a segment that fail a check, and the offsets they stood for."""

    segment_base: int
    position: int
    end_position: int
    start_offset: int
    end_offset: int
    reason: str


class IndexSeal(NamedTuple):
    """What a segment's index files must look like to be believed."""

    index_bytes: int
    index_crc: int
    timeindex_bytes: int
    timeindex_crc: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    txnindex_bytes: int = -1
    """-1 if nobody looked at it when the seal was made."""
    txnindex_crc: int = 0


@dataclass(slots=True)
class PartitionCheckpoint:
    """What ``shoal.checkpoint`` holds: facts that the log itself does not tell."""

    corrupt: list[CorruptRange] = field(default_factory=list)
    cleaned_until: int = 0
    """Below this offset compaction may have left holes."""


def encode_state(state: PartitionCheckpoint) -> bytes:
    corrupt = [list(one) for one in state.corrupt]
    return _encode_json({"cleaned_until": state.cleaned_until, "corrupt": corrupt})


def decode_state(data: bytes | None) -> PartitionCheckpoint | None:
    """None if the file is missing, damaged or of a newer version."""
    content = _decode_json(data)
    if content is None:
        return None
    corrupt = [CorruptRange(*one) for one in content["corrupt"]]
    return PartitionCheckpoint(corrupt, content["cleaned_until"])


def encode_seals(seals: Mapping[int, IndexSeal]) -> bytes:
    return _encode_json({"indexes": {str(base): list(seal) for base, seal in seals.items()}})


def decode_seals(data: bytes | None) -> dict[int, IndexSeal]:
    """Empty if the file is missing or damaged: the indexes are then derived from the log."""
    content = _decode_json(data) or {"indexes": {}}
    return {int(base): IndexSeal(*seal) for base, seal in content["indexes"].items()}


def _encode_json(content: dict[str, Any]) -> bytes:
    body = json.dumps({"version": 1, **content}, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(body), body)


def _decode_json(data: bytes | None) -> dict[str, Any] | None:
    if data is None or data[8:9] != b" " or not data.endswith(b"\n"):
        return None
    body = data[9:-1]
    if b"%08x" % crc32(body) != data[:8]:
        return None
    content: dict[str, Any] = json.loads(body)
    return content if content.get("version") == 1 else None
