"""Every group of a cluster at once: who is in it and what it has committed, in few requests.

A broker lists the groups it coordinates; the questions about them go to the same broker, hundreds
of groups in each. So a cluster with ten thousand groups answers in seconds, where asking for each
group by itself takes minutes.

Rule: one round, no retry. Whoever surveys does it again and again; what had no answer this time
has its reason in ``problem``, and keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from shoal.client.cluster import Cluster
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.client.group_admin import (
    GroupDescription,
    GroupListing,
    classic_description,
    consumer_description,
    list_request,
)
from shoal.client.metadata import Metadata
from shoal.client.offsets import EARLIEST, LATEST, Found, ask_offsets, committed_request
from shoal.errors import BrokerError, ErrorCode, ShoalError
from shoal.types import TopicPartition
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.registry import ApiKey

GROUPS_A_REQUEST: Final = 200
"""A broker answers other people's requests in between."""
_NOTHING: Final = r"(?!)"


@dataclass(frozen=True, slots=True)
class SurveyedGroup:
    """One group. ``description`` is ``None`` if it is of a kind that has no consumers as members,
    or if there was no answer: then ``problem`` says why."""

    group_id: str
    state: str
    protocol: str
    coordinator_id: int
    description: GroupDescription | None
    committed: Mapping[TopicPartition, int]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSurvey:
    """A cluster at one moment: its topics, where their partitions begin and end, its groups.

    A partition nobody leads has neither a beginning nor an end here.
    """

    metadata: Metadata
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    groups: Sequence[SurveyedGroup]


async def survey(
    cluster: Cluster, patterns: Collection[str], isolation_level: str, deadline: Deadline
) -> ClusterSurvey:
    """Look at every topic, and at the groups whose names match one of ``patterns``."""
    names = re.compile("|".join(map(fnmatch.translate, patterns)) or _NOTHING)
    metadata = await cluster.retrying(lambda: cluster.refresh(None, deadline), deadline)
    per_node = await asyncio.gather(
        *(_groups_of(cluster, node_id, names, deadline) for node_id in metadata.nodes)
    )
    groups = sorted((one for part in per_node for one in part), key=lambda one: one.group_id)
    # After the commits: an end that is older than a commit would make a group look ahead of it.
    starts = await _offsets(cluster, metadata, EARLIEST, "read_uncommitted", deadline)
    ends = await _offsets(cluster, metadata, LATEST, isolation_level, deadline)
    return ClusterSurvey(metadata, starts, ends, groups)


async def _offsets(
    cluster: Cluster, metadata: Metadata, at: int, isolation_level: str, deadline: Deadline
) -> dict[TopicPartition, int]:
    wanted = {
        TopicPartition(name, number): at
        for name, topic in metadata.topics.items()
        for number, one in enumerate(topic.partitions)
        if one.leader_id is not None
    }
    found: Found = {}
    with suppress(ShoalError):  # what has no answer is left out
        await ask_offsets(cluster, wanted, deadline, found.update, isolation_level)
    return {tp: one.offset for tp, one in found.items() if one is not None}


async def _groups_of(
    cluster: Cluster, node_id: int, names: re.Pattern[str], deadline: Deadline
) -> list[SurveyedGroup]:
    request = Versioned(ApiKey.LIST_GROUPS, lambda version: list_request(version, (), ()))
    answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
    cluster.check("Group", answer.error_code)
    listed = [
        GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
        for one in answer.groups
        if names.match(one.group_id)
    ]
    # One after the other: a survey is never the reason that a broker is busy.
    found: list[SurveyedGroup] = []
    # A partition is one object, however many groups have committed in it.
    known: dict[TopicPartition, TopicPartition] = {}
    for part in _parts(listed):
        found += await _look_at(cluster, node_id, part, known, deadline)
    return found


def _parts(listed: Sequence[GroupListing]) -> Iterator[Sequence[GroupListing]]:
    for first in range(0, len(listed), GROUPS_A_REQUEST):
        yield listed[first : first + GROUPS_A_REQUEST]


async def _look_at(
    cluster: Cluster,
    node_id: int,
    listed: Sequence[GroupListing],
    known: dict[TopicPartition, TopicPartition],
    deadline: Deadline,
) -> list[SurveyedGroup]:
    problems: dict[str, str] = {}
    described: dict[str, GroupDescription] = {}
    # Share groups and those of Streams have members of other kinds.
    classic = [one.group_id for one in listed if one.kind.lower() in ("", "classic")]
    new = [one.group_id for one in listed if one.kind.lower() == "consumer"]
    if classic:
        request = DescribeGroupsRequest(groups=classic)
        answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
        for group in answer.groups:
            if group.error_code:
                problems[group.group_id] = _problem(group.error_code)
            else:
                described[group.group_id] = classic_description(group, node_id)
    if new:
        consumer = ConsumerGroupDescribeRequest(group_ids=new, include_authorized_operations=False)
        told = await cluster.ask(consumer, node_id=node_id, deadline=deadline)
        for one in told.groups:
            if one.error_code:
                problems[one.group_id] = _problem(one.error_code)
            else:
                described[one.group_id] = consumer_description(one, node_id)
    committed = await _committed(cluster, node_id, [*classic, *new], problems, known, deadline)
    return [
        SurveyedGroup(
            one.group_id,
            described[one.group_id].state if one.group_id in described else one.state,
            one.kind.lower() or "classic",
            node_id,
            described.get(one.group_id),
            committed.get(one.group_id, {}),
            problems.get(one.group_id, ""),
        )
        for one in listed
    ]


async def _committed(
    cluster: Cluster,
    node_id: int,
    group_ids: Sequence[str],
    problems: dict[str, str],
    known: dict[TopicPartition, TopicPartition],
    deadline: Deadline,
) -> dict[str, dict[TopicPartition, int]]:
    """What each group has committed; a group with a problem gets it into ``problems``."""
    found: dict[str, dict[TopicPartition, int]] = {}
    if not group_ids:
        return found
    try:
        answers = [
            await cluster.ask(committed_request(group_ids), node_id=node_id, deadline=deadline)
        ]
    except BrokerError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        # Before OffsetFetch v8 a request asks about one group.
        answers = [
            await cluster.ask(committed_request([one]), node_id=node_id, deadline=deadline)
            for one in group_ids
        ]
    for answer, asked in zip(answers, group_ids, strict=False):
        # An old answer is about the one group that was asked for, and does not name it.
        groups: list[tuple[str, Any]] = [(one.group_id, one) for one in answer.groups] or [
            (asked, answer)
        ]
        for group_id, group in groups:
            if group.error_code:
                problems[group_id] = _problem(group.error_code)
                continue
            found[group_id] = {
                known.setdefault(tp, tp): one.committed_offset
                for topic in group.topics
                for one in topic.partitions
                if one.committed_offset >= 0 and not one.error_code
                for tp in (TopicPartition(topic.name, one.partition_index),)
            }
    return found


def _problem(code: int) -> str:
    return ErrorCode.of(code).name
