"""A consumer group under everything at once, held against what must always be true.

Clients join, acknowledge, lose answers, repeat themselves, leave and come back, speak either
protocol; topics come, grow and go; records are not written; the coordinator dies and loads. T, K
and P are the names of the invariants in the model of the protocol and in Kafka's own code:

    T2  no two members believe that they own a partition      K1  member ≤ target ≤ group epoch
    T3  at the target epoch nobody holds what is another's    K2  one holder of each partition
    T4  a stable group is where its target is                 K3  one owner per partition and epoch
    T5  what is free is in nobody's hands                     K4  what is given up makes unrevoked
    T7  a member's epoch never falls                          K5  assignment epoch ≤ member epoch
    T8  when nothing happens any more, it becomes stable      K6  unreleased: something is missing
    P1  what is loaded equals what is alive
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import MigrationPolicy
from shoal.group.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from shoal.group.coordinator.consumer_group_member import LEAVES_FOR_A_WHILE
from shoal.group.coordinator.consumer_journal import ReconciliationState
from shoal.wire.apis.leave_group import LeaveGroupRequest
from tests.group.consumer_shell import ConsumerShell, assigned, config, name_of, topic_id
from tests.group.test_migration import ClassicClient

NAMES = ("a", "b", "c")
REGEXES = ("", "a", "(a|b)", "[bc]")
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)

players = st.integers(0, 3)
subscriptions = st.sets(st.sampled_from([*NAMES, "absent"])).map(sorted)


class ModernPlayer:
    """A client of the new protocol that believes what it is told, if it is told."""

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.life = 0
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self.in_group = False
        self.last: tuple[int, dict[str, Any]] | None = None

    @property
    def held(self) -> set[tuple[str, int]]:
        return {(name, number) for name, numbers in self.owned.items() for number in numbers}

    def forget(self) -> None:
        """Everything is lost: it joins anew."""
        self.in_group, self.epoch, self.owned, self.last = False, 0, {}, None


class Group(RuleBasedStateMachine):
    """One group of three new clients, one of them static, and a classic one."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = ConsumerShell(config(migration_policy=MigrationPolicy.UPGRADE))
        self.players = [
            ModernPlayer("m0"),
            ModernPlayer("m1", "i1"),
            ModernPlayer("m2"),
        ]
        self.classic = ClassicClient(self.shell, "old", topics=("a", "b"))
        self.classic_in = False
        self.owner_at: dict[tuple[bytes, int, int], str] = {}
        self.epochs: dict[str, int] = {}

    # --- what happens --------------------------------------------------------------------------

    @initialize()
    def topics(self) -> None:
        self.shell.topic("a", 3)
        self.shell.topic("b", 2)

    def send(self, player: ModernPlayer, epoch: int, *, lost: bool = False, **fields: Any) -> None:
        owned = fields.pop("owned", None)
        player.last = (epoch, {"owned": owned, **fields})
        response = self.shell.beat(
            player.member_id, epoch, owned=owned, instance_id=player.instance_id, **fields
        )
        if response.error_code in GONE:
            player.forget()
        elif not lost and not response.error_code and epoch >= 0:
            player.in_group, player.epoch = True, response.member_epoch
            told = assigned(response)
            if told is not None:
                player.owned = told

    @rule(number=st.integers(0, 2), topics=subscriptions, regex=st.sampled_from(REGEXES))
    def join(self, number: int, topics: list[str], regex: str) -> None:
        player = self.players[number]
        if not player.in_group:
            player.owned = {}
            self.send(
                player,
                0,
                owned={},
                subscribed_topic_names=topics,
                subscribed_topic_regex=regex,
                rebalance_timeout_ms=60_000,
            )

    @rule(number=st.integers(0, 2))
    def beat(self, number: int) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch, owned=player.owned)

    @rule(number=st.integers(0, 2))
    def keep_alive(self, number: int) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch)

    @rule(number=st.integers(0, 2))
    def lose_an_answer(self, number: int) -> None:
        """The client tells everything the next time, as after any hiccup."""
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch, owned=player.owned, lost=True)
            topics = sorted(self.metadata(player).topics) if self.metadata(player) else []
            if player.in_group:
                self.send(
                    player,
                    player.epoch,
                    owned=player.owned,
                    subscribed_topic_names=topics,
                    rebalance_timeout_ms=60_000,
                )

    def metadata(self, player: ModernPlayer) -> Any:
        group = self.shell.coordinator.group("g")
        if not isinstance(group, ConsumerGroup) or player.member_id not in group.members:
            return None
        return group.members[player.member_id].metadata

    @rule(number=st.integers(0, 2))
    def repeat(self, number: int) -> None:
        """A duplicate of the last request changes nothing for anybody else."""
        player = self.players[number]
        if player.in_group and player.last is not None and player.last[0] == player.epoch:
            epoch, fields = player.last
            self.send(player, epoch, **{**fields, "owned": player.owned})

    @rule(number=st.integers(0, 2), topics=subscriptions)
    def change(self, number: int, topics: list[str]) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch, subscribed_topic_names=topics)

    @rule(number=st.integers(0, 2), regex=st.sampled_from(REGEXES))
    def change_regex(self, number: int, regex: str) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch, subscribed_topic_regex=regex)

    @rule(number=st.integers(0, 2), name=st.sampled_from(["uniform", "range"]))
    def vote(self, number: int, name: str) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, player.epoch, server_assignor=name)

    @rule(number=st.integers(0, 2))
    def leave(self, number: int) -> None:
        player = self.players[number]
        if player.in_group:
            self.send(player, -1)
            player.forget()
            self.epochs.pop(player.member_id, None)

    @rule()
    def go_away(self) -> None:
        """A static member restarts: it comes back under another id."""
        player = self.players[1]
        if player.in_group:
            self.send(player, -2)
            player.forget()
            player.life += 1
            player.member_id = f"m1-{player.life}"

    @rule()
    def classic_join(self) -> None:
        group = self.shell.coordinator.group("g")
        if isinstance(group, ConsumerGroup) and group.members:
            if not self.classic_in:
                self.classic.owned = []
            response = self.shell.replies[self.classic.send_join()]
            self.classic_in = not response.error_code
            if self.classic_in:
                self.classic.generation = response.generation_id
                if self.classic.sync() is not ErrorCode.NONE:
                    pass  # It will be told to join again.

    @precondition(lambda self: self.classic_in)
    @rule()
    def classic_beat(self) -> None:
        error = self.classic.heartbeat()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.classic_in, self.classic.owned = False, []
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.classic_join()

    @precondition(lambda self: self.classic_in)
    @rule()
    def classic_leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id="old")
        self.shell.ask(LeaveGroupRequest(group_id="g", members=[identity]))
        self.classic_in, self.classic.owned = False, []
        self.epochs.pop("old", None)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def grow_topic(self, name: str, count: int) -> None:
        known = self.shell.image.topic(name)
        if known is None or known.partition_count < count:
            self.shell.topic(name, count)

    @rule(name=st.sampled_from(NAMES))
    def drop_topic(self, name: str) -> None:
        """Its partitions are gone for everybody who had them."""
        if self.shell.image.topic(name) is not None:
            self.shell.drop_topic(name)

    @rule(seconds=st.sampled_from([1, 5, 11, 46]))
    def wait(self, seconds: int) -> None:
        self.shell.advance(seconds * 1_000)

    @rule(number=st.integers(0, 2))
    def fail_to_write(self, number: int) -> None:
        player = self.players[number]
        self.shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
        if player.in_group:
            self.shell.beat(player.member_id, player.epoch, subscribed_topic_names=["c"])
            self.shell.beat(player.member_id, -1)
        self.shell.fail_appends_with = None

    @rule()
    def restart(self) -> None:
        self.shell = self.classic.shell = self.shell.restarted()

    # --- what must be true ---------------------------------------------------------------------

    def group_or_none(self) -> ConsumerGroup | None:
        group = self.shell.coordinator.group("g")
        return group if isinstance(group, ConsumerGroup) else None

    @invariant()
    def p1_what_is_loaded_equals_what_is_alive(self) -> None:
        again = self.shell.restarted()
        assert again.coordinator.durable() == self.shell.coordinator.durable()
        live, loaded = self.group_or_none(), again.coordinator.group("g")
        if live is not None:
            assert isinstance(loaded, ConsumerGroup)
            for name in (
                "static_ids",
                "owners",
                "topic_counts",
                "regex_counts",
                "votes",
                "classic_support",
                "stable_at",
            ):
                assert getattr(live, name) == getattr(loaded, name), name

    @invariant()
    def k_epochs_and_holders(self) -> None:
        group = self.group_or_none()
        if group is None:
            return
        holders: dict[tuple[bytes, int], str] = {}
        assert group.target_epoch <= group.epoch
        for member_id, member in group.members.items():
            current = member.current
            assert current.member_epoch <= group.target_epoch, "K1"
            pending = current.pending_revocation
            if pending:
                assert current.state is ReconciliationState.UNREVOKED_PARTITIONS, "K4"
            for part in (current.assigned, pending):
                for topic, epochs in part.items():
                    for number, since in epochs.items():
                        assert (topic, number) not in holders, "K2"
                        holders[topic, number] = member_id
                        assert group.owners[topic][number] == current.member_epoch, "K2"
                        if current.member_epoch > 0:
                            assert since <= current.member_epoch, "K5"
        held = {(topic, number) for topic, owners in group.owners.items() for number in owners}
        assert held == set(holders), "T5"
        self.k3(group, holders)

    def k3(self, group: ConsumerGroup, holders: dict[tuple[bytes, int], str]) -> None:
        for (topic, number), member_id in holders.items():
            epoch = group.members[member_id].current.member_epoch
            if epoch > 0:
                # A static member under a new id is the same.
                who = group.members[member_id].metadata.instance_id or member_id
                assert self.owner_at.setdefault((topic, number, epoch), who) == who, "K3"

    @invariant()
    def t7_epochs_do_not_fall(self) -> None:
        group = self.group_or_none()
        if group is None:
            self.epochs.clear()
            return
        now = {
            member_id: member.current.member_epoch
            for member_id, member in group.members.items()
            if member.current.member_epoch > LEAVES_FOR_A_WHILE
        }
        for member_id, epoch in now.items():
            assert epoch >= self.epochs.get(member_id, 0), "T7"
        self.epochs = now

    @invariant()
    def t3_t4_k6_targets(self) -> None:
        group = self.group_or_none()
        if group is None or group.epoch != group.target_epoch:
            return
        wanted_by = {
            (topic, number): member_id
            for member_id, target in group.targets.items()
            for topic, numbers in target.items()
            for number in numbers
        }
        for member_id, member in group.members.items():
            current = member.current
            if member.is_reconciled(group.target_epoch):
                for topic, epochs in current.assigned.items():
                    for number in epochs:
                        assert wanted_by.get((topic, number), member_id) == member_id, "T3"
            if (
                current.state is ReconciliationState.UNRELEASED_PARTITIONS
                and current.member_epoch == group.target_epoch
            ):
                target = group.target_of(member_id)
                assert any(
                    number not in current.assigned.get(topic, ())
                    for topic, numbers in target.items()
                    for number in numbers
                ), "K6"

    @invariant()
    def t2_nobody_believes_to_own_what_another_owns(self) -> None:
        group = self.group_or_none()
        if group is None:
            return
        believed: dict[tuple[str, int], str] = {}
        for player in self.players:
            if player.in_group and player.member_id in group.members:
                for each in player.held:
                    assert each not in believed, (each, believed[each], player.member_id)
                    believed[each] = player.member_id

    def teardown(self) -> None:
        """T8: everybody goes on, and the group comes to rest where its target is."""
        group = self.group_or_none()
        if group is None:
            return
        for player in self.players:
            if player.instance_id and not player.in_group:
                # Who is away would be waited for.
                holder = group.static_member(player.instance_id)
                if holder is not None:
                    member = LeaveGroupRequest.MemberIdentity(
                        member_id="", group_instance_id=player.instance_id
                    )
                    self.shell.ask(LeaveGroupRequest(group_id="g", members=[member]))
        for _ in range(20):
            self.shell.advance(1_000)
            for number in range(3):
                self.beat(number)
            if self.classic_in:
                self.classic_beat()
        group = self.group_or_none()
        playing = [player for player in self.players if player.in_group]
        if group is None or set(group.members) != {
            *(player.member_id for player in playing),
            *(["old"] if self.classic_in else []),
        }:
            return  # Somebody nobody knows of any more is waited for until its session ends.
        if group.members:
            assert group.state is ConsumerGroupState.STABLE, group.state
        for player in playing:
            target = group.target_of(player.member_id)
            assert player.owned == {name_of(topic): list(n) for topic, n in target.items()}, "T4"
            assert all(topic_id(name) in target for name in player.owned)


Group.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroup = pytest.mark.slow(Group.TestCase)
