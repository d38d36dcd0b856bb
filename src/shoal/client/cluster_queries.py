"""What a consumer may ask about the cluster at any time, whatever it reads itself.

Rule: no state, no position is touched; every question has an end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.client.deadlines import Deadline
from shoal.client.offsets import EARLIEST, LATEST, list_offsets
from shoal.types import OffsetAndTimestamp, PartitionInfo, TopicPartition


class ClusterQueries:
    """Of one consumer, for both its faces. Lives on the engine's loop."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._config = config

    def deadline(self, timeout: float | None) -> Deadline:
        """``timeout``, or the default of calls without one."""
        default_s = self._config.default_api_timeout_ms / 1000
        return Deadline(default_s if timeout is None else timeout)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        for tp, time_ms in times_ms.items():
            if time_ms < 0:
                raise ValueError(f"the time {time_ms} for {tp} is negative; give ms since 1970")
        return await self._list_offsets(times_ms, timeout)

    async def ends(
        self, partitions: Collection[TopicPartition], timeout: float | None, *, beginning: bool
    ) -> dict[TopicPartition, int]:
        end = EARLIEST if beginning else LATEST
        wanted = dict.fromkeys(partitions, end)
        found = await self._list_offsets(wanted, timeout)
        return {tp: one.offset for tp, one in found.items() if one is not None}

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        deadline = self.deadline(timeout)
        return await list_offsets(self._cluster, wanted, deadline, self._config.isolation_level)

    async def partitions_for(self, topic: str, timeout: float | None) -> list[PartitionInfo]:
        # What an earlier question brought about a topic nobody reads may be long out of date.
        anew = not self._cluster.watches(topic)
        metadata = await self._cluster.topics([topic], self.deadline(timeout), anew=anew)
        return metadata.partition_infos(topic)

    async def list_topics(self, timeout: float | None) -> dict[str, list[PartitionInfo]]:
        deadline = self.deadline(timeout)
        metadata = await self._cluster.retrying(
            lambda: self._cluster.refresh(None, deadline), deadline
        )
        return {name: metadata.partition_infos(name) for name in sorted(metadata.topics)}
