"""Administration of topics, settings, records, sizes and users: one coroutine per question.

Rule: plain functions on a ``Cluster``, each with a deadline. What may pass is retried; the first
error that is final is raised and names what it is about.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from shoal.client.cluster import Cluster
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.client.metadata import TopicMetadata
from shoal.errors import BrokerError, ErrorCode, RetriableError
from shoal.types import Node, PartitionInfo, TopicPartition
from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.list_config_resources import ListConfigResourcesRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import ZERO_UUID

T = TypeVar("T")

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client metrics": 16, "group": 32}
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_SOURCES: Final = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    7: "client metrics",
    8: "group",
}
_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. ``source`` says who set it; ``value`` is ``None`` for secrets."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...] = field(default=())


async def describe_cluster(cluster: Cluster, deadline: Deadline) -> ClusterDescription:
    metadata = await cluster.retrying(lambda: cluster.refresh((), deadline), deadline)
    controller = metadata.controller_id
    return ClusterDescription(
        metadata.cluster_id,
        None if controller is None else metadata.nodes.get(controller),
        tuple(sorted(metadata.nodes.values(), key=lambda node: node.id)),
    )


async def list_topics(cluster: Cluster, deadline: Deadline) -> list[str]:
    metadata = await cluster.retrying(lambda: cluster.refresh(None, deadline), deadline)
    return sorted(metadata.topics)


async def describe_topics(
    cluster: Cluster, names: Collection[str], deadline: Deadline
) -> dict[str, TopicDescription]:
    async def attempt() -> dict[str, TopicDescription]:
        metadata = await cluster.refresh(names, deadline)
        found = {}
        for name in names:
            code = metadata.errors.get(name)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or name not in metadata.topics:
                # To wait for a topic is for those who write to it; here it is the answer.
                cluster.check("Admin", code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, repr(name))
            topic = metadata.topics[name]
            found[name] = TopicDescription(
                name, topic.topic_id, topic.is_internal, tuple(metadata.partition_infos(name))
            )
        return found

    return await _final_if_unknown(cluster, attempt, deadline)


async def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    deadline: Deadline,
) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=-1 if partitions is None else partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                assignments=[],
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=str(value))
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=_timeout_ms(deadline),
    )

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for one in answer.topics:
            cluster.check("Admin", one.error_code, _detail(one, one.name))

    await cluster.retrying(attempt, deadline)
    await _until_known(cluster, name, deadline)


async def _until_known(
    cluster: Cluster, name: str, deadline: Deadline, partitions: int = 0
) -> None:
    """A topic is there when brokers say so with a leader for each partition."""

    async def attempt() -> None:
        metadata = await cluster.refresh([name], deadline)
        topic = metadata.topics.get(name)
        known = () if topic is None else topic.partitions
        if len(known) < max(1, partitions) or any(one.leader_id is None for one in known):
            raise RetriableError(ErrorCode.LEADER_NOT_AVAILABLE, name)

    await cluster.retrying(attempt, deadline)


async def _until_gone(
    cluster: Cluster, topics: Mapping[str, TopicMetadata], deadline: Deadline
) -> None:
    """The controller has deleted them; brokers hear of that a little later.

    Someone who writes to one may have made another of its name by then.
    """

    async def attempt() -> None:
        metadata = await cluster.refresh([*topics], deadline)
        for name, old in topics.items():
            if name in metadata.topics and metadata.topics[name].topic_id == old.topic_id:
                raise RetriableError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name!r} is still there")

    await cluster.retrying(attempt, deadline)


async def delete_topics(cluster: Cluster, names: Collection[str], deadline: Deadline) -> None:
    def build(version: int) -> DeleteTopicsRequest:
        if version >= 6:
            states = [
                DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
                for name in names
            ]
            return DeleteTopicsRequest(topics=states, timeout_ms=_timeout_ms(deadline))
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=_timeout_ms(deadline))

    async def attempt() -> None:
        request = Versioned(ApiKey.DELETE_TOPICS, build)
        answer = await ask_controller(cluster, request, deadline)
        for one in answer.responses:
            cluster.check("Admin", one.error_code, _detail(one, one.name))

    known = await cluster.retrying(lambda: cluster.refresh(names, deadline), deadline)
    await _final_if_unknown(cluster, attempt, deadline)
    topics = {name: known.topics[name] for name in names if name in known.topics}
    await _until_gone(cluster, topics, deadline)


async def create_partitions(
    cluster: Cluster, totals: Mapping[str, int], deadline: Deadline
) -> None:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.Topic(name=name, count=total, assignments=None)
            for name, total in totals.items()
        ],
        timeout_ms=_timeout_ms(deadline),
        validate_only=False,
    )

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for one in answer.results:
            cluster.check("Admin", one.error_code, _detail(one, one.name))

    await _final_if_unknown(cluster, attempt, deadline)
    for name, total in totals.items():
        await _until_known(cluster, name, deadline, total)


# --- settings ---


async def describe_configs(
    cluster: Cluster, kind: str, name: str, deadline: Deadline
) -> dict[str, ConfigEntry]:
    resource = DescribeConfigsRequest.Resource(
        resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=None
    )

    async def attempt() -> dict[str, ConfigEntry]:
        answer = await cluster.ask(
            DescribeConfigsRequest(resources=[resource]),
            node_id=_broker(kind, name),
            deadline=deadline,
        )
        (result,) = answer.results
        cluster.check("Admin", result.error_code, _detail(result, f"{kind} {name!r}"))
        return {one.name: _entry(one) for one in result.configs}

    await _know_nodes(cluster, deadline)
    return await _final_if_unknown(cluster, attempt, deadline)


def _entry(one: Any) -> ConfigEntry:
    source = _SOURCES.get(one.config_source, "unknown")
    return ConfigEntry(
        one.name, one.value, source, source == "default", one.read_only, one.is_sensitive
    )


async def alter_configs(
    cluster: Cluster,
    kind: str,
    name: str,
    changes: Mapping[str, str | None],
    deadline: Deadline,
) -> None:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key,
            config_operation=_DELETE if value is None else _SET,
            value=None if value is None else str(value),
        )
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    async def attempt() -> None:
        answer = await cluster.ask(request, node_id=_broker(kind, name), deadline=deadline)
        for one in answer.responses:
            cluster.check("Admin", one.error_code, _detail(one, f"{kind} {name!r}"))

    await _know_nodes(cluster, deadline)
    await _final_if_unknown(cluster, attempt, deadline)


async def list_client_metrics(cluster: Cluster, deadline: Deadline) -> list[str]:
    async def attempt() -> list[str]:
        # The first version asks for these alone, and more brokers know it.
        request = Versioned(
            ApiKey.LIST_CONFIG_RESOURCES, lambda _: ListConfigResourcesRequest(), up_to=0
        )
        answer = await cluster.ask(request, deadline=deadline)
        cluster.check("Admin", answer.error_code)
        return sorted(one.resource_name for one in answer.config_resources)

    return await cluster.retrying(attempt, deadline)


def _broker(kind: str, name: str) -> int | None:
    """A broker's settings are asked of that broker."""
    return int(name) if kind == "broker" and name else None


