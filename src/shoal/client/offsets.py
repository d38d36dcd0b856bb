"""Offsets asked of brokers: of a log (ListOffsets) and of a group (OffsetFetch, OffsetCommit).

Rule: plain functions on a ``Cluster``. Consumer, admin and range reader all use these; whoever is
a member of a group commits through ``commits.py`` instead, which knows as whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from shoal.client.cluster import RETRIED, Cluster
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.errors import BrokerError, ErrorCode, RetriableError
from shoal.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from shoal.wire.apis.registry import ApiKey

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
# Later versions name topics by id, which a deleted topic no longer has.
_LAST_WITH_NAMES: Final = 9
_FIRST_WITH_GROUPS: Final = 8
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


def isolation(level: str) -> int:
    """The number of an isolation level in requests."""
    return ISOLATION_LEVELS.index(level)


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Per partition the first offset at or after a time, or at an end (EARLIEST, LATEST).

    ``None``: there is no such record. Retries what may pass until ``deadline``. With
    ``read_committed`` the log ends at its last stable offset.

    Raises:
        RequestTimeoutError: something has no answer until then.
        BrokerError: a broker refused.
    """
    found: Found = {}

    async def attempt() -> None:
        left = {tp: at for tp, at in wanted.items() if tp not in found}
        if left:
            await ask_offsets(cluster, left, deadline, found.update, isolation_level)

    await cluster.retrying(attempt, deadline)
    return {tp: found[tp] for tp in wanted}


Found = dict[TopicPartition, OffsetAndTimestamp | None]


async def ask_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    deadline: Deadline,
    on_answers: Callable[[Found], None],
    isolation_level: str = "read_uncommitted",
) -> None:
    """One round of ``list_offsets``: what can be known now is handed to ``on_answers`` before the
    first failure is raised, so that a partition nobody leads keeps no other one waiting.
    """
    topics = {tp.topic for tp in wanted}
    failures: list[BaseException] = [*(await cluster.undescribed(topics, deadline)).values()]
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, timestamp in wanted.items():
        try:
            by_leader.setdefault(cluster.leader_id(tp), {})[tp] = timestamp
        except RetriableError as error:
            failures.append(error)
    outcomes = await asyncio.gather(
        *(
            _ask_leader(cluster, node, part, deadline, isolation_level)
            for node, part in by_leader.items()
        ),
        return_exceptions=True,
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            failures.append(outcome)
            continue
        answers, refusal = outcome
        failures += [] if refusal is None else [refusal]
        on_answers(answers)
    # What will not pass is told before what may.
    for failure in sorted(failures, key=lambda one: isinstance(one, RETRIED)):
        raise failure


async def _ask_leader(
    cluster: Cluster,
    node_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline: Deadline,
    isolation_level: str,
) -> tuple[Found, Exception | None]:
    """What one leader knows, and the first failure among its partitions."""
    topics: dict[str, list[ListOffsetsRequest.Partition]] = {}
    for tp, timestamp in wanted.items():
        known = cluster.metadata.leader_of(tp)
        epoch = -1 if known is None or known.leader_epoch is None else known.leader_epoch
        topics.setdefault(tp.topic, []).append(
            ListOffsetsRequest.Partition(
                partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        isolation_level=isolation(isolation_level),
        topics=[
            ListOffsetsRequest.Topic(name=name, partitions=parts) for name, parts in topics.items()
        ],
    )
    answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
    found: Found = {}
    failure: Exception | None = None
    for topic in answer.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            try:
                cluster.check("ListOffsets", one.error_code, str(tp))
            except Exception as error:  # noqa: BLE001 - kept: the others' answers count
                failure = failure or error
                continue
            found[tp] = _found(one)
    if failure is None and len(found) < len(wanted):
        failure = RetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "left out of the answer")
    return found, failure


def _found(one: Any) -> OffsetAndTimestamp | None:
    if one.offset < 0:
        return None
    epoch = one.leader_epoch if one.leader_epoch >= 0 else None
    return OffsetAndTimestamp(one.offset, one.timestamp, epoch)


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    deadline: Deadline,
    *,
    require_stable: bool = True,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """What a group has committed: of these partitions (``None`` for those without), or of all.

    With ``require_stable`` offsets that an open transaction is about to replace are waited for: who
    starts to read must not begin before them.
    """

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = Versioned(
            ApiKey.OFFSET_FETCH,
            lambda version: _fetch_request(
                version, group_id, partitions, require_stable=require_stable
            ),
            up_to=_LAST_WITH_NAMES,
        )
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        group = answer.groups[0] if answer.groups else answer
        cluster.check("OffsetFetch", group.error_code, f"group {group_id!r}", group_id=group_id)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in group.topics:
            for one in topic.partitions:
                tp = TopicPartition(topic.name, one.partition_index)
                cluster.check("OffsetFetch", one.error_code, str(tp), group_id=group_id)
                found[tp] = _committed(one)
        if partitions is None:
            return {tp: one for tp, one in found.items() if one is not None}
        return {tp: found.get(tp) for tp in partitions}

    if partitions is not None and not partitions:
        return {}
    return await cluster.retrying(attempt, deadline)


def committed_request(group_ids: Sequence[str]) -> Versioned[OffsetFetchResponse]:
    """Everything that groups have committed; from version 8 on of several at once (KIP-709)."""

    def build(version: int) -> OffsetFetchRequest:
        if len(group_ids) > 1 and version < _FIRST_WITH_GROUPS:
            reason = "a broker this old is asked about one group at a time"
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, reason)
        if version < _FIRST_WITH_GROUPS:
            return _fetch_request(version, group_ids[0], None, require_stable=False)
        groups = [OffsetFetchRequest.Group(group_id=one, topics=None) for one in group_ids]
        return OffsetFetchRequest(groups=groups, require_stable=False)

    return Versioned(ApiKey.OFFSET_FETCH, build, up_to=_LAST_WITH_NAMES)


