"""What a Spark read needs of the place the records are kept: a cluster, or a log directory.

Rule: the readers plan with this interface alone, so a job behaves the same over the wire
(``cluster.py``) and on files (``files.py``), and planning is tested without either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from shoal.errors import ConfigError, ShoalError, counted
from shoal.fleet.tables import INTERNAL
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import OffsetRange
from shoal.spark.read_tally import ReadTally
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Stock(Protocol):
    """Where the records are."""

    def partitions(self) -> list[TopicPartition]:
        """The partitions the options ask for, as they are now, sorted."""
        ...

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        ...

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where what can be read now ends: the high watermark of each, or with read_committed the
        first record of its oldest open transaction."""
        ...

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the records that are there end. A range that ends before can be read, if not now:
        what is missing behind is lost."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; ``None`` where no record is that young."""
        ...

    def bytes_per_record(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """An estimate, for byte limits; partitions it cannot say anything of are left out."""
        ...

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The ranges, cut where another task can begin at no cost."""
        ...

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        fail_on_data_loss: bool,
        tally: ReadTally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records of the ranges, exactly, with these columns in this order.

        ``tally`` counts what is fetched for them.

        Raises:
            DataLossError: a range is not wholly there any more.
        """
        ...


def chosen(options: SourceOptions, present: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions there are that the options ask for, sorted.

    Raises:
        ConfigError: a topic or partition that is named does not exist.
    """
    found = set(present)
    if options.assign is not None:
        missing = sorted(set(options.assign) - found)
        if missing:
            raise ConfigError(f"option assign names {missing[0]}, which does not exist")
        return sorted(options.assign)
    if options.topics is not None:
        absent = sorted(set(options.topics) - {tp.topic for tp in found})
        if absent:
            raise ConfigError(f"topic {absent[0]!r} does not exist; create it first")
        return sorted(tp for tp in found if tp.topic in options.topics)
    # Internal topics are read by name, and meant by no pattern.
    pattern = re.compile(options.pattern or "")
    return sorted(tp for tp in found if tp.topic not in INTERNAL and pattern.fullmatch(tp.topic))


class GroupOffsets(Protocol):
    """A consumer group as Spark uses it: offsets are written, membership is not."""

    def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; partitions without a commit are left out."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit without being a member."""
        ...

    def live_members(self) -> int:
        """How many members the group has at the moment."""
        ...


class DataLossError(ShoalError):
    """Records a query has planned to read are gone."""

    def __init__(self, losses: Iterable[str]) -> None:
        text = "; ".join(losses)
        super().__init__(
            f"data was lost: {text}. Set option failOnDataLoss=false to go on without it"
        )


class LiveGroupError(ShoalError):
    """The group has members, and its offsets are theirs."""

    def __init__(self, group_id: str, members: int) -> None:
        super().__init__(
            f"group {group_id!r} has {counted(members, 'live member')}, and only members may "
            "commit: stop them, choose another groupId, or set option allowLiveGroup=true to run "
            "uncommitted until they are gone"
        )
