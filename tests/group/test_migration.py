"""Groups that change their protocol while they run, and classic members of consumer groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.config import MigrationPolicy
from shoal.group.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import GroupRecord
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tests.group.consumer_shell import Client, ConsumerShell, config, settle, topic_id

SESSION_MS = 10_000


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class ClassicClient:
    """A cooperative consumer of the classic protocol (or an eager one), which follows orders."""

    def __init__(
        self,
        shell: ConsumerShell,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        eager: bool = False,
        protocol: str = "range",
        topics: tuple[str, ...] = ("t",),
    ) -> None:
        self.shell = shell
        self.member_id = member_id
        self.instance_id = instance_id
        self.eager = eager
        self.protocol = protocol
        self.topics = topics
        self.generation = -1
        self.owned: list[TopicPartition] = []
        self.owned_since: int | None = None
        """The generation that gave it what it owns; older clients do not say."""

    def metadata(self) -> bytes:
        owned = () if self.eager else self.owned
        return ConsumerProtocolSubscription(
            self.topics, owned_partitions=owned, generation_id=self.owned_since
        ).encode(1 if self.owned_since is None else 2)

    def send_join(self) -> int:
        return self.shell.send(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=30_000,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name=self.protocol, metadata=self.metadata())],
            )
        )

    def join(self) -> JoinGroupResponse:
        """Twice, if it has no id yet; the answer must come at once."""
        response = self.shell.replies[self.send_join()]
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = self.shell.replies[self.send_join()]
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
            if self.eager:
                self.owned = []
        assert isinstance(response, JoinGroupResponse)
        return response

    def sync(self) -> ErrorCode:
        response = self.shell.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=self.protocol,
                assignments=[],
            )
        )
        if not response.error_code:
            assigned = ConsumerProtocolAssignment.decode(response.assignment)
            self.owned = sorted(assigned.partitions)
        return ErrorCode.of(response.error_code)

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode.of(self.shell.ask(request).error_code)

    def beat(self) -> None:
        """A heartbeat, and what it asks for."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS and not self.join().error_code:
            self.sync()


def classic_group(
    shell: ConsumerShell, size: int = 2, *, assign: bool = True, user_data: bytes | None = None
) -> list[ClassicClient]:
    """A stable classic group, in which each member has two partitions of ``t``."""
    clients = [ClassicClient(shell) for _ in range(size)]
    tickets = []
    for client in clients:
        client.member_id = shell.replies[client.send_join()].member_id
        tickets.append(client.send_join())
    shell.settle()
    for client, ticket in zip(clients, tickets, strict=True):
        client.generation = shell.replies[ticket].generation_id
    if not assign:
        return clients
    for place, client in enumerate(clients):
        client.owned = partitions(2 * place, 2 * place + 1)
    assign_all(shell, clients, [each.owned for each in clients], user_data)
    return clients


def assign_all(
    shell: ConsumerShell,
    clients: list[ClassicClient],
    given: list[list[TopicPartition]],
    user_data: bytes | None = None,
) -> None:
    """Everybody syncs, the leader last; nobody has heard of it yet."""
    group = shell.coordinator.group("g")
    assert isinstance(group, ClassicGroup)
    leader = group.leader_id
    rows = [
        SyncGroupRequest.Assignment(
            member_id=client.member_id,
            assignment=ConsumerProtocolAssignment(held, user_data).encode(1),
        )
        for client, held in zip(clients, given, strict=True)
    ]
    for client in sorted(clients, key=lambda each: each.member_id == leader):
        shell.send(
            SyncGroupRequest(
                group_id="g",
                generation_id=client.generation,
                member_id=client.member_id,
                assignments=rows if client.member_id == leader else [],
            )
        )


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell(replace(config(), group_initial_rebalance_delay_ms=0))
    made.topic("t", 4)
    return made


def settle_all(*clients: Client | ClassicClient, rounds: int = 10) -> None:
    for _ in range(rounds):
        for client in clients:
            client.beat()


def kind(shell: ConsumerShell) -> type:
    group = shell.coordinator.group("g")
    return type(group)


# --- Up ------------------------------------------------------------------------------------------


