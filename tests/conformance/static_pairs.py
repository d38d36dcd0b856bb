"""Two members with one instance id, the second in the place of the first, over the wire."""

from __future__ import annotations

import uuid
from typing import ClassVar

from shoal.errors import ErrorCode
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.broker.raw_client import RawClient
from tests.conformance.consumer_histories import Topic, find_coordinator

INSTANCE = "i1"
Identity = tuple[str, int]
"""A member id, and its generation or epoch."""


class StaticPair:
    """Somebody is replaced, and commits as if nothing had happened."""

    kind: ClassVar[str]

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def replaced_and_committed(self, side: RawClient) -> dict[str, ErrorCode]:
        """What a commit is answered, by whom it names."""
        group = f"replaced-{self.kind}-{uuid.uuid4().hex[:6]}"
        find_coordinator(side, group)
        old, new = self.replace(side, group)
        return {
            "its instance id": self.commit(side, group, old, INSTANCE),
            "no instance id": self.commit(side, group, old, None),
            "an unknown instance id": self.commit(side, group, old, "i2"),
            "the new one": self.commit(side, group, new, INSTANCE),
        }

    def replace(self, side: RawClient, group: str) -> tuple[Identity, Identity]:
        raise NotImplementedError

    def commit(
        self, side: RawClient, group: str, identity: Identity, instance_id: str | None
    ) -> ErrorCode:
        partition = OffsetCommitRequest.Partition(
            partition_index=0, committed_offset=0, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=identity[1],
            member_id=identity[0],
            group_instance_id=instance_id,
            topics=[OffsetCommitRequest.Topic(name=self.topic.name, partitions=[partition])],
        )
        response = side.ask(request, 9)
        return ErrorCode.of(response.topics[0].partitions[0].error_code)


class ClassicPair(StaticPair):
    kind = "classic"

    def replace(self, side: RawClient, group: str) -> tuple[Identity, Identity]:
        return self._join(side, group), self._join(side, group)

    def _join(self, side: RawClient, group: str) -> Identity:
        metadata = ConsumerProtocolSubscription([self.topic.name]).encode(1)
        joined = side.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                group_instance_id=INSTANCE,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name="range", metadata=metadata)],
            ),
            9,
        )
        assert joined.error_code == 0, joined
        synced = side.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=INSTANCE,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            ),
            5,
        )
        assert synced.error_code == 0, synced
        return joined.member_id, joined.generation_id


class ConsumerPair(StaticPair):
    kind = "consumer"

    def replace(self, side: RawClient, group: str) -> tuple[Identity, Identity]:
        old = self._join(side, group, "a")
        self._beat(side, group, "a", -2)
        return old, self._join(side, group, "b")

    def _join(self, side: RawClient, group: str, member_id: str) -> Identity:
        return member_id, self._beat(side, group, member_id, 0)

    def _beat(self, side: RawClient, group: str, member_id: str, epoch: int) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, instance_id=INSTANCE
        )
        if epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [self.topic.name]
            request.topic_partitions = []
        response = side.ask(request, 1)
        assert response.error_code == 0, response
        member_epoch: int = response.member_epoch
        return member_epoch