# --- records ---


async def need_partitions(
    cluster: Cluster, partitions: Collection[TopicPartition], deadline: Deadline
) -> None:
    """Refuse what does not exist; a consumer would wait for it.

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topics = await describe_topics(cluster, {tp.topic for tp in partitions}, deadline)
    for tp in partitions:
        if tp.partition not in {one.partition for one in topics[tp.topic].partitions}:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Delete what lies before an offset (-1: everything); the first offset left, each."""
    done: dict[TopicPartition, int] = {}

    async def attempt() -> None:
        await cluster.topics({tp.topic for tp in before}, deadline)
        by_leader: dict[int, dict[str, list[DeleteRecordsRequest.Partition]]] = {}
        for tp, offset in before.items():
            if tp not in done:
                topics = by_leader.setdefault(cluster.leader_id(tp), {})
                topics.setdefault(tp.topic, []).append(
                    DeleteRecordsRequest.Partition(partition_index=tp.partition, offset=offset)
                )
        for node_id, topics in by_leader.items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsRequest.Topic(name=name, partitions=parts)
                    for name, parts in topics.items()
                ],
                timeout_ms=_timeout_ms(deadline),
            )
            answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
            for topic in answer.topics:
                for one in topic.partitions:
                    tp = TopicPartition(topic.name, one.partition_index)
                    cluster.check("DeleteRecords", one.error_code, str(tp))
                    done[tp] = one.low_watermark

    await need_partitions(cluster, before, deadline)
    await cluster.retrying(attempt, deadline)
    return done