def test_a_classic_group_goes_on_under_the_new_protocol(shell: ConsumerShell) -> None:
    first, second = classic_group(shell)
    generation = first.generation
    commit(shell, first)
    c = Client(shell, "c").join("t")
    group = shell.consumer_group()
    assert set(group.members) == {first.member_id, second.member_id, "c"}
    assert (group.classic_count, group.epoch) == (2, generation + 1)
    assert shell.member(first.member_id).current.member_epoch == generation
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    settle_all(first, second, c)
    held = [*first.owned, *second.owned, *partitions(*c.owned["t"])]
    assert sorted(held) == partitions(0, 1, 2, 3)
    assert group.state is ConsumerGroupState.STABLE
    assert shell.coordinator.offsets.by_topic("g"), "offsets stay"
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def commit(shell: ConsumerShell, client: ClassicClient, partition: int = 0) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=client.generation,
        member_id=client.member_id,
        topics=[
            OffsetCommitRequest.Topic(
                name="t",
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=partition, committed_offset=1, committed_metadata=""
                    )
                ],
            )
        ],
    )
    (topic,) = shell.ask(request, version=8).topics
    return ErrorCode.of(topic.partitions[0].error_code)


def test_nobody_owns_anything_twice_on_the_way(shell: ConsumerShell) -> None:
    clients: list[Any] = [*classic_group(shell)]
    clients.append(Client(shell, "c").join("t"))
    for _ in range(10):
        for client in clients:
            client.beat()
            held = [tp for each in clients[:2] for tp in each.owned]
            held += partitions(*clients[2].owned.get("t", ()))
            assert len(held) == len(set(held)), held


def test_whoever_waits_in_the_classic_group_is_called_again(shell: ConsumerShell) -> None:
    clients = classic_group(shell, assign=False)
    waiting = shell.send(
        SyncGroupRequest(
            group_id="g",
            generation_id=clients[1].generation,
            member_id=clients[1].member_id,
            assignments=[],
        )
    )
    c = Client(shell, "c").join("t")
    assert shell.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    settle_all(*clients, c)
    assert sorted([*clients[0].owned, *clients[1].owned, *partitions(*c.owned["t"])]) == (
        partitions(0, 1, 2, 3)
    )


def begin_generation(shell: ConsumerShell, clients: list[ClassicClient]) -> None:
    """Everybody has joined again, and the leader has not assigned yet."""
    tickets = [each.send_join() for each in clients]
    for client, ticket in zip(clients, tickets, strict=True):
        client.generation = shell.replies[ticket].generation_id
    group = shell.coordinator.group("g")
    assert isinstance(group, ClassicGroup)
    assert group.state is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("since", ["the join", "a second join", "a restart"])
def test_what_cooperative_members_read_is_theirs_until_their_leader_has_assigned_anew(
    shell: ConsumerShell, since: str
) -> None:
    clients = classic_group(shell)
    begin_generation(shell, clients)
    if since == "a second join":
        clients[0].send_join()
    elif since == "a restart":
        shell = shell.restarted()
        for each in clients:
            each.shell = shell
    c = Client(shell, "c").join("t")
    assert not c.owned.get("t"), "others read all there is"
    everybody: list[Any] = [*clients, c]
    for _ in range(10):
        for client in everybody:
            client.beat()
            held = [*clients[0].owned, *clients[1].owned, *partitions(*c.owned.get("t", ()))]
            assert len(held) == len(set(held)), held
    assert sorted(held) == partitions(0, 1, 2, 3)


def test_what_a_cooperative_member_has_not_given_up_yet_is_nobody_elses(
    shell: ConsumerShell,
) -> None:
    """It revokes when it polls, and commits before that: Apache Kafka gives the partition away."""
    first, second = clients = classic_group(shell)
    begin_generation(shell, clients)
    assign_all(shell, clients, [partitions(0), partitions(2, 3)])
    c = Client(shell, "c").join("t")
    for _ in range(3):
        second.beat()
        c.beat()
        assert 1 not in c.owned.get("t", ()), "the first has it still"
    assert commit(shell, first, 1) is ErrorCode.NONE
    shell = shell.restarted()
    for each in (first, second, c):
        each.shell = shell
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.owned = partitions(0)
    settle_all(first, second, c)
    assert sorted([*first.owned, *second.owned, *partitions(*c.owned["t"])]) == (
        partitions(0, 1, 2, 3)
    )


def test_what_somebody_else_was_assigned_is_not_waited_for(shell: ConsumerShell) -> None:
    clients = classic_group(shell)
    clients[0].owned = partitions(0, 1, 2)
    begin_generation(shell, clients)
    assign_all(shell, clients, [partitions(0, 1), partitions(2, 3)])
    Client(shell, "c").join("t")
    for each in clients:
        assert not shell.member(each.member_id).current.pending_revocation


