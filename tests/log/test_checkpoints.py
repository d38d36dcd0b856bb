"""The small files: Kafka's text, and None for what cannot be read."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from shoal.log.checkpoints import (
    CorruptRange,
    IndexSeal,
    PartitionCheckpoint,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_seals,
    decode_state,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_seals,
    encode_state,
    read_id,
    show_id,
)
from shoal.types import TopicPartition

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1)))
def test_offset_checkpoints_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_offset_checkpoints_are_kafkas_text() -> None:
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 0): 7}
    assert encode_offsets(offsets) == b"0\n2\na 0 7\nb 1 5\n"


@given(st.binary(max_size=60))
def test_garbage_is_no_checkpoint(data: bytes) -> None:
    assert decode_state(data) is None
    assert decode_seals(data) == {}
    decode_offsets(data)
    decode_properties(data)
    decode_partition_metadata(data)


def test_a_checkpoint_with_a_wrong_count_is_none() -> None:
    for data in (b"0\n2\na 0 7\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"1\n0\n", b"0\n-1\n"):
        assert decode_offsets(data) is None


@given(st.uuids())
def test_ids_are_kafkas_22_characters(value: UUID) -> None:
    assert len(show_id(value)) == 22
    assert read_id(show_id(value)) == value
    assert decode_partition_metadata(encode_partition_metadata(value)) == value


def test_what_is_no_id() -> None:
    assert read_id("short") is None
    assert read_id("é" * 22) is None
    assert decode_partition_metadata(b"version: 0\ntopic_id: ???\n") is None
    assert decode_partition_metadata(None) is None


def test_properties_round_trip_and_skip_comments() -> None:
    properties = {"node.id": "1", "cluster.id": "a=b"}
    assert decode_properties(b"#comment = x\n" + encode_properties(properties)) == properties


def test_the_state_of_a_partition_round_trips() -> None:
    state = PartitionCheckpoint([CorruptRange(0, 10, 20, 3, 5, "the checksum fails")], 77)
    data = encode_state(state)
    assert decode_state(data) == state
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 4
        assert decode_state(bytes(damaged)) is None
    seals = {0: IndexSeal(8, 1, 12, 2, 3, 4), 50: IndexSeal(0, 0, 0, 0, -1, 50)}
    assert decode_seals(encode_seals(seals)) == seals
