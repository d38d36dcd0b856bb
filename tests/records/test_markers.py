"""Transaction markers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptDataError
from shoal.records.batch import decode_batch, encode_batch, read_header
from shoal.records.markers import MARKER_SIZE, encode_marker, is_abort_marker


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_says_how_a_transaction_ended(commit: bool) -> None:
    marker = encode_marker(
        commit=commit,
        producer_id=7,
        producer_epoch=2,
        timestamp_ms=1000,
        coordinator_epoch=5,
        base_offset=30,
    )
    header = read_header(marker)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert is_abort_marker(marker) is not commit
    (record,) = decode_batch(marker)
    # i16 version, i16 type; i16 version, i32 coordinator epoch
    assert record.key == bytes([0, 0, 0, commit])
    assert record.value == bytes.fromhex("000000000005")


@given(
    st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)
def test_a_marker_is_a_batch_like_any_other(
    commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator_epoch)
    written = encode_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=1000,
        coordinator_epoch=coordinator_epoch,
        base_offset=producer_epoch,
        leader_epoch=3,
    )
    assert len(written) == MARKER_SIZE
    assert written == encode_batch(
        [(key, value, (), 1000)],
        base_offset=producer_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=3,
    )


def test_a_marker_which_compaction_emptied_says_nothing() -> None:
    assert not is_abort_marker(encode_batch([], is_control=True, last_offset=0))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_record_without_a_type_is_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptDataError, match="no type"):
        is_abort_marker(encode_batch([(key, b"", (), 0)], is_control=True))
