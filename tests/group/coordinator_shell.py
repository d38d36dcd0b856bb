"""The smallest shell around a coordinator: a journal in memory, a clock that is told the time.

Every record goes through its bytes on the way into the journal, so whatever a test makes a
coordinator decide can also be written and read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Self

from shoal.errors import ErrorCode
from shoal.group.coordinator import journal
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import EventKind, GroupDecision, GroupEvent
from shoal.group.coordinator.journal import JournalRecord, TransactionMarker
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
TOPIC_METADATA = ConsumerProtocolSubscription(("orders",)).encode()
START_MS = 1_700_000_000_000

Ticket = int


def through_bytes(record: JournalRecord) -> JournalRecord:
    """The record as it is read back from the log."""
    if isinstance(record, TransactionMarker):
        return record
    producer = journal.producer_of([record])
    key, value = journal.encode(record)
    read = journal.decode(key, value, producer=producer)
    assert read is not None
    return read


class Shell:
    """Does what a decision says, at once."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        records: Iterable[JournalRecord] = (),
        *,
        now_ms: int = START_MS,
        ids: Iterator[int] | None = None,
        image: ClusterImage | None = None,
        assignors: Any = None,
    ) -> None:
        self.image = ClusterImage() if image is None else image
        self.config = config or GroupConfig()
        self.now_ms = now_ms
        self.ids = ids or count(1)
        self.tickets = count(1)
        self.records = list(records)
        self.replies: dict[Ticket, Any] = {}
        self.events: list[GroupEvent] = []
        self.fail_appends_with: ErrorCode | None = None
        self.coordinator = Coordinator(
            self.config,
            new_id=lambda: f"id{next(self.ids)}",
            image=self.image,
            assignors=assignors,
        )
        self.obey(self.coordinator.load(enumerate(self.records), self.now_ms))

    # --- What a shell does -----------------------------------------------------------------------

    def obey(self, decision: GroupDecision) -> None:
        if decision.journal and self.fail_appends_with is not None:
            decision = self.coordinator.append_failed(decision, self.fail_appends_with, self.now_ms)
            assert not decision.journal
        elif decision.journal:
            base_offset = len(self.records)
            self.records += [through_bytes(record) for record in decision.journal]
            self.coordinator.replay_all(self.records[base_offset:], base_offset)
        for reply in decision.replies:
            assert reply.ticket not in self.replies, "answered twice"
            self.replies[reply.ticket] = reply.response
        self.events += decision.events

    def restarted(self, config: GroupConfig | None = None) -> Self:
        """Another shell that loads what this one has written."""
        return type(self)(
            config or self.config,
            self.records,
            now_ms=self.now_ms,
            ids=self.ids,
            image=self.image,
        )

    def tick(self) -> None:
        """Do all that is due now."""
        for _ in range(10_000):
            self.obey(self.coordinator.tick(self.now_ms))
            deadline = self.coordinator.next_deadline()
            if deadline is None or deadline > self.now_ms:
                return
        raise AssertionError("ticks without end")

    def advance(self, duration_ms: int) -> None:
        """Let time pass, with a tick whenever one is asked for."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline = self.coordinator.next_deadline()
            if deadline is None or deadline > end_ms:
                break
            self.now_ms = max(deadline, self.now_ms)
            self.tick()
        self.now_ms = end_ms

    # --- Requests --------------------------------------------------------------------------------

    def send(self, request: Any, *, version: int | None = None, client_id: str = "c") -> Ticket:
        ticket = next(self.tickets)
        self.obey(
            self.coordinator.handle(
                request,
                Caller(
                    type(request).MAX_VERSION if version is None else version,
                    client_id,
                    "/127.0.0.1",
                    ticket,
                ),
                self.now_ms,
            )
        )
        return ticket

    def ask(self, request: Any, *, version: int | None = None) -> Any:
        """Send, and take the answer, which must come at once."""
        return self.replies[self.send(request, version=version)]

    # --- Groups ----------------------------------------------------------------------------------

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.coordinator.group(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def state(self, group_id: str = "g") -> GroupState:
        return self.group(group_id).state

    def causes(self, kind: EventKind) -> list[str]:
        return [event.cause for event in self.events if event.kind is kind]

    def member_id(self, *, group_id: str = "g", **fields: Any) -> str:
        """An id, as a new dynamic member gets it."""
        response = self.ask(join(group_id=group_id, **fields))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert isinstance(response.member_id, str)
        return response.member_id

    def join_new(self, **fields: Any) -> tuple[str, Ticket]:
        """A new dynamic member joins; its id and the ticket of its parked request."""
        member_id = self.member_id(**fields)
        return member_id, self.send(join(member_id=member_id, **fields))

    def stable_group(self, size: int = 2, *, group_id: str = "g", **fields: Any) -> list[str]:
        """A Stable group; the leader comes first. Everybody has synced."""
        joined = [self.join_new(group_id=group_id, **fields) for _ in range(size)]
        self.settle()
        return self.sync_all([self.replies[ticket] for _, ticket in joined], group_id=group_id)

    def settle(self) -> None:
        """Let the time pass that running rebalances take."""
        while any(
            group.state_name == GroupState.PREPARING_REBALANCE.value
            for group in self.coordinator.groups
        ):
            deadline = self.coordinator.next_deadline()
            assert deadline is not None
            self.advance(deadline - self.now_ms)

    def until_answered(self, ticket: Ticket) -> None:
        """Let time pass until a request is answered, whatever the answer is."""
        while ticket not in self.replies:
            self.advance(100)

    def sync_all(self, responses: Sequence[JoinGroupResponse], *, group_id: str = "g") -> list[str]:
        """Everybody syncs, the leader last; the assignment of a member is its own id."""
        leader = responses[0].leader
        members = [response.member_id for response in responses]
        followers = [member_id for member_id in members if member_id != leader]
        generation = responses[0].generation_id
        for member_id in followers:
            self.send(sync(member_id, generation, group_id=group_id))
        self.send(sync(leader, generation, members, group_id=group_id))
        assert self.state(group_id) is GroupState.STABLE
        return [leader, *followers]


# --- Messages with everything filled in ----------------------------------------------------------


def protocols(*names: str, metadata: bytes = TOPIC_METADATA) -> list[JoinGroupRequest.Protocol]:
    return [JoinGroupRequest.Protocol(name=name, metadata=metadata) for name in names]


def join(
    member_id: str = "",
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    names: Sequence[str] = ("range",),
    metadata: bytes = TOPIC_METADATA,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    reason: str | None = None,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=protocols(*names, metadata=metadata),
        reason=reason,
    )


def sync(
    member_id: str,
    generation: int,
    assigned: Iterable[str] = (),
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequest.Assignment(member_id=each, assignment=each.encode())
            for each in assigned
        ],
    )


def heartbeat(
    member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave(
    *members: str | tuple[str, str | None], group_id: str = "g", reason: str | None = None
) -> LeaveGroupRequest:
    pairs = [each if isinstance(each, tuple) else (each, None) for each in members]
    return LeaveGroupRequest(
        group_id=group_id,
        member_id=pairs[0][0],
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=instance_id, reason=reason
            )
            for member_id, instance_id in pairs
        ],
    )


def commit(
    offsets: dict[TopicPartition, int],
    *,
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequest.Topic(
                name=tp.topic,
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=tp.partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                ],
            )
            for tp, offset in offsets.items()
        ],
    )


def txn_commit(
    offsets: dict[TopicPartition, int],
    *,
    group_id: str = "g",
    producer_id: int = 7,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequest.Topic(
                name=tp.topic,
                partitions=[
                    TxnOffsetCommitRequest.Partition(
                        partition_index=tp.partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                ],
            )
            for tp, offset in offsets.items()
        ],
    )


def fetch(
    *partitions: TopicPartition, group_id: str = "g", stable: bool = False, everything: bool = False
) -> OffsetFetchRequest:
    """One group, in the shape of v8 and later."""
    topics = [
        OffsetFetchRequest.Topics(name=tp.topic, partition_indexes=[tp.partition])
        for tp in partitions
    ]
    group = OffsetFetchRequest.Group(group_id=group_id, topics=None if everything else topics)
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def fetched(shell: Shell, *partitions: TopicPartition, group_id: str = "g") -> list[int]:
    """The committed offsets, -1 for none."""
    response = shell.ask(fetch(*partitions, group_id=group_id))
    (group,) = response.groups
    return [topic.partitions[0].committed_offset for topic in group.topics]


def delete_offsets(*partitions: TopicPartition, group_id: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequest.Topic(
                name=tp.topic,
                partitions=[OffsetDeleteRequest.Partition(partition_index=tp.partition)],
            )
            for tp in partitions
        ],
    )


def codes(response: Any) -> list[ErrorCode]:
    """Per-partition errors of a response about offsets."""
    return [ErrorCode.of(each.error_code) for topic in response.topics for each in topic.partitions]


def stable_static(shell: Shell, instance_id: str) -> int:
    """A group of one static member; the ticket of its join."""
    ticket = shell.send(join(instance_id=instance_id))
    shell.settle()
    response = shell.replies[ticket]
    request = sync(response.member_id, 1, [response.member_id], instance_id=instance_id)
    assert shell.ask(request).error_code == ErrorCode.NONE
    return ticket
