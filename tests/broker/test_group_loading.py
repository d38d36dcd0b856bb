"""What the shell of the coordinators makes of the bytes of ``__consumer_offsets``."""

from __future__ import annotations

import pytest

from shoal.broker.groups import _feed
from shoal.group.journal import JournalRecord, OffsetRecord, TransactionMarker, encode
from shoal.group.loading import Loader
from shoal.records.batch import encode_batch
from shoal.records.markers import encode_marker


def commit(offset: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, offset, None, "", 5)


def batch(record: JournalRecord, base_offset: int, **more: object) -> bytes:
    return encode_batch([(*encode(record), (), 5)], base_offset=base_offset, **more)  # type: ignore[arg-type]  # each test passes what it needs


def replayed(data: bytes, end: int) -> list[tuple[JournalRecord, int]]:
    found: list[tuple[JournalRecord, int]] = []
    loader = Loader(lambda record, offset: found.append((record, offset)))
    assert _feed(loader, data) == end
    loader.flush()
    return found


def test_plain_commits_are_replayed():
    assert replayed(batch(commit(1), 4) + batch(commit(2), 5), 6) == [(commit(2), 5)]


@pytest.mark.parametrize("commits", [True, False])
def test_commits_of_a_transaction_wait_for_its_marker(commits):
    staged = batch(commit(2), 5, producer_id=7, producer_epoch=1, is_transactional=True)
    marker = encode_marker(
        commit=commits, producer_id=7, producer_epoch=1, timestamp_ms=5, base_offset=6
    )
    assert replayed(batch(commit(1), 4) + staged + marker, 7) == [
        (commit(1), 4),
        (commit(2)._replace(producer_id=7, producer_epoch=1), 5),
        (TransactionMarker(7, 1, commits), 6),
    ]


def test_control_batches_that_end_no_transaction_are_skipped():
    other = encode_batch([(b"\0\0\0\5", b"", (), 5)], base_offset=4, is_control=True)
    assert replayed(other, 5) == []