@pytest.mark.parametrize("later", [0, 1])
def test_of_two_that_own_a_partition_the_one_of_the_later_generation_gives_it_up(
    shell: ConsumerShell, later: int
) -> None:
    clients = classic_group(shell)
    for place, each in enumerate(clients):
        each.owned, each.owned_since = partitions(1), 7 if place == later else 6
    begin_generation(shell, clients)
    assign_all(shell, clients, [partitions(0), partitions(2, 3)])
    Client(shell, "c").join("t")
    pending = [shell.member(each.member_id).current.pending_revocation for each in clients]
    assert pending[later] == {topic_id("t"): {1: clients[0].generation}}
    assert not pending[1 - later]


def test_a_generation_without_assignments_shows_the_last_ones(shell: ConsumerShell) -> None:
    """As Apache Kafka's DescribeGroups does: they are what members read."""
    clients = classic_group(shell)
    begin_generation(shell, clients)
    group = shell.coordinator.group("g")
    assert group is not None
    described = group.described()
    assert described is not None
    shown = {
        each.member_id: [*ConsumerProtocolAssignment.decode(each.member_assignment).partitions]
        for each in described.members
    }
    assert shown == {each.member_id: each.owned for each in clients}


def test_parked_joins_are_answered(shell: ConsumerShell) -> None:
    first, second = classic_group(shell)
    third = ClassicClient(shell)
    third.member_id = shell.replies[third.send_join()].member_id
    parked = third.send_join()
    assert parked not in shell.replies
    Client(shell, "c").join("t")
    assert shell.replies[parked].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not third.join().error_code
    assert set(shell.consumer_group().members) >= {first.member_id, second.member_id}


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_an_empty_group_changes_whatever_the_policy_is(policy: MigrationPolicy) -> None:
    shell = ConsumerShell(
        replace(config(migration_policy=policy), group_initial_rebalance_delay_ms=0)
    )
    shell.topic("t", 4)
    (only,) = classic_group(shell, 1)
    commit(shell, only)
    shell.ask(
        LeaveGroupRequest(
            group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=only.member_id)]
        )
    )
    assert Client(shell, "c").join("t").epoch == 2
    assert kind(shell) is ConsumerGroup
    shell.leave("c")
    ticket = only.send_join()
    assert shell.replies[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    only.member_id = ""
    assert shell.replies[only.send_join()].error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert kind(shell) is ClassicGroup
    assert shell.coordinator.offsets.by_topic("g"), "offsets stay"
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_policy_may_forbid_it(policy: MigrationPolicy) -> None:
    shell = ConsumerShell(
        replace(config(migration_policy=policy), group_initial_rebalance_delay_ms=0)
    )
    shell.topic("t", 4)
    (only,) = classic_group(shell, 1)
    refused = shell.join("c", "t")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert only.heartbeat() is ErrorCode.NONE


def test_a_group_of_a_custom_assignor_stays(shell: ConsumerShell) -> None:
    """KAFKA-18134: what it attached would be lost."""
    classic_group(shell, 1, user_data=b"mine")
    refused = shell.join("c", "t")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in (refused.error_message or "")
    assert kind(shell) is ClassicGroup


def test_other_groups_stay(shell: ConsumerShell) -> None:
    for metadata, protocol_type, why in (
        (b"\xff", "connect", "does not use the consumer embedded protocol"),
        (b"\xff", "consumer", "the embedded consumer protocol is malformed"),
    ):
        group_id = protocol_type
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.Protocol(name="p", metadata=metadata)],
        )
        shell.send(request, version=3)
        shell.settle()
        refused = shell.join("c", "t", group_id=group_id)
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert why in (refused.error_message or "")


def test_a_change_that_is_not_written_has_not_happened(shell: ConsumerShell) -> None:
    first, second = classic_group(shell)
    shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shell.join("c", "t").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.fail_appends_with = None
    assert kind(shell) is ClassicGroup
    assert first.heartbeat() is ErrorCode.NONE
    assert second.heartbeat() is ErrorCode.NONE
    shell.advance(SESSION_MS)
    assert shell.group().state is GroupState.EMPTY


def test_members_of_a_group_that_changed_keep_their_sessions(shell: ConsumerShell) -> None:
    first, second = classic_group(shell)
    Client(shell, "c").join("t")
    shell.advance(SESSION_MS - 1)
    assert first.member_id in shell.consumer_group().members
    first.heartbeat()
    shell.advance(1)
    assert second.member_id not in shell.consumer_group().members
    assert first.member_id in shell.consumer_group().members


# --- Classic members -----------------------------------------------------------------------------


