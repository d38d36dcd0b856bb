"""A producer's open batch: records on their way into one batch of bounded size."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.records.batch import HEADER_SIZE, NewRecord, encode_batch
from shoal.records.record import record_size
from shoal.types import Header


class BatchBuilder:
    """Records for one partition on their way into one batch of bounded size.

    The size is counted before compression: it is a bound that holds, not an estimate.
    """

    __slots__ = ("_records", "limit_bytes", "size_bytes")

    def __init__(self, *, limit_bytes: int = 16 * 1024) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = HEADER_SIZE
        self._records: list[NewRecord] = []

    def __len__(self) -> int:
        return len(self._records)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        timestamp_ms: int = -1,
    ) -> bool:
        """Take the record, or return False if it does not fit any more.

        The first record is always taken, however large: the limit is for batching; whether a
        record is too large for the topic is its owner's decision.
        """
        records = self._records
        delta = timestamp_ms - records[0][3] if records else 0
        size = self.size_bytes + record_size(len(records), delta, key, value, headers)
        if size > self.limit_bytes and records:
            return False
        self.size_bytes = size
        records.append((key, value, headers, timestamp_ms))
        return True

    def build(
        self,
        *,
        codec: int = 0,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytes:
        """The batch. The builder keeps its records: a retry may build again."""
        return encode_batch(
            self._records,
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
