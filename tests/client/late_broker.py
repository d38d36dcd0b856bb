"""A scripted broker on virtual time that answers late when told to: for races that were bugs."""

from __future__ import annotations

from typing import ClassVar

from shoal import OffsetAndMetadata, TopicPartition
from shoal.client.broker_links import Links
from shoal.client.config import ConsumerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.offset_fetch import OffsetFetchResponse
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.client.virtual import opener

T0 = TopicPartition("t", 0)
LATE_S = 5.0


class World(ScriptedBroker):
    """A broker whose answers to some APIs are late, and which remembers what was committed.

    Its log has had three leaders: epoch 0 ended at offset 5, epoch 1 at 10, epoch 2 is new.
    """

    ENDS: ClassVar = {0: 5, 1: RECORDS, 2: RECORDS}

    def __init__(self):
        super().__init__()
        self.late: set[str] = set()
        self.committed: list[int] = []
        self.has_commit: int | None = None
        self.asked_epochs: list[int] = []

    def delay_s(self, api):
        if api in self.late:
            return LATE_S
        return 0.5 if api == "Fetch" else 0.01

    def session(self, **settings):
        given = {
            "bootstrap_servers": self.servers,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }
        config = ConsumerConfig(**given)
        return ConsumerCore(config, Links(config, None, opener(self, self.delay_s)))

    def _message(self, key, request, code):
        match key:
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                return self._epoch_end(request)
            case ApiKey.OFFSET_COMMIT:
                if not code:
                    self.committed.append(request.topics[0].partitions[0].committed_offset)
            case ApiKey.OFFSET_FETCH if self.has_commit is not None:
                part = OffsetFetchResponse.Partition(
                    partition_index=0, committed_offset=self.has_commit
                )
                return OffsetFetchResponse(
                    topics=[OffsetFetchResponse.Topic(name="t", partitions=[part])]
                )
        answer = super()._message(key, request, code)
        if key is ApiKey.API_VERSIONS:
            answer.api_keys.append(
                ApiVersionsResponse.ApiVersion(
                    api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, min_version=2, max_version=4
                )
            )
        return answer

    def _metadata(self, code):
        answer = super()._metadata(code)
        for partition in answer.topics[0].partitions:
            partition.leader_epoch = 2
        return answer

    def _epoch_end(self, request):
        epoch = request.topics[0].partitions[0].leader_epoch
        self.asked_epochs.append(epoch)
        end = OffsetForLeaderEpochResponse.EpochEndOffset(
            partition=0, leader_epoch=epoch, end_offset=self.ENDS[epoch]
        )
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic="t", partitions=[end])
            ]
        )


def at(offset):
    return {T0: OffsetAndMetadata(offset)}


async def read(one, timeout=4 * LATE_S):
    """The offsets of what the next poll returns."""
    await one.prepare(timeout)
    return [record.offset for record in one.reader.take(100)]
