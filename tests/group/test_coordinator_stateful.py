"""Random requests, faults and restarts: what must hold whatever happens.

A shell drives one coordinator; after every step the journal is loaded into a second one, which
must know the same. Appends fail, the process pauses, clocks jump, the coordinator restarts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.classic_rebalance import join_timer, session_timer, sync_timer
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.journal import GroupRecord, GroupTombstone
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    Shell,
    commit,
    delete_offsets,
    heartbeat,
    join,
    leave,
    sync,
    txn_commit,
)

CONFIG = GroupConfig(
    group_max_size=4,
    offsets_retention_minutes=2,
    offsets_retention_check_interval_ms=20_000,
    group_new_member_join_timeout_ms=30_000,
)
TIMEOUTS: dict[str, Any] = {"session_ms": 8_000, "rebalance_ms": 12_000}

group_ids = st.sampled_from(["g", "h"])
instances = st.sampled_from(["a", "b"])
partitions = st.builds(TopicPartition, st.sampled_from(["orders", "other"]), st.integers(0, 1))
protocol_names = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("x",)])
subscriptions = st.sampled_from(
    [
        ConsumerProtocolSubscription(("orders",)).encode(),
        ConsumerProtocolSubscription(("other",)).encode(),
        b"\x00",
    ]
)
picks = st.integers(0, 30)
versions = st.sampled_from([0, 3, 5, 8, 9])


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(CONFIG)
        self.asked: set[int] = set()
        self.ids: list[str] = ["ghost"]
        self.started: dict[str, int] = {}
        self.records_seen = 0

    # --- Helpers ---------------------------------------------------------------------------------

    def send(self, request: Any, version: int | None = None) -> None:
        ticket = self.shell.send(request, version=version)
        self.asked.add(ticket)
        response = self.shell.replies.get(ticket)
        member_id = getattr(response, "member_id", "")
        if member_id and member_id not in self.ids:
            self.ids.append(member_id)

    def pick(self, number: int) -> str:
        """A member id: of the newest ones more often, of a stranger sometimes."""
        return self.ids[-1 - number % len(self.ids)]

    def generation(self, group_id: str, number: int) -> int:
        group = self.shell.coordinator.group(group_id)
        current = group.generation if isinstance(group, ClassicGroup) else 0
        return current + (number == 7) - (number == 8)

    def instance_of(self, group_id: str, member_id: str) -> str | None:
        group = self.shell.coordinator.group(group_id)
        if not isinstance(group, ClassicGroup) or member_id not in group.members:
            return None
        return group.members[member_id].instance_id

    # --- Requests --------------------------------------------------------------------------------

    @rule(group_id=group_ids, names=protocol_names, metadata=subscriptions, version=versions)
    def join_as_new(
        self, group_id: str, names: tuple[str, ...], metadata: bytes, version: int
    ) -> None:
        request = join(group_id=group_id, names=names, metadata=metadata, **TIMEOUTS)
        self.send(request, version)

    @rule(group_id=group_ids, number=picks, metadata=subscriptions)
    def join_again(self, group_id: str, number: int, metadata: bytes) -> None:
        member_id = self.pick(number)
        instance_id = self.instance_of(group_id, member_id)
        self.send(
            join(
                member_id,
                group_id=group_id,
                instance_id=instance_id,
                metadata=metadata,
                **TIMEOUTS,
            )
        )

    @rule(group_id=group_ids, instance_id=instances, names=protocol_names, version=versions)
    def join_as_static(
        self, group_id: str, instance_id: str, names: tuple[str, ...], version: int
    ) -> None:
        request = join(group_id=group_id, instance_id=instance_id, names=names, **TIMEOUTS)
        self.send(request, version)

    @rule(group_id=group_ids)
    def everybody_joins(self, group_id: str) -> None:
        group = self.shell.coordinator.group(group_id)
        if isinstance(group, ClassicGroup):
            for member_id in [*group.pending_ids, *group.members]:
                instance_id = self.instance_of(group_id, member_id)
                request = join(member_id, group_id=group_id, instance_id=instance_id, **TIMEOUTS)
                self.send(request)

    @rule(group_id=group_ids, number=picks)
    def sync_one(self, group_id: str, number: int) -> None:
        member_id = self.pick(number)
        generation = self.generation(group_id, number)
        instance_id = self.instance_of(group_id, member_id)
        self.send(sync(member_id, generation, group_id=group_id, instance_id=instance_id))

    @rule(group_id=group_ids)
    def everybody_syncs(self, group_id: str) -> None:
        group = self.shell.coordinator.group(group_id)
        if isinstance(group, ClassicGroup):
            for member_id in list(group.members):
                self.send(sync(member_id, group.generation, group.members, group_id=group_id))

    @rule(group_id=group_ids, number=picks)
    def beat(self, group_id: str, number: int) -> None:
        generation = self.generation(group_id, number)
        self.send(heartbeat(self.pick(number), generation, group_id=group_id))

    @rule(group_id=group_ids, numbers=st.lists(picks, min_size=1, max_size=3))
    def go(self, group_id: str, numbers: list[int]) -> None:
        self.send(leave(*(self.pick(number) for number in numbers), group_id=group_id))

    @rule(group_id=group_ids, instance_id=instances)
    def remove_static(self, group_id: str, instance_id: str) -> None:
        self.send(leave(("", instance_id), group_id=group_id))

    # --- Offsets ---------------------------------------------------------------------------------

    @rule(group_id=group_ids, tp=partitions, offset=st.integers(0, 99), number=picks)
    def commit_as_member(self, group_id: str, tp: TopicPartition, offset: int, number: int) -> None:
        generation = self.generation(group_id, number)
        member_id = self.pick(number)
        request = commit(
            {tp: offset}, group_id=group_id, member_id=member_id, generation=generation
        )
        self.send(request)

    @rule(group_id=group_ids, tp=partitions, offset=st.integers(0, 99), producer=picks)
    def commit_otherwise(
        self, group_id: str, tp: TopicPartition, offset: int, producer: int
    ) -> None:
        if producer % 2:
            self.send(txn_commit({tp: offset}, group_id=group_id, producer_id=producer % 3))
        else:
            self.send(commit({tp: offset}, group_id=group_id))

    @rule(producer=st.integers(0, 2), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        shell = self.shell
        decision = shell.coordinator.end_transaction(
            producer, 0, commit=committed, now_ms=shell.now_ms
        )
        shell.obey(decision)

    @rule(group_id=group_ids, tp=partitions)
    def delete_an_offset(self, group_id: str, tp: TopicPartition) -> None:
        self.send(delete_offsets(tp, group_id=group_id))

    @rule(group_id=group_ids)
    def delete_a_group(self, group_id: str) -> None:
        self.send(DeleteGroupsRequest(groups_names=[group_id]))

    @rule(topic=st.sampled_from(["orders", "other"]))
    def delete_a_topic(self, topic: str) -> None:
        shell = self.shell
        shell.obey(shell.coordinator.topics_deleted({topic}, shell.now_ms))

    # --- Time and faults -------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([1, 500, 3_000, 7_999, 12_000, 130_000]))
    def wait(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms)

    @rule(jump_ms=st.sampled_from([-100_000, -1, 5_000, 1_000_000]))
    def pause_or_jump(self, jump_ms: int) -> None:
        before = self.members()
        self.shell.now_ms += jump_ms
        self.shell.tick()
        assert self.members() == before, "nobody goes because of a pause"
        self.shell.advance(1_000)

    def members(self) -> dict[str, set[str]]:
        return {
            group.group_id: set(group.members)
            for group in self.shell.coordinator.groups
            if isinstance(group, ClassicGroup) and group.members
        }

    @precondition(lambda self: self.shell.fail_appends_with is None)
    @rule(error=st.sampled_from([ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE]))
    def disk_fills(self, error: ErrorCode) -> None:
        self.shell.fail_appends_with = error

    @precondition(lambda self: self.shell.fail_appends_with is not None)
    @rule()
    def disk_is_cleaned(self) -> None:
        self.shell.fail_appends_with = None

    @rule()
    def restart(self) -> None:
        old = self.shell
        old.obey(old.coordinator.unload(old.now_ms))
        assert self.asked <= old.replies.keys(), "nobody waits for a coordinator that is gone"
        self.shell = old.restarted()
        self.shell.tickets = old.tickets
        self.asked = set()

    # --- What must hold --------------------------------------------------------------------------

    @invariant()
    def a_rebuilt_coordinator_equals_the_live_one(self) -> None:
        rebuilt = Coordinator(CONFIG, new_id=str)
        rebuilt.load(enumerate(self.shell.records), self.shell.now_ms)
        assert rebuilt.durable() == self.shell.coordinator.durable()

    @invariant()
    def a_generation_starts_once(self) -> None:
        """Restarts and failed appends or not."""
        for record in self.shell.records[self.records_seen :]:
            if isinstance(record, GroupTombstone):
                self.started.pop(record.group_id, None)
            elif isinstance(record, GroupRecord):
                last = self.started.get(record.group_id, 0)
                starts = record.generation > 0 and record.leader is None
                assert record.generation == last + starts
                self.started[record.group_id] = record.generation
        self.records_seen = len(self.shell.records)

    @invariant()
    def every_request_is_answered_or_parked(self) -> None:
        parked = [
            ticket
            for group in self.groups()
            for member in group.members.values()
            for ticket in (member.joining, member.syncing)
            if ticket is not None
        ]
        assert len(parked) == len(set(parked))
        assert self.asked - self.shell.replies.keys() == set(parked)

    @invariant()
    def counts_are_right(self) -> None:
        for group in self.groups():
            members = group.members.values()
            assert group.awaiting_join == sum(each.joining is not None for each in members)
            support = Counter(name for each in members for name in {n for n, _ in each.protocols})
            assert {name: n for name, n in group._support.items() if n} == support
            static = {each.instance_id: each.member_id for each in members if each.instance_id}
            assert group.static_ids == static
            assert group.staged is None
            assert not group.pending_ids.keys() & group.members.keys()
            assert (group.leader_id in group.members) or not members

    @invariant()
    def members_are_those_of_the_record(self) -> None:
        for group in self.groups():
            if group.state is GroupState.PREPARING_REBALANCE:
                assert not group.pending_sync
                assert all(each.syncing is None for each in group.members.values())
                continue
            recorded = group.record.members if group.record else ()
            assert set(group.members) == {each.member_id for each in recorded}
            assert all(each.joining is None for each in group.members.values())
            if group.state is GroupState.STABLE:
                assert all(each.syncing is None for each in group.members.values())

    @invariant()
    def whatever_is_waited_for_has_a_timer(self) -> None:
        timers = self.shell.coordinator._timers
        for group in self.groups():
            for member_id, member in group.members.items():
                assert member.is_excused or timers.deadline(session_timer(group, member_id))
            for member_id in group.pending_ids:
                assert timers.deadline(session_timer(group, member_id))
            joining = timers.deadline(join_timer(group)) is not None
            assert joining == (group.state is GroupState.PREPARING_REBALANCE)
            syncing = timers.deadline(sync_timer(group)) is not None
            assert syncing == bool(group.pending_sync)

    def groups(self) -> list[ClassicGroup]:
        groups = self.shell.coordinator.groups
        return [group for group in groups if isinstance(group, ClassicGroup)]

    def teardown(self) -> None:
        """Left alone on a good disk, every group ends up empty and everybody has an answer."""
        self.shell.fail_appends_with = None
        self.shell.advance(400_000)
        assert all(group.state is GroupState.EMPTY for group in self.groups())
        assert self.asked <= self.shell.replies.keys()
        assert len(self.shell.coordinator._timers) == 1, "only the expiry of offsets is left"


Machine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
test_whatever_happens = pytest.mark.slow(Machine.TestCase)
