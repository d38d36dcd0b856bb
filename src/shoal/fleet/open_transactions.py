"""Open transactions that hold a group up: whose they are, and since when.

A reader of committed records gets no further than the first offset of the oldest transaction that
is open in a partition, however much was written behind it. From outside that looks like a member
that is stuck. And offsets that a transaction is about to commit keep every new member of their
group waiting for its end: it could start before them.

Rule: ``look_for_transactions`` asks, ``diagnose_transactions`` judges what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shoal.errors import BrokerError, counted
from shoal.fleet.diagnosis import STUCK_S, Finding
from shoal.fleet.tables import TOPIC
from shoal.machine.internal_topic import partition_for
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin
    from shoal.client.transaction_admin import PartitionProducer, TransactionDescription
    from shoal.fleet.snapshots import Snapshot

_CONSUMED: Final = "readers of committed records wait for it"


@dataclass(frozen=True)
class BlockingTransaction:
    """What is open at the last stable offset of a partition, and where the group stands.

    ``transactional_id`` is ``None`` if no coordinator knows it: then nobody will end it.
    """

    topic_partition: TopicPartition
    start_offset: int
    committed: int
    behind: int
    producer_id: int
    transactional_id: str | None
    open_s: float

    @property
    def holds(self) -> bool:
        """Whether the group stands right before it: everything else is read."""
        return self.committed == self.start_offset


def look_for_transactions(admin: Admin, last: Snapshot, now_ms: int) -> list[BlockingTransaction]:
    """Transactions at which partitions end that the group has not read to their ends."""
    committed = {tp: last.ends[tp] - lag for tp, lag in last.lags.items() if lag}
    if not committed:
        return []
    try:
        stable = admin.list_offsets(
            dict.fromkeys(committed, "latest"), isolation_level="read_committed"
        )
        held = [tp for tp, one in stable.items() if one is not None and one.offset < last.ends[tp]]
        producers = admin.describe_producers(held) if held else {}
        ids = {one.producer_id for ones in producers.values() for one in ones}
        listed = admin.list_transactions(producer_ids=ids) if ids else []
        described = admin.describe_transactions(*(one.transactional_id for one in listed))
    except BrokerError:
        return []  # too old to be asked, or not by us: nothing is wrong that we can see
    by_producer = {one.producer_id: one for one in described.values()}
    found = []
    for tp in held:
        one = min(
            (p for p in producers[tp] if p.start_offset is not None),
            key=lambda p: p.start_offset or 0,
            default=None,
        )
        if one is not None and one.start_offset is not None and committed[tp] <= one.start_offset:
            known = by_producer.get(one.producer_id)
            if known is not None and tp not in known.partitions:
                known = None
            found.append(
                BlockingTransaction(
                    tp,
                    one.start_offset,
                    committed[tp],
                    last.ends[tp] - one.start_offset,
                    one.producer_id,
                    None if known is None else known.transactional_id,
                    _open_s(one, known, now_ms),
                )
            )
    return found


def _open_s(
    producer: PartitionProducer, known: TransactionDescription | None, now_ms: int
) -> float:
    """Since when it is open; of one nobody knows, since when nothing was written in it."""
    since = producer.last_timestamp_ms if known is None else known.start_ms
    return max(0, now_ms - (now_ms if since is None else since)) / 1000


def diagnose_transactions(found: Sequence[BlockingTransaction]) -> list[Finding]:
    """One finding for each transaction."""
    by_owner: dict[tuple[str | None, int], list[BlockingTransaction]] = {}
    for one in found:
        by_owner.setdefault((one.transactional_id, one.producer_id), []).append(one)
    return [_finding(ones) for ones in by_owner.values()]


def _finding(ones: Sequence[BlockingTransaction]) -> Finding:
    first = max(ones, key=lambda one: one.behind)
    tp, at = first.topic_partition, first.start_offset
    waits = any(one.holds for one in ones)
    where = f"{tp} ends at offset {at} for readers of committed records"
    if len(ones) > 1:
        where += f" (and {len(ones) - 1} more partitions elsewhere)"
    if first.transactional_id is None:
        return Finding(
            "problem",
            f"{where}: a transaction of producer {first.producer_id} hangs there, nothing was "
            f"written in it for {first.open_s:.0f} s and no coordinator knows it",
            f"nobody will end it: shoal transaction abort --partition {tp} --start-offset {at}",
        )
    return Finding(
        "problem" if waits and first.open_s >= STUCK_S else "note",
        f"{where}: the transaction of {first.transactional_id!r} (producer {first.producer_id}) is "
        f"open for {first.open_s:.0f} s, with {first.behind:,} offsets behind its beginning",
        f"{_CONSUMED}; end it in its producer, or: shoal transaction abort "
        f"{first.transactional_id}",
    )


@dataclass(frozen=True)
class PendingCommits:
    """Offsets of a group that a transaction is about to commit, and who may be doing it.

    ``owners`` are the transactions that are open where the group's offsets are kept; another
    group's may be among them.
    """

    partitions: tuple[TopicPartition, ...]
    owners: tuple[str, ...]
    open_s: float


def look_for_pending_commits(
    admin: Admin, group_id: str, last: Snapshot, now_ms: int
) -> PendingCommits | None:
    """What keeps new members of the group from starting, if something does."""
    try:
        pending = admin.pending_commits(group_id, list(last.ends))
        if not pending:
            return None
        count = len(admin.describe_topics(TOPIC)[TOPIC].partitions)
        tp = TopicPartition(TOPIC, partition_for(group_id, count))
        producers = admin.describe_producers([tp])[tp]
        ids = {one.producer_id for one in producers if one.start_offset is not None}
        listed = admin.list_transactions(producer_ids=ids) if ids else []
        described = admin.describe_transactions(*(one.transactional_id for one in listed))
    except BrokerError:
        return None  # as above
    known = [one for one in described.values() if tp in one.partitions]
    since = min((one.start_ms for one in known if one.start_ms is not None), default=now_ms)
    names = sorted(one.transactional_id for one in known)
    return PendingCommits(tuple(pending), tuple(names), max(0, now_ms - since) / 1000)


def diagnose_pending_commits(found: PendingCommits | None) -> list[Finding]:
    """One finding at most."""
    if found is None:
        return []
    of = f"{counted(len(found.partitions), 'partition')}, the first is {found.partitions[0]}"
    owners = " or ".join(map(repr, found.owners)) or "a producer that no coordinator names"
    command = (
        f"shoal transaction abort {found.owners[0]}"
        if found.owners
        else "shoal transaction find-hanging"
    )
    return [
        Finding(
            "problem" if found.open_s >= STUCK_S else "note",
            f"offsets of the group are about to be committed in a transaction of {owners}, open "
            f"for {found.open_s:.0f} s ({of})",
            "members that start or take over a partition wait for its end; end it in its "
            f"producer, or: {command}",
        )
    ]
