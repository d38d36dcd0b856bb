"""What the journal of one partition says: its groups and their offsets.

Rule: durable state changes in ``replay`` and nowhere else. Loading after a crash and running live
are therefore the same code, and a shard rebuilt from the records equals the one that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.group.classic import ClassicGroup
from shoal.group.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionMarker,
)
from shoal.group.model import Group
from shoal.group.offsets import OffsetStore
from shoal.group.states import may_move


class Shard:
    """Groups and offsets of one partition of ``__consumer_offsets``."""

    __slots__ = ("forming", "groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.forming: ClassicGroup | None = None
        """Volatile: has its first member, but exists only when its first record is replayed."""

    def replay(self, record: JournalRecord, offset: int, *, live: bool) -> None:
        """Apply one record that stands in the journal at ``offset``."""
        match record:
            case GroupRecord():
                self._replay_group(record, live=live)
            case OffsetRecord():
                if record.group_id not in self.groups:
                    # A "simple" group: offsets without members. Its group record, if there is
                    # one, may also have been compacted to a later place (KAFKA-19862).
                    self.groups[record.group_id] = ClassicGroup(record.group_id)
                self.offsets.replay(record, offset)
            case OffsetTombstone():
                self.offsets.forget(record)
            case GroupTombstone():
                group = self.groups.pop(record.group_id, None)
                if isinstance(group, ClassicGroup):
                    group.bury()
            case _:
                assert isinstance(record, TransactionMarker)
                self.offsets.end_transaction(record.producer_id, commit=record.commit)

    def _replay_group(self, record: GroupRecord, *, live: bool) -> None:
        group = self.classic(record.group_id)
        if group is None:
            group, self.forming = self.forming or ClassicGroup(record.group_id), None
            assert group.group_id == record.group_id
            self.groups[record.group_id] = group
        before = group.state
        group.adopt(record)
        # A journal tells only of the states that were written down; live, every move counts.
        assert may_move(before, group.state) or not live

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def classic_groups(self) -> Iterator[ClassicGroup]:
        return (each for each in self.groups.values() if isinstance(each, ClassicGroup))

    def durable(self) -> object:
        """Equal for shards that were built from the same records. Compare it, do not keep it."""
        groups = {group_id: group.durable() for group_id, group in self.groups.items()}
        return (groups, self.offsets.durable())
