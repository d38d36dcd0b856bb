"""Keys and values of ``__transaction_state``: the bytes of the schema, written without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ShoalError
from shoal.wire.transaction_topic import (
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

IDS = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(
    st.tuples(st.sampled_from(["a", "b", "é"]), st.integers(0, 2**31 - 1)), max_size=8
)


@given(
    st.fixed_dictionaries(
        {
            "producer_id": IDS,
            "previous_producer_id": IDS,
            "next_producer_id": IDS,
            "producer_epoch": st.integers(-1, 32_767),
            "transaction_timeout_ms": st.integers(0, 2**31 - 1),
            "transaction_status": st.integers(0, 7),
            "transaction_last_update_timestamp_ms": IDS,
            "transaction_start_timestamp_ms": IDS,
            "client_transaction_version": st.sampled_from([0, 1, 2]),
        }
    ),
    st.none() | PARTITIONS,
)
def test_a_value_has_the_bytes_of_its_schema(
    fields: dict[str, int], partitions: frozenset[tuple[str, int]] | None
) -> None:
    listed = None
    if partitions is not None:
        listed = [
            TransactionLogValue.PartitionsSchema(
                topic=topic, partition_ids=sorted(n for name, n in partitions if name == topic)
            )
            for topic in sorted({name for name, _ in partitions})
        ]
    value = TransactionLogValue(**fields, transaction_partitions=listed)  # type: ignore[arg-type]  # numbers only
    written = encode_value(**fields, transaction_partitions=partitions)
    assert written == b"\0\1" + value.encode(1)
    assert decode_value(written) == value


@given(st.text(max_size=40))
def test_a_key_holds_the_transactional_id(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


def test_a_key_of_a_later_type_is_skipped() -> None:
    assert decode_key(b"\0\7" + encode_key("x")[2:]) is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\0\0\5ab"])
def test_a_key_that_was_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(ShoalError):
        decode_key(data)
