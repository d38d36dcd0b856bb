"""What every kind of group answers, whatever protocol its members speak.

Rule: shared code (``coordinator.py``, ``group_shard.py``, ``offset_requests.py``, ``admin.py``)
sees a group through this protocol only. The rules of classic groups are in the ``classic*``
modules, and ``group_kinds.py`` says which record makes a group of which kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import ClassVar, Protocol

from shoal.errors import ErrorCode
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.decision import Draft, TimerName
from shoal.group.coordinator.journal import KindRecord
from shoal.group.coordinator.states import GroupType
from shoal.group.coordinator.target_orders import TargetAnswer, TargetOrder
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from shoal.wire.apis.describe_groups import DescribeGroupsResponse


class Group(Protocol):
    """One group of one coordinator."""

    @property
    def group_id(self) -> str: ...

    type: ClassVar[GroupType]

    @property
    def state_name(self) -> str:
        """Kafka's spelling."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """``None``: the group only stores offsets, it never had members."""
        ...

    @property
    def generation(self) -> int:
        """Which one it is in; of the consumer protocol its epoch."""
        ...

    @property
    def members(self) -> Collection[str]:
        """Their ids."""
        ...

    @property
    def is_removable(self) -> bool:
        """No members, and none on their way: the group may go when its offsets are gone."""
        ...

    # --- What happens to it --------------------------------------------------------------------

    def replay(self, record: KindRecord, *, live: bool) -> None:
        """Take over what the journal says; ``live`` if it was decided just now."""
        ...

    def loaded(self, draft: Draft) -> None:
        """The journal was read to its end: from now on members are served."""
        ...

    def timer_due(self, draft: Draft, kind: str, member_id: str) -> None:
        """One of ``timers`` has come."""
        ...

    def member_lost(self, draft: Draft, member_id: str, cause: str) -> None:
        """Its connection broke and it was not heard again. A static member may come back."""
        ...

    def timers(self) -> Iterable[TimerName]:
        """The names of all that may be armed for it: they go with the group."""
        ...

    def append_failed(self, draft: Draft, error: ErrorCode) -> None:
        """Records about this group were not written. Their replies are refused elsewhere."""
        ...

    def abandon(self, draft: Draft, error: ErrorCode) -> None:
        """Answer whoever waits and stop every timer: the coordinator is done with the group."""
        ...

    def topics_changed(self, names: frozenset[str]) -> None:
        """These were created, have other partitions, or are gone."""
        ...

    def settings_changed(self) -> None:
        """Something was set on this group, or is not set any more."""

    def target_answered(self, draft: Draft, order: TargetOrder, answered: TargetAnswer) -> None:
        """An assignor is done with an order; the group may have become another kind meanwhile."""

    def bury(self) -> None:
        """The journal says that the group is gone, or its coordinator is."""
        ...

    # --- Questions -----------------------------------------------------------------------------

    def commit_error(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> ErrorCode:
        """Why this member may not commit now; ``NONE`` if it may. ``version`` of OffsetCommit."""
        ...

    def commit_check(
        self, image: ClusterImage, member_id: str, generation: int
    ) -> Callable[[str, int], ErrorCode] | None:
        """What each partition says to a commit that is not in error; ``None`` if none minds."""
        ...

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Why this member may not read offsets now; ``None`` and -1 are not a member."""
        ...

    def keep_alive(self, draft: Draft, member_id: str) -> None:
        """A commit shows that the member lives."""
        ...

    def delete_error(self) -> ErrorCode:
        """Why the group may not be deleted."""
        ...

    def offset_delete_error(self) -> ErrorCode:
        """Why no offset at all may be deleted."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Offsets of subscribed topics are neither deleted nor expired."""
        ...

    def retention_start(self, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset began to run; ``None`` while it may not expire."""
        ...

    def described(self) -> DescribeGroupsResponse.DescribedGroup | None:
        """As DescribeGroups shows it; ``None`` if that shows other kinds only."""
        ...

    def described_with_epochs(
        self, image: ClusterImage, assignors: Sequence[str]
    ) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        """As ConsumerGroupDescribe shows it; ``None`` if that shows other kinds only.

        ``assignors`` are those of the broker, its default first.
        """
        ...

    def tombstones(self) -> tuple[KindRecord, ...]:
        """The records that remove the group itself."""
        ...

    def durable(self) -> object:
        """What a coordinator rebuilt from the journal must know too."""
        ...
