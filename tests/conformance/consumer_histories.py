"""The same heartbeats to Apache Kafka and to our broker, answer by answer.

A history is made from a seed, step by step: what members do next depends on what they were told,
so it stays sensible, and some of it is nonsense on purpose. Topics have the same ids on both sides
and members the same names, so assignments must be equal to the partition.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tests.broker.raw_client import RawClient

SETTLE_S = 0.4
"""After an expression is new: Kafka resolves it in a thread of its own."""


@dataclass
class Topic:
    name: str
    id: bytes
    partitions: int


@dataclass
class Player:
    """A member as the history knows it."""

    member_id: str
    instance_id: str | None = None
    classic: bool = False
    epoch: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)
    joined: bool = False


class DisagreementError(AssertionError):
    """The two answered differently; the text says what to."""


class History:
    """One group on two brokers."""

    def __init__(self, seed: int, kafka: RawClient, ours: RawClient, topics: list[Topic]) -> None:
        self.random = Random(seed)
        self.group = f"g{seed}-{uuid.uuid4().hex[:6]}"
        self.sides = (kafka, ours)
        self.topics = {topic.name: topic for topic in topics}
        self.names = {topic.id: topic.name for topic in topics}
        self.players = [Player(f"m{number}") for number in range(4)]
        self.players[1].instance_id = "i1"
        self.players[3].classic = True
        self.log: list[str] = []
        for side in self.sides:
            find_coordinator(side, self.group)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    # --- steps -----------------------------------------------------------------------------

    def step(self) -> None:
        player = self.random.choice(self.players)
        if self.random.random() < 0.12:
            self.random.choice([self.describe, self.commit, self.fetch, self.nonsense])(player)
        elif player.classic:
            self.classic_step(player)
        elif not player.joined or self.random.random() < 0.05:
            self.join(player)
        else:
            self.random.choices(
                [self.beat, self.keep_alive, self.change, self.leave, self.lost],
                [10, 3, 2, 1, 1],
            )[0](player)

    def join(self, player: Player) -> None:
        """With something to read: see ``docs/differences.md`` for who joins without."""
        names = self.some_topics() or ["h-a"]
        fields: dict[str, Any] = {"subscribed_topic_names": names, "rebalance_timeout_ms": 60_000}
        if self.random.random() < 0.2:
            fields["server_assignor"] = self.random.choice(["uniform", "range"])
        if self.random.random() < 0.15:
            fields["subscribed_topic_regex"] = self.random.choice(["h-.*", "h-a", "", "h-(b|c)"])
        self.heartbeat(player, 0, owned={}, **fields)

    def beat(self, player: Player) -> None:
        """What it owns is what it was told."""
        self.heartbeat(player, player.epoch, owned=player.owned)

    def keep_alive(self, player: Player) -> None:
        self.heartbeat(player, player.epoch)

    def change(self, player: Player) -> None:
        which = self.random.randrange(4)
        fields: dict[str, Any] = {"subscribed_topic_names": self.some_topics()}
        if which == 1:
            fields = {"subscribed_topic_regex": self.random.choice(["h-.*", "", "h-a|h-b", "h("])}
        elif which == 2:
            fields = {"server_assignor": self.random.choice(["uniform", "range", "none"])}
        elif which == 3:
            fields |= {"rebalance_timeout_ms": 50_000, "owned": player.owned}
        self.heartbeat(player, player.epoch, **fields)

    def leave(self, player: Player) -> None:
        epoch = -2 if player.instance_id and self.random.random() < 0.7 else -1
        response = self.heartbeat(player, epoch)
        if not response["error_code"]:
            player.joined, player.owned = False, {}

    def lost(self, player: Player) -> None:
        """An answer was lost, or the client is out of its mind."""
        epoch = player.epoch + self.random.choice([-1, 1, 5, -player.epoch])
        owned = self.random.choice([None, {}, player.owned])
        if epoch == 0:
            self.join(player)
        elif epoch > 0:
            self.heartbeat(player, epoch, owned=owned)

    def nonsense(self, player: Player) -> None:
        known: list[dict[str, Any]] = [
            {"epoch": -3},
            {"epoch": 0},
            {"epoch": 0, "rebalance_timeout_ms": 1},
            {"epoch": -2},
            {"epoch": 3, "rack_id": ""},
            {"epoch": 7, "instance_id": "nobody"},
            {"epoch": -1, "member_id": "nobody"},
            {"epoch": 9, "member_id": "nobody"},
            {"epoch": 1, "member_id": ""},
        ]
        fields = dict(self.random.choice(known))
        stranger = Player(
            fields.pop("member_id", player.member_id), fields.pop("instance_id", None)
        )
        self.heartbeat(stranger, fields.pop("epoch"), **fields)

    def some_topics(self) -> list[str]:
        known = [*self.topics, "h-absent"]
        return sorted(self.random.sample(known, self.random.randint(0, 3)))

    # --- requests ----------------------------------------------------------------------------

    def heartbeat(
        self,
        player: Player,
        epoch: int,
        *,
        owned: dict[str, list[int]] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        rows = None
        if owned is not None:
            rows = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=self.topics[name].id, partitions=numbers
                )
                for name, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=player.member_id,
            member_epoch=epoch,
            instance_id=player.instance_id,
            topic_partitions=rows,
            **fields,
        )
        response = self.both(request, 1)
        if not response["error_code"] and epoch >= 0:
            player.joined, player.epoch = True, response["member_epoch"]
            if response["assignment"] is not None:
                player.owned = response["assignment"]
        elif response["error_code"] in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ):
            player.joined, player.owned = False, {}
        return response

    def classic_step(self, player: Player) -> None:
        """Only where it is answered at once: in a consumer group with other members."""
        others = [each for each in self.players if each is not player and each.joined]
        if not others:
            return
        if not player.joined:
            self.classic_join(player)
            return
        action = self.random.choices(["beat", "join", "leave"], [6, 2, 1])[0]
        if action == "leave":
            identity = LeaveGroupRequest.MemberIdentity(member_id=player.member_id)
            self.both(LeaveGroupRequest(group_id=self.group, members=[identity]), 5)
            player.joined, player.owned = False, {}
        elif action == "join":
            self.classic_join(player)
        else:
            request = HeartbeatRequest(
                group_id=self.group, generation_id=player.epoch, member_id=player.member_id
            )
            error = self.both(request, 4)["error_code"]
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self.classic_join(player)
            elif error:
                player.joined, player.owned = False, {}

    def classic_join(self, player: Player) -> None:
        owned = [
            TopicPartition(name, number)
            for name, numbers in player.owned.items()
            for number in numbers
        ]
        names = [name for name in self.some_topics() if name in self.topics] or ["h-a"]
        metadata = ConsumerProtocolSubscription(names, owned_partitions=owned).encode(1)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=player.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.Protocol(name="cooperative-sticky", metadata=metadata),
                JoinGroupRequest.Protocol(name="range", metadata=metadata),
            ],
        )
        joined = self.both(request, 9)
        if joined["error_code"]:
            return
        player.joined, player.epoch = True, joined["generation_id"]
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=player.epoch,
            member_id=player.member_id,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[],
        )
        synced = self.both(sync, 5)
        if not synced["error_code"]:
            player.owned = synced["assignment"]

    def commit(self, player: Player) -> None:
        topic = self.random.choice(list(self.topics.values()))
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=max(
                player.epoch + self.random.choice([0, 0, 0, -1, 1]), 0
            ),
            member_id=player.member_id,
            topics=[
                OffsetCommitRequest.Topic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=number, committed_offset=0, committed_metadata=""
                        )
                        for number in range(topic.partitions)
                    ],
                )
            ],
        )
        self.both(request, self.random.choice([8, 9, 9]))

    def fetch(self, player: Player) -> None:
        topic = self.random.choice(list(self.topics.values()))
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.Group(
                    group_id=self.group,
                    member_id=player.member_id,
                    member_epoch=player.epoch + self.random.choice([0, 0, -1]),
                    topics=[
                        OffsetFetchRequest.Topics(
                            name=topic.name, partition_indexes=list(range(topic.partitions))
                        )
                    ],
                )
            ]
        )
        self.both(request, 9)

    def describe(self, _: Player) -> None:
        self.both(DescribeGroupsRequest(groups=[self.group]), 6)

    # --- comparing ---------------------------------------------------------------------------

    def both(self, request: Any, version: int) -> dict[str, Any]:
        """The answer of both, and then the group must look the same on both, targets included."""
        response = self.compared(request, version)
        if getattr(request, "subscribed_topic_regex", None):
            time.sleep(SETTLE_S)
        describe = ConsumerGroupDescribeRequest(
            group_ids=[self.group], include_authorized_operations=False
        )
        self.compared(describe, 1)
        return response

    def compared(self, request: Any, version: int) -> dict[str, Any]:
        theirs, mine = self.answers(request, version)
        for _ in range(5):
            if theirs == mine or not isinstance(request, ConsumerGroupDescribeRequest):
                break
            # Expressions are resolved in a thread of Kafka's, and in a slice of our loop.
            time.sleep(SETTLE_S)
            theirs, mine = self.answers(request, version)
        self.log.append(f"{request}\n      {theirs}")
        if theirs != mine:
            story = "\n  ".join(self.log)
            raise DisagreementError(f"{story}\n\nKafka: {theirs}\nours:  {mine}")
        return theirs

    def answers(self, request: Any, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
        theirs, mine = (self.plain(side.ask(request, version)) for side in self.sides)
        return theirs, mine

    def plain(self, response: Any) -> dict[str, Any]:
        """Without what may differ: order of rows, and the place of topics in an assignment."""
        name = type(response).__name__
        found = {key: getattr(response, key) for key in response.__slots__}
        if name == "ConsumerGroupHeartbeatResponse":
            if response.assignment is not None:
                found["assignment"] = self.rows(response.assignment.topic_partitions)
        elif name == "SyncGroupResponse":
            decoded = ConsumerProtocolAssignment.decode(response.assignment or b"\0\0" + bytes(8))
            held: dict[str, list[int]] = {}
            for topic, number in sorted(decoded.partitions):
                held.setdefault(topic, []).append(number)
            found["assignment"] = held
        elif name == "ConsumerGroupDescribeResponse":
            found["groups"] = [self.group_rows(group) for group in response.groups]
        else:
            found = {key: repr(value) for key, value in found.items()}
            found["error_code"] = getattr(response, "error_code", 0)
            found["generation_id"] = getattr(response, "generation_id", 0)
        return found

    def rows(self, rows: Any) -> dict[str, list[int]]:
        named = ((self.names.get(bytes(row.topic_id), "?"), sorted(row.partitions)) for row in rows)
        return dict(sorted(named))

    def group_rows(self, group: Any) -> Any:
        members = {
            member.member_id: (
                member.instance_id,
                member.member_epoch,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex,
                self.rows(member.assignment.topic_partitions),
                self.rows(member.target_assignment.topic_partitions),
                member.member_type,
            )
            for member in group.members
        }
        return (
            group.error_code,
            group.error_message,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor_name,
            members,
        )


# --- two brokers with the same topics ------------------------------------------------------------


def find_coordinator(side: RawClient, group: str) -> None:
    """Makes the internal topic, the first time; until then everybody waits."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        response = side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        probe = HeartbeatRequest(group_id=group, generation_id=0, member_id="probe")
        if not response.coordinators[0].error_code and side.ask(probe, 4).error_code == 25:
            return
        time.sleep(0.1)
    raise TimeoutError("no coordinator")


def same_topics(kafka: RawClient, broker: Broker, counts: dict[str, int]) -> list[Topic]:
    """Made in Kafka, then in ours with the ids that Kafka gave them."""
    kafka.ask(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
                for name, count in counts.items()
            ],
            timeout_ms=30_000,
            validate_only=False,
        ),
        7,
    )
    deadline = time.monotonic() + 30
    while True:
        asked = [MetadataRequest.Topic(name=name) for name in counts]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        rows = kafka.ask(request, 12).topics
        if all(not row.error_code and len(row.partitions) == counts[row.name] for row in rows):
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    topics = [Topic(row.name, bytes(row.topic_id), counts[row.name]) for row in rows]

    async def create() -> None:
        live = broker.live
        async with live.changes.turn:
            decided = [
                live.catalogue.decide_create(each.name, each.id, each.partitions, {})
                for each in topics
            ]
            assert all(isinstance(entry, dict) for entry in decided), decided
            await live.changes.commit(decided)  # type: ignore[arg-type]

    broker._run(create())
    return topics
