"""What ``__transaction_state`` holds: the bytes of the schema, written without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.transaction.journal import (
    NO_TIMEOUT_MS,
    TransactionRecord,
    TransactionTombstone,
    decode,
    encode,
)
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition
from shoal.wire.transaction_topic import TransactionLogValue

IDS = st.integers(0, 2**63 - 1)
TIMES = st.integers(0, 2**53)
PARTITIONS = st.frozensets(
    st.builds(
        TopicPartition, st.sampled_from(["a", "b", "é", "x" * 200]), st.integers(0, 2**31 - 1)
    ),
    max_size=12,
)
RECORDS = st.builds(
    TransactionRecord,
    transactional_id=st.text(max_size=20),
    producer_id=IDS,
    epoch=st.integers(0, 32_767),
    timeout_ms=st.integers(1, NO_TIMEOUT_MS),
    state=st.sampled_from(TransactionState),
    partitions=PARTITIONS,
    update_ms=TIMES,
    start_ms=st.none() | TIMES,
    previous_producer_id=st.none() | IDS,
    next_producer_id=st.none() | IDS,
    client_version=st.sampled_from([0, 2]),
)


def by_schema(record: TransactionRecord) -> bytes:
    """Field by field, as Kafka's own schema says."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(record.partitions):
        topics.setdefault(topic, []).append(partition)
    listed = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=partitions)
        for topic, partitions in topics.items()
    ]
    before, following, start = record.previous_producer_id, record.next_producer_id, record.start_ms
    return TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.producer_id if before is None else before,
        next_producer_id=-1 if following is None else following,
        producer_epoch=record.epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=int(record.state),
        transaction_partitions=None if record.state is TransactionState.EMPTY else listed,
        transaction_last_update_timestamp_ms=record.update_ms,
        transaction_start_timestamp_ms=-1 if start is None else start,
        client_transaction_version=record.client_version,
    ).encode(1)


@given(RECORDS)
def test_a_value_has_the_bytes_of_its_schema(record: TransactionRecord) -> None:
    _, value = encode(record)
    assert value == b"\0\1" + by_schema(record)


@given(RECORDS)
def test_what_was_encoded_is_decoded(record: TransactionRecord) -> None:
    found = decode(*encode(record))
    assert isinstance(found, TransactionRecord)
    # An id that has never had a transaction has no list of partitions.
    assert found.partitions == (frozenset() if record.state == 0 else record.partitions)
    assert encode(found) == encode(record)


@pytest.mark.parametrize("name", ["t", "é"])
def test_an_id_that_expired_has_no_value(name: str) -> None:
    key, value = encode(TransactionTombstone(name))
    assert value is None
    assert decode(key, value) == TransactionTombstone(name)