# --- sizes ---


async def partition_sizes(
    cluster: Cluster, topics: Collection[str], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Bytes on disk of every partition of ``topics``; of several replicas, the largest."""

    async def of(node_id: int) -> list[tuple[TopicPartition, int]]:
        wanted = [
            DescribeLogDirsRequest.DescribableLogDirTopic(
                topic=name, partitions=[*range(len(cluster.metadata.topics[name].partitions))]
            )
            for name in topics
        ]
        answer = await cluster.ask(
            DescribeLogDirsRequest(topics=wanted), node_id=node_id, deadline=deadline
        )
        cluster.check("Admin", answer.error_code)
        return [
            (TopicPartition(topic.name, one.partition_index), one.partition_size)
            for result in answer.results
            for topic in result.topics
            for one in topic.partitions
            if not one.is_future_key
        ]

    async def attempt() -> dict[TopicPartition, int]:
        metadata = cluster.metadata
        sizes: dict[TopicPartition, int] = {}
        for part in await asyncio.gather(*(of(node_id) for node_id in metadata.nodes)):
            for tp, size in part:
                sizes[tp] = max(size, sizes.get(tp, 0))
        return sizes

    if topics:
        await describe_topics(cluster, topics, deadline)
    return await cluster.retrying(attempt, deadline)


# --- users ---


async def describe_users(
    cluster: Cluster, names: Collection[str], deadline: Deadline
) -> dict[str, list[str]]:
    """Users (all, if none is named) with the SCRAM mechanisms they have a password for."""
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users or None)
    mechanisms = {number: name for name, number in MECHANISMS.items()}

    async def attempt() -> dict[str, list[str]]:
        answer = await cluster.ask(request, deadline=deadline)
        cluster.check("Admin", answer.error_code, answer.error_message or "")
        found = {}
        for one in answer.results:
            cluster.check("Admin", one.error_code, _detail(one, one.user))
            found[one.user] = [
                mechanisms.get(info.mechanism, "unknown") for info in one.credential_infos
            ]
        return found

    return await cluster.retrying(attempt, deadline)


async def set_password(
    cluster: Cluster, name: str, password: str, mechanism: str, deadline: Deadline
) -> None:
    """The password itself never travels: it is salted here."""
    salt, iterations = secrets.token_bytes(24), 4096
    digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=MECHANISMS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )
    await _alter_users(cluster, [], [upsertion], deadline)


async def delete_password(cluster: Cluster, name: str, mechanism: str, deadline: Deadline) -> None:
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(
        name=name, mechanism=MECHANISMS[mechanism]
    )
    await _alter_users(cluster, [deletion], [], deadline)


async def _alter_users(
    cluster: Cluster, deletions: list[Any], upsertions: list[Any], deadline: Deadline
) -> None:
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for one in answer.results:
            cluster.check("Admin", one.error_code, _detail(one, one.user))

    await cluster.retrying(attempt, deadline)


# --- shared by the above ---


async def ask_controller(cluster: Cluster, request: Any, deadline: Deadline) -> Any:
    """To the controller, or to any broker: those of today forward it."""
    await _know_nodes(cluster, deadline)
    controller = cluster.metadata.controller_id
    known = controller if controller in cluster.metadata.nodes else None
    return await cluster.ask(request, node_id=known, deadline=deadline)


async def _know_nodes(cluster: Cluster, deadline: Deadline) -> None:
    if not cluster.metadata.nodes:
        await cluster.retrying(lambda: cluster.refresh((), deadline), deadline)


async def _final_if_unknown(
    cluster: Cluster, attempt: Callable[[], Awaitable[T]], deadline: Deadline
) -> T:
    """Retry, but not about a topic nobody knows: an admin asks about what is there."""
    unknown: list[RetriableError] = []

    async def once() -> T | None:
        try:
            return await attempt()
        except RetriableError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            unknown.append(error)
            return None

    result = await cluster.retrying(once, deadline)
    if unknown:
        raise BrokerError(unknown[0].code, unknown[0].detail)
    return result  # type: ignore[return-value]  # what is None was raised above


def _timeout_ms(deadline: Deadline) -> int:
    return max(1, min(60_000, int(deadline.limit(60.0) * 1000)))


def _detail(one: Any, what: str) -> str:
    message = getattr(one, "error_message", None)
    return f"{what}: {message}" if message else str(what)
