"""A shell around a coordinator of consumer groups, with topics and members that heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from shoal.errors import ErrorCode
from shoal.group.coordinator.cluster_image import ImageTopic
from shoal.group.coordinator.config import ConsumerGroupConfig, GroupConfig
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.consumer_group_member import ConsumerGroupMember
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.group.coordinator_shell import Shell

Owned = Mapping[str, Iterable[int]]
REBALANCE_MS = 60_000


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"-")


def name_of(identity: bytes) -> str:
    return bytes(identity).lstrip(b"-").decode()


def config(**consumer: Any) -> GroupConfig:
    """Targets at every change and Kafka's heartbeat interval, unless told otherwise."""
    settings = {"assignment_interval_ms": 0, "heartbeat_interval_ms": 5_000, **consumer}
    return GroupConfig(consumer=ConsumerGroupConfig(**settings))


class ConsumerShell(Shell):
    """Heartbeats in few words."""

    def __init__(self, settings: GroupConfig | None = None, *args: Any, **fields: Any) -> None:
        super().__init__(settings or config(), *args, **fields)

    def topic(self, name: str, partitions: int = 1) -> None:
        """Created, or given more partitions."""
        self.image.put(ImageTopic(name, topic_id(name), partitions))
        self.coordinator.topics_changed([name])

    def drop_topic(self, name: str) -> None:
        self.image.remove(name)
        self.coordinator.topics_changed([name])

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.coordinator.group(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def member(self, member_id: str, group_id: str = "g") -> ConsumerGroupMember:
        return self.consumer_group(group_id).members[member_id]

    def beat(
        self,
        member_id: str,
        epoch: int = 0,
        *,
        owned: Owned | None = None,
        version: int = 1,
        client_id: str = "c",
        client_host: str = "/127.0.0.1",
        sees: Callable[[str], bool] | None = None,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat and its answer."""
        rows = None
        if owned is not None:
            rows = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=topic_id(name), partitions=list(numbers)
                )
                for name, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group_id", "g"),
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=rows,
            **fields,
        )
        ticket = next(self.tickets)
        caller = Caller(version, client_id, client_host, ticket, sees=sees)
        self.obey(self.coordinator.handle(request, caller, self.now_ms))
        response = self.replies[ticket]
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that joins with everything it takes."""
        if topics or "subscribed_topic_regex" not in fields:
            fields.setdefault("subscribed_topic_names", list(topics))
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member_id, 0, owned={}, **fields)

    def leave(self, member_id: str, epoch: int = -1, **fields: Any) -> Any:
        return self.beat(member_id, epoch, **fields)


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The assignment in an answer; ``None`` if it says nothing about it."""
    assert response.error_code == ErrorCode.NONE, response
    if response.assignment is None:
        return None
    return {
        name_of(row.topic_id): list(row.partitions) for row in response.assignment.topic_partitions
    }


class Client:
    """A member that does what it is told, at once: what it owns is what it was assigned."""

    def __init__(self, shell: ConsumerShell, member_id: str, **fields: Any) -> None:
        self.shell = shell
        self.member_id = member_id
        self.fields = fields
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self._told: dict[str, list[int]] | None = None

    def join(self, *topics: str, **fields: Any) -> Client:
        response = self.shell.join(self.member_id, *topics, **self.fields, **fields)
        self._take(response)
        return self

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Acknowledges what changed since the last one."""
        told = self.owned if self.owned != self._told else None
        response = self.shell.beat(self.member_id, self.epoch, owned=told, **self.fields, **fields)
        self._told = dict(self.owned)
        self._take(response)
        return response

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code:
            return
        self.epoch = response.member_epoch
        new = assigned(response)
        if new is not None:
            self.owned = new


def settle(*clients: Client, rounds: int = 10) -> None:
    """Everybody heartbeats until nothing changes any more."""
    for _ in range(rounds):
        for client in clients:
            client.beat()


def with_consumer(settings: GroupConfig, **changes: Any) -> GroupConfig:
    return replace(settings, consumer=replace(settings.consumer, **changes))
