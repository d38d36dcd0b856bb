"""Members whose connection broke: gone after the grace, unless they are heard again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.decision import EventKind
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.group.consumer_shell import ConsumerShell, config
from tests.group.coordinator_shell import heartbeat

GRACE_MS = 2_000


def made(grace_ms: int | None = GRACE_MS) -> ConsumerShell:
    settings = replace(
        config(), dead_connection_grace_ms=grace_ms, group_initial_rebalance_delay_ms=0
    )
    shell = ConsumerShell(settings)
    shell.topic("t", 2)
    return shell


def say(shell: ConsumerShell, request: Any, connection: str) -> None:
    ticket = next(shell.tickets)
    caller = Caller(type(request).MAX_VERSION, "c", "/h", ticket, connection)
    shell.obey(shell.coordinator.handle(request, caller, shell.now_ms))
    assert not shell.replies[ticket].error_code


def beat(shell: ConsumerShell, connection: str) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
    say(shell, request, connection)


def test_a_member_whose_connection_broke_is_gone_after_the_grace() -> None:
    shell = made()
    shell.join("a", "t")
    beat(shell, "x")
    shell.coordinator.connection_closed("x")
    shell.advance(GRACE_MS - 1)
    assert shell.consumer_group().members
    shell.advance(1)
    assert not shell.consumer_group().members
    assert shell.causes(EventKind.MEMBER_EXPIRED) == [
        "the connection of member a broke 2000 ms ago"
    ]


def test_whoever_is_heard_on_another_connection_lives() -> None:
    shell = made()
    shell.join("a", "t")
    beat(shell, "x")
    shell.coordinator.connection_closed("x")
    shell.advance(GRACE_MS - 1)
    beat(shell, "y")
    shell.advance(GRACE_MS * 5)
    assert shell.consumer_group().members


def test_only_the_connection_of_the_last_heartbeat_counts() -> None:
    shell = made()
    shell.join("a", "t")
    beat(shell, "x")
    beat(shell, "y")
    shell.coordinator.connection_closed("x")
    shell.coordinator.connection_closed("unknown")
    shell.advance(GRACE_MS * 5)
    assert shell.consumer_group().members


def test_static_members_keep_their_session() -> None:
    shell = made()
    shell.join("a", "t", instance_id="i")
    beat(shell, "x")
    shell.coordinator.connection_closed("x")
    shell.advance(44_000)
    assert shell.consumer_group().members


def test_it_is_off_unless_it_is_asked_for() -> None:
    shell = made(None)
    shell.join("a", "t")
    beat(shell, "x")
    shell.coordinator.connection_closed("x")
    shell.advance(44_000)
    assert shell.consumer_group().members


def test_who_left_before_its_connection_broke_is_no_matter() -> None:
    shell = made()
    shell.join("a", "t")
    beat(shell, "x")
    shell.leave("a")
    shell.coordinator.connection_closed("x")
    shell.advance(GRACE_MS)
    assert not shell.causes(EventKind.MEMBER_EXPIRED)


@pytest.mark.parametrize("size", [1, 2])
def test_classic_members_too(size: int) -> None:
    shell = made()
    first, *others = shell.stable_group(size)
    for each in (first, *others):
        say(shell, heartbeat(each, 1), each)
    shell.coordinator.connection_closed(first)
    shell.advance(GRACE_MS)
    group = shell.coordinator.group("g")
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == set(others)


def test_a_restarted_coordinator_waits_for_the_session() -> None:
    shell = made()
    shell.join("a", "t")
    beat(shell, "x")
    shell = shell.restarted()
    shell.coordinator.connection_closed("x")
    shell.advance(GRACE_MS)
    assert shell.consumer_group().members