async def pending_commits(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], deadline: Deadline
) -> list[TopicPartition]:
    """Which of these have an offset that an open transaction is about to commit."""

    async def attempt() -> list[TopicPartition]:
        request = Versioned(
            ApiKey.OFFSET_FETCH,
            lambda version: _fetch_request(version, group_id, partitions, require_stable=True),
            up_to=_LAST_WITH_NAMES,
        )
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        group = answer.groups[0] if answer.groups else answer
        cluster.check("OffsetFetch", group.error_code, f"group {group_id!r}", group_id=group_id)
        return sorted(
            TopicPartition(topic.name, one.partition_index)
            for topic in group.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        )

    return await cluster.retrying(attempt, deadline) if partitions else []


def _committed(one: Any) -> OffsetAndMetadata | None:
    if one.committed_offset < 0:
        return None
    epoch = one.committed_leader_epoch
    return OffsetAndMetadata(
        one.committed_offset, one.metadata or "", epoch if epoch >= 0 else None
    )


def _fetch_request(
    version: int,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
    by_topic = _numbers(partitions or ()).items()
    if version >= _FIRST_WITH_GROUPS:
        topics = [
            OffsetFetchRequest.Topics(name=name, partition_indexes=numbers)
            for name, numbers in by_topic
        ]
        group = OffsetFetchRequest.Group(
            group_id=group_id, topics=None if partitions is None else topics
        )
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)
    old = None
    if partitions is not None:
        old = [
            OffsetFetchRequest.Topic(name=name, partition_indexes=numbers)
            for name, numbers in by_topic
        ]
    request = OffsetFetchRequest(group_id=group_id, topics=old)
    if version >= 7:
        request.require_stable = require_stable
    return request


def _numbers(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def commit_request(
    identity: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Versioned[OffsetCommitResponse]:
    """An OffsetCommit in the name of ``identity``."""
    topics: dict[str, list[OffsetCommitRequest.Partition]] = {}
    for tp, one in offsets.items():
        topics.setdefault(tp.topic, []).append(
            OffsetCommitRequest.Partition(
                partition_index=tp.partition,
                committed_offset=one.offset,
                committed_leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )

    def build(version: int) -> OffsetCommitRequest:
        request = OffsetCommitRequest(
            group_id=identity.group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            topics=[
                OffsetCommitRequest.Topic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        if version >= 7:
            # Without a member id there is no member to be static (KAFKA-14201).
            request.group_instance_id = identity.group_instance_id if identity.member_id else None
        return request

    return Versioned(ApiKey.OFFSET_COMMIT, build, up_to=_LAST_WITH_NAMES)


def first_error(answer: Any) -> tuple[ErrorCode, str]:
    """The first error among the partitions of an OffsetCommit answer, and of which one."""
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code:
                return ErrorCode.of(one.error_code), f"{topic.name}-{one.partition_index}"
    return ErrorCode.NONE, ""


async def commit_as_nobody(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: Deadline,
) -> None:
    """Commit for a group without being its member; refused while it has members.

    Raises:
        BrokerError: UNKNOWN_MEMBER_ID if the group is in use, or whatever the broker said.
        RequestTimeoutError: no success until ``deadline``.
    """
    request = commit_request(ConsumerGroupMetadata(group_id), offsets)

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        code, detail = first_error(answer)
        cluster.check("OffsetCommit", code, detail, group_id=group_id)

    if offsets:
        await cluster.retrying(attempt, deadline)
