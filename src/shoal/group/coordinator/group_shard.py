"""What the journal of one partition says: its groups and their offsets.

Rule: durable state changes in ``replay`` and nowhere else. Loading after a crash and running live
are therefore the same code, and a shard rebuilt from the records equals the one that wrote them.
"""

from __future__ import annotations

from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.group_kinds import (
    ends_group,
    group_for,
    kind_of,
    says_nothing,
    simple_group,
)
from shoal.group.coordinator.journal import (
    JournalRecord,
    KindRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionMarker,
)
from shoal.group.coordinator.offset_store import OffsetStore


class GroupShard:
    """Groups and offsets of one partition of ``__consumer_offsets``."""

    __slots__ = ("forming", "groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.forming: Group | None = None
        """Volatile: has its first member, but exists only when its first record is replayed."""

    def replay(self, record: JournalRecord, offset: int, *, live: bool) -> None:
        """Apply one record that stands in the journal at ``offset``."""
        match record:
            case OffsetRecord():
                if record.group_id not in self.groups:
                    # A "simple" group: offsets without members. Its group record, if there is
                    # one, may also have been compacted to a later place (KAFKA-19862).
                    self.groups[record.group_id] = simple_group(record.group_id)
                self.offsets.replay(record, offset)
            case OffsetTombstone():
                self.offsets.forget(record)
            case TransactionMarker():
                self.offsets.end_transaction(record.producer_id, commit=record.commit)
            case _:
                self._replay_group(record, live=live)

    def _replay_group(self, record: KindRecord, *, live: bool) -> None:
        group = self.groups.get(record.group_id)
        if group is not None and group.type is not kind_of(record):
            if says_nothing(record):
                return
            # Offsets were read first, and made a simple group of it; or the end of the group that
            # was there before has been compacted away.
            self._end(group)
            group = None
        if group is None:
            if says_nothing(record):
                return
            forming, self.forming = self.forming, None
            group = forming or group_for(record)
            # What a group of another kind leaves behind may begin in any state.
            live = live and forming is not None
            assert group.group_id == record.group_id
            self.groups[record.group_id] = group
        if ends_group(record):
            self._end(group)
        else:
            group.replay(record, live=live)

    def _end(self, group: Group) -> None:
        del self.groups[group.group_id]
        group.bury()

    def durable(self) -> object:
        """Equal for shards that were built from the same records. Compare it, do not keep it."""
        groups = {group_id: group.durable() for group_id, group in self.groups.items()}
        return (groups, self.offsets.durable())
