"""A scripted broker that coordinates a group of one member by the new protocol (KIP-848).

Who joins gets partition 0 of ``t`` with epoch 1, and each test says what else is answered.
"""

from __future__ import annotations

from typing import Any

from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupResponse
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchResponse
from shoal.wire.apis.registry import ApiKey
from shoal.wire.apis.sync_group import SyncGroupResponse
from tests.client.scripted import VERSIONS, ScriptedBroker
from tests.group.member_driver import assignment, partitions

TOPIC_ID = b"the topic's id.."
INTERVAL_MS = 50


class ScriptedGroup(ScriptedBroker):
    """``heartbeats`` and ``commits`` are what was asked; ``epoch`` is what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.features = {"group.version": 1}
        self.versions = VERSIONS | {
            ApiKey.METADATA: 12,
            ApiKey.OFFSET_COMMIT: 9,
            ApiKey.OFFSET_FETCH: 9,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
            ApiKey.JOIN_GROUP: 5,
            ApiKey.SYNC_GROUP: 3,
            ApiKey.HEARTBEAT: 3,
            ApiKey.LEAVE_GROUP: 3,
        }
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.commits: list[OffsetCommitRequest] = []
        self.epoch = 1
        self.partitions: list[int] | None = [0]
        self.names_by_id_only = False

    def _message(self, key: ApiKey, request: Any, code: int) -> Any:
        match key:
            case ApiKey.CONSUMER_GROUP_HEARTBEAT:
                self.heartbeats.append(request)
                return self._heartbeat(request, code)
            case ApiKey.OFFSET_COMMIT:
                self.commits.append(request)
            case ApiKey.METADATA:
                return self._described(request, code)
            case ApiKey.OFFSET_FETCH:
                group = OffsetFetchResponse.Group(group_id=request.groups[0].group_id)
                return OffsetFetchResponse(groups=[group])
            case ApiKey.JOIN_GROUP:
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=1,
                    member_id="classic",
                    leader="another",
                    protocol_name="range",
                )
            case ApiKey.SYNC_GROUP:
                return SyncGroupResponse(assignment=assignment(*partitions("t", 0)))
            case ApiKey.LEAVE_GROUP:
                return LeaveGroupResponse()
        return super()._message(key, request, code)

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, code: int
    ) -> ConsumerGroupHeartbeatResponse:
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message="scripted")
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch)
        parts = [
            ConsumerGroupHeartbeatResponse.TopicPartitions(
                topic_id=TOPIC_ID, partitions=list(self.partitions or ())
            )
        ]
        given = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=parts)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=given,
        )

    def _described(self, request: Any, code: int) -> MetadataResponse:
        answer = self._metadata(code)
        wants = list(request.topics or ())
        by_id = any(one.topic_id == TOPIC_ID for one in wants)
        if self.names_by_id_only and not by_id:
            answer.topics = []
        for topic in answer.topics:
            topic.topic_id = TOPIC_ID
        return answer