@pytest.fixture
def mixed(shell: ConsumerShell) -> tuple[Client, ClassicClient]:
    """One of each in a stable group."""
    new = Client(shell, "n").join("t")
    old = ClassicClient(shell)
    assert not old.join().error_code
    settle_all(new, old)
    assert shell.consumer_group().state is ConsumerGroupState.STABLE
    return new, old


def test_a_classic_member_joins_a_consumer_group(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    new, old = mixed
    assert sorted([*old.owned, *partitions(*new.owned["t"])]) == partitions(0, 1, 2, 3)
    response = old.join()
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert (response.leader, list(response.members)) == ("", [])
    assert old.generation == new.epoch
    assert shell.member(old.member_id).is_classic
    assert not shell.member("n").is_classic


@pytest.mark.parametrize("eager", [False, True])
def test_a_classic_member_gives_up_what_another_is_to_have(
    shell: ConsumerShell, eager: bool
) -> None:
    old = ClassicClient(shell, eager=eager)
    Client(shell, "n").join("t")
    old.join()
    shell.leave("n")
    assert kind(shell) is ClassicGroup
    shell.settle()
    new = Client(shell, "m").join("t")
    settle_all(old, new)
    assert len(old.owned) == 2
    assert new.owned["t"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "n"}, ErrorCode.UNKNOWN_MEMBER_ID),  # not a classic member
        ({"generation": 99}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_requests_of_classic_members_are_checked(
    mixed: tuple[Client, ClassicClient], change: dict[str, Any], error: ErrorCode
) -> None:
    _, old = mixed
    for name, value in change.items():
        setattr(old, name, value)
    assert old.heartbeat() is error
    assert old.sync() is error


def test_a_sync_with_another_protocol(mixed: tuple[Client, ClassicClient]) -> None:
    _, old = mixed
    old.protocol = "sticky"
    assert old.sync() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_after_the_target_moved_on(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    _, old = mixed
    old.join()
    Client(shell, "third").join("t")
    assert old.sync() is ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_members_must_have_a_protocol_in_common(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    other = ClassicClient(shell, protocol="roundrobin")
    assert other.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not ClassicClient(shell).join().error_code


def test_a_subscription_nobody_can_read(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    """KAFKA-20662: not an error of the server's."""
    other = ClassicClient(shell)
    other.metadata = lambda: b"\x00"  # type: ignore[method-assign]
    assert other.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_id_that_no_record_can_hold(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    assert ClassicClient(shell, "x" * 40_000).join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    long_name = shell.send(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=mixed[1].metadata())],
        ),
        version=3,
        client_id="c" * 30_000,
    )
    assert len(shell.replies[long_name].member_id) < 400


def test_a_disabled_policy_takes_no_classic_members() -> None:
    """KAFKA-20640."""
    shell = ConsumerShell(config(migration_policy=MigrationPolicy.DISABLED))
    shell.topic("t")
    Client(shell, "n").join("t")
    assert ClassicClient(shell).join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_has_no_room_for_classic_members() -> None:
    shell = ConsumerShell(config(max_size=1))
    shell.topic("t")
    Client(shell, "n").join("t")
    assert ClassicClient(shell).join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_who_does_not_sync_or_join_in_time_is_out(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    new, old = mixed
    old.join()
    for _ in range(29):
        shell.advance(1_000)
        new.beat()
        old.heartbeat()
    assert old.member_id in shell.consumer_group().members
    shell.advance(1_000)
    assert old.member_id not in shell.consumer_group().members
    assert "did not sync" in shell.causes(EventKind.MEMBER_EXPIRED)[-1]
    old.member_id = ""
    old.join()
    old.sync()
    Client(shell, "third").join("t")
    for _ in range(31):
        old.heartbeat()
        shell.advance(1_000)
        new.beat()
    assert old.member_id not in shell.consumer_group().members
    assert "did not join again" in shell.causes(EventKind.MEMBER_EXPIRED)[-1]


def test_an_administrator_removes_members_of_both_kinds(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    _, old = mixed
    shell.join("s", "t", instance_id="i")
    identities = [
        LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i"),
        LeaveGroupRequest.MemberIdentity(member_id="n"),
        LeaveGroupRequest.MemberIdentity(member_id="nobody"),
        LeaveGroupRequest.MemberIdentity(member_id="n", group_instance_id="other"),
    ]
    response = shell.ask(LeaveGroupRequest(group_id="g", members=identities))
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    # KAFKA-18150: the last one of the new protocol left, so the group is a classic one.
    assert kind(shell) is ClassicGroup
    assert set(shell.group().members) == {old.member_id}


def test_commits_of_classic_members(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    _, old = mixed
    assert commit(shell, old) is ErrorCode.NONE
    old.generation += 1
    assert commit(shell, old) is ErrorCode.ILLEGAL_GENERATION
    old.generation -= 3
    assert commit(shell, old) is ErrorCode.ILLEGAL_GENERATION


# --- Down ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_with_the_last_new_member_goes_the_new_protocol(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient], how: str
) -> None:
    _, old = mixed
    commit(shell, old)
    epoch = shell.consumer_group().epoch
    if how == "leaves":
        shell.leave("n")
    else:
        for _ in range(5):
            shell.advance(9_000)
            old.heartbeat()
    group = shell.group()
    assert group.generation == epoch
    shell.tick()
    assert group.state is GroupState.PREPARING_REBALANCE
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = old.send_join()
    shell.settle()
    joined = shell.replies[ticket]
    assert (joined.error_code, joined.leader) == (0, old.member_id)
    assert joined.generation_id == epoch + 1
    assert shell.coordinator.offsets.by_topic("g"), "offsets stay"


def test_a_restart_in_between_rebalances_too(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    shell.leave("n")
    again = shell.restarted()
    assert again.group().state is GroupState.PREPARING_REBALANCE
    assert again.coordinator.durable() == shell.coordinator.durable()


def test_silent_classic_members_expire_after_the_change(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    shell.leave("n")
    shell.tick()
    shell.advance(SESSION_MS)
    assert not shell.group().members


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_a_policy_may_keep_the_new_protocol(policy: MigrationPolicy) -> None:
    shell = ConsumerShell(config(migration_policy=policy))
    shell.topic("t", 2)
    Client(shell, "n").join("t")
    old = ClassicClient(shell)
    old.join()
    old.sync()
    shell.leave("n")
    assert shell.consumer_group().classic_count == 1
    settle_all(old)
    assert old.owned == partitions(0, 1)


@pytest.mark.parametrize("topics", [("t",), ("t", "u")])
def test_the_last_new_member_comes_back_as_a_classic_one(
    shell: ConsumerShell, topics: tuple[str, ...]
) -> None:
    """KAFKA-19546: with another subscription there must be a rebalance."""
    shell.topic("u", 1)
    new = Client(shell, "n", instance_id="i").join("t")
    old = ClassicClient(shell)
    old.join()
    settle_all(new, old)
    epoch = shell.consumer_group().epoch
    back = ClassicClient(shell, instance_id="i", topics=topics)
    response = shell.replies[back.send_join()]
    assert response.error_code == ErrorCode.NONE
    group = shell.group()
    assert set(group.members) == {old.member_id, response.member_id}
    assert group.generation == epoch
    shell.tick()
    rebalances = topics != ("t",)
    assert (group.state is GroupState.PREPARING_REBALANCE) == rebalances
    assert old.heartbeat() is (ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE)
    if not rebalances:
        back.member_id, back.generation = response.member_id, response.generation_id
        assert back.sync() is ErrorCode.NONE
        assert back.owned == partitions(*new.owned["t"])
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def test_a_downgrade_that_is_not_written_has_not_happened(
    shell: ConsumerShell, mixed: tuple[Client, ClassicClient]
) -> None:
    new, old = mixed
    shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shell.leave("n").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.fail_appends_with = None
    shell.tick()
    assert kind(shell) is ConsumerGroup
    settle_all(new, old)
    assert old.heartbeat() is ErrorCode.NONE


def test_a_rolling_restart_both_ways(shell: ConsumerShell) -> None:
    """Three members, one after the other; then back."""
    members: list[Any] = [*classic_group(shell, 2)]
    for place in range(2):
        shell.ask(
            LeaveGroupRequest(
                group_id="g",
                members=[LeaveGroupRequest.MemberIdentity(member_id=members[place].member_id)],
            )
        )
        members[place] = Client(shell, f"new{place}").join("t")
        settle_all(*members)
    assert kind(shell) is ConsumerGroup
    assert shell.consumer_group().classic_count == 0
    assert sorted(members[0].owned["t"] + members[1].owned["t"]) == [0, 1, 2, 3]
    settle(*members)
    shell.leave("new0")
    members[0] = ClassicClient(shell)
    assert not members[0].join().error_code
    members[0].sync()
    settle_all(*members)
    shell.leave("new1")
    assert kind(shell) is ClassicGroup
    records = [each for each in shell.records if isinstance(each, GroupRecord)]
    (row,) = records[-1].members
    assigned = ConsumerProtocolAssignment.decode(row.assignment)
    assert set(assigned.partitions) <= set(partitions(0, 1, 2, 3))
    assert topic_id("t")
