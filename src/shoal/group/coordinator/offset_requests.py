"""OffsetCommit, TxnOffsetCommit, OffsetDelete and expiry, for groups of any type.

A commit is accepted by generation, not by connection: a commit that was sent before a reconnect
and arrives after a later one of the same member and generation moves the position back. Kafka
has the same property; what is read twice then was read before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from shoal.errors import ErrorCode
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.journal import OffsetRecord, OffsetTombstone, fits
from shoal.group.coordinator.offset_store import Committed, OffsetStore
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from shoal.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

GROUP_ID_NOT_FOUND_SINCE = 9
"""Of OffsetCommit. Older clients know ILLEGAL_GENERATION only."""

RETENTION_UNTIL = 4
"""Later versions of OffsetCommit leave the retention to the broker (KIP-211)."""

LONG_MAX = 2**63 - 1


# --- Commit ------------------------------------------------------------------------------------


def commit(draft: Draft, group: Group | None, request: OffsetCommitRequest, caller: Caller) -> None:
    error = ErrorCode.NONE
    if group is not None:
        error = group.commit_error(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=False,
            version=caller.version,
        )
    elif request.generation_id_or_member_epoch >= 0:
        error = ErrorCode.ILLEGAL_GENERATION
        if caller.version >= GROUP_ID_NOT_FOUND_SINCE:
            error = ErrorCode.GROUP_ID_NOT_FOUND
    if group is not None and error is ErrorCode.NONE:
        group.keep_alive(draft, request.member_id)
        epoch = request.generation_id_or_member_epoch
        error = _partition_error(draft, group, request.member_id, epoch, request.topics)
    expire_ms = _expire_ms(draft, request, caller.version)
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            code = error or _metadata_error(draft, each.committed_metadata)
            if code is ErrorCode.NONE:
                record = _record(draft, request.group_id, topic.name, each, expire_ms=expire_ms)
                draft.write(record)
            answers.append(
                OffsetCommitResponse.Partition(
                    partition_index=each.partition_index, error_code=code
                )
            )
        if answers:
            topics.append(
                OffsetCommitResponse.Topic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )
    draft.reply(caller.ticket, OffsetCommitResponse(topics=topics))


def commit_in_transaction(
    draft: Draft, group: Group | None, request: TxnOffsetCommitRequest, caller: Caller
) -> None:
    """Staged under the producer's id until its marker."""
    error = ErrorCode.NONE
    if group is not None:
        error = group.commit_error(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            transactional=True,
            version=caller.version,
        )
    elif request.generation_id >= 0:
        error = ErrorCode.ILLEGAL_GENERATION
    if group is not None and error is ErrorCode.NONE:
        epoch = request.generation_id
        error = _partition_error(draft, group, request.member_id, epoch, request.topics)
    if error is ErrorCode.STALE_MEMBER_EPOCH:
        error = ErrorCode.ILLEGAL_GENERATION  # Producers know no other word for it.
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            code = error or _metadata_error(draft, each.committed_metadata)
            if code is ErrorCode.NONE:
                producer = (request.producer_id, request.producer_epoch)
                record = _record(draft, request.group_id, topic.name, each, producer=producer)
                draft.write(record)
            answers.append(
                TxnOffsetCommitResponse.Partition(
                    partition_index=each.partition_index, error_code=code
                )
            )
        topics.append(TxnOffsetCommitResponse.Topic(name=topic.name, partitions=answers))
    draft.reply(caller.ticket, TxnOffsetCommitResponse(topics=topics))


def _partition_error(
    draft: Draft,
    group: Group,
    member_id: str,
    epoch: int,
    topics: Sequence[OffsetCommitRequest.Topic] | Sequence[TxnOffsetCommitRequest.Topic],
) -> ErrorCode:
    """What any of the partitions says to the epoch. One is enough to refuse all, as in Kafka."""
    check = group.commit_check(draft.image, member_id, epoch)
    if check is None:
        return ErrorCode.NONE
    codes = (
        check(topic.name, each.partition_index) for topic in topics for each in topic.partitions
    )
    return next(filter(None, codes), ErrorCode.NONE)


def _expire_ms(draft: Draft, request: OffsetCommitRequest, version: int) -> int | None:
    if version > RETENTION_UNTIL or request.retention_time_ms < 0:
        return None
    return min(draft.now_ms + request.retention_time_ms, LONG_MAX)


