"""How much partitions take on disk, as their brokers say (DescribeLogDirs)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from shoal.client.cluster import Cluster
from shoal.client.timing import Deadline
from shoal.client.topic_admin import describe_topics
from shoal.types import TopicPartition
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest


async def partition_sizes(
    cluster: Cluster, topics: Collection[str], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Bytes of every partition of ``topics``; of several replicas, the largest."""

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
