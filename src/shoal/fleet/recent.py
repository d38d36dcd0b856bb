"""What happened to one group lately, from the tail of its partition of ``__consumer_offsets``.

Looking at a group shows what it is; only its coordinator's records show what it went through.
Compaction removes old ones and access may be refused: nothing here is needed for a diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.client.ranges import RangeReader
from shoal.errors import ShoalError
from shoal.fleet.tables import TOPIC, names, schema
from shoal.machine.internal_topic import partition_for
from shoal.records.arrow import need_arrow
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.admin import Admin

RECORDS_MAX: Final = 200_000
"""How far back a diagnosis reads: a second or two, however long the topic is."""


class GroupTail:
    """A source of records (``shoal.fleet.sources``): the end of one group's partition."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any], group_id: str) -> None:
        self._admin = admin
        self._settings = settings
        self._group_id = group_id

    def records(self) -> Iterator[pa.RecordBatch]:
        if TOPIC not in self._admin.list_topics():
            return
        count = len(self._admin.describe_topics(TOPIC)[TOPIC].partitions)
        tp = TopicPartition(TOPIC, partition_for(self._group_id, count))
        first, last = (self._admin.list_offsets({tp: at})[tp] for at in ("earliest", "latest"))
        assert first is not None
        assert last is not None
        start = max(first.offset, last.offset - RECORDS_MAX)
        if start < last.offset:
            with RangeReader(**self._settings) as reader:
                yield from reader.read({tp: (start, last.offset)}, columns=names("records"))

    def ends(self) -> pa.Table:
        return _no_samples()

    def written_at(self, places: Iterable[tuple[TopicPartition, int]]) -> pa.Table:  # noqa: ARG002 - the interface names it
        return _no_samples()


def _no_samples() -> pa.Table:
    return schema("ends").empty_table()


def recent_rebalances(
    admin: Admin, settings: Mapping[str, Any], group_id: str, since_us: int
) -> Sequence[dict[str, Any]] | None:
    """Rebalances since a time, the oldest first; None where they cannot be known."""
    try:
        need_arrow()
        from shoal.fleet.report import make_report

        source = GroupTail(admin, settings, group_id)
        found = make_report(source, wanted=lambda name: name == group_id, since_us=since_us)
    except ShoalError:
        return None
    return found.rebalances