def _record(
    draft: Draft,
    group_id: str,
    topic: str,
    each: OffsetCommitRequest.Partition | TxnOffsetCommitRequest.Partition,
    *,
    expire_ms: int | None = None,
    producer: tuple[int, int] | tuple[None, None] = (None, None),
) -> OffsetRecord:
    epoch = each.committed_leader_epoch
    known = draft.image.topic(topic)
    return OffsetRecord(
        group_id=group_id,
        topic=topic,
        partition=each.partition_index,
        offset=each.committed_offset,
        leader_epoch=None if epoch < 0 else epoch,
        metadata=each.committed_metadata or "",
        commit_timestamp_ms=draft.now_ms,
        expire_timestamp_ms=expire_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        # The one version with an expiry has no place for it.
        topic_id=known.topic_id if known is not None and expire_ms is None else None,
    )


def _metadata_error(draft: Draft, metadata: str | None) -> ErrorCode:
    """The limit counts Java's chars: UTF-16 code units."""
    if metadata is None:
        return ErrorCode.NONE
    limit = draft.config.offset_metadata_max_bytes
    # One character is one or two of them; most texts need no closer look.
    within = 2 * len(metadata) <= limit or len(metadata.encode("utf-16-le")) // 2 <= limit
    return ErrorCode.NONE if within and fits(metadata) else ErrorCode.OFFSET_METADATA_TOO_LARGE


# --- Delete ------------------------------------------------------------------------------------


def delete(
    draft: Draft,
    store: OffsetStore,
    group: Group | None,
    request: OffsetDeleteRequest,
    caller: Caller,
) -> None:
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
    if group is None or error is not ErrorCode.NONE:
        draft.reply(caller.ticket, OffsetDeleteResponse(error_code=error))
        return
    topics = []
    for topic in request.topics:
        code = ErrorCode.NONE
        if group.is_subscribed(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        answers = []
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if code is ErrorCode.NONE and _holds(store, request.group_id, tp):
                draft.write(OffsetTombstone(request.group_id, *tp))
            answers.append(
                OffsetDeleteResponse.Partition(
                    partition_index=each.partition_index, error_code=code
                )
            )
        topics.append(OffsetDeleteResponse.Topic(name=topic.name, partitions=answers))
    draft.reply(caller.ticket, OffsetDeleteResponse(topics=topics))


def _holds(store: OffsetStore, group_id: str, tp: TopicPartition) -> bool:
    return store.get(group_id, tp) is not None or store.is_unstable(group_id, tp)


def tombstones(
    store: OffsetStore,
    group_id: str,
    wanted: Callable[[TopicPartition], bool] = lambda _: True,
    limit: int | None = None,
) -> list[OffsetTombstone]:
    """For every position of a group, stored or staged, one; so many at most."""
    gone = (OffsetTombstone(group_id, *tp) for tp in store.partitions_of(group_id) if wanted(tp))
    return list(islice(gone, limit))


# --- Expiry ------------------------------------------------------------------------------------


def expire(draft: Draft, store: OffsetStore, group: Group, now_ms: int) -> None:
    """Forget positions whose retention is over, and the group if nothing of it is left."""
    expired = [
        OffsetTombstone(group.group_id, topic, partition)
        for topic, partitions in store.by_topic(group.group_id).items()
        if not group.is_subscribed(topic)
        for partition, position in partitions.items()
        if _is_expired(draft, group, position, now_ms)
        # An open transaction may be about to renew it.
        and not store.is_unstable(group.group_id, TopicPartition(topic, partition))
    ]
    draft.write_all(expired)
    if expired:
        cause = f"{len(expired)} offsets are older than the retention"
        draft.tell(GroupEvent(EventKind.OFFSETS_EXPIRED, group.group_id, -1, cause))
    left = sum(map(len, store.by_topic(group.group_id).values())) - len(expired)
    if left or not group.is_removable or store.has_open_transaction(group.group_id):
        return
    draft.write_all(group.tombstones())
    cause = "it has no members and no offsets"
    draft.tell(GroupEvent(EventKind.GROUP_REMOVED, group.group_id, -1, cause))


def _is_expired(draft: Draft, group: Group, position: Committed, now_ms: int) -> bool:
    start_ms = group.retention_start(position.commit_timestamp_ms)
    if start_ms is None:
        return False
    if position.expire_timestamp_ms is not None:
        # The committer asked for it (OffsetCommit v2 to v4).
        return now_ms >= position.expire_timestamp_ms
    return now_ms - start_ms >= draft.config.offsets_retention_ms
