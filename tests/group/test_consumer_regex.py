"""Members that subscribe by a regular expression, which the coordinator resolves."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupTombstone,
    ConsumerRecordType,
    ResolvedRegex,
)
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.regex_resolution import Resolution
from tests.group.consumer_shell import Client, ConsumerShell, assigned, config, settle


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell()
    for name in ("a1", "a2", "b"):
        made.topic(name)
    return made


def resolved(shell: ConsumerShell, regex: str) -> set[str] | None:
    found = shell.consumer_group().resolved.get(regex)
    return None if found is None else set(found.topics)


def test_it_is_resolved_after_the_heartbeat_that_brings_it(shell: ConsumerShell) -> None:
    response = shell.join("m", subscribed_topic_regex="a.*")
    assert (response.member_epoch, assigned(response)) == (1, {})
    assert resolved(shell, "a.*") is None
    shell.tick()
    assert resolved(shell, "a.*") == {"a1", "a2"}
    assert assigned(shell.beat("m", 1)) == {"a1": [0], "a2": [0]}


def test_it_matches_what_the_member_that_asks_may_see(shell: ConsumerShell) -> None:
    m = Client(shell, "m", sees=lambda name: name != "a2").join(subscribed_topic_regex="a.*")
    shell.tick()
    assert resolved(shell, "a.*") == {"a1"}
    m.beat()
    shell.topic("a3")
    shell.advance(10_001)
    shell.beat("n", 0, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_regex="a.*")
    shell.tick()
    assert resolved(shell, "a.*") == {"a1", "a2", "a3"}, "now somebody asks who may see all"


def test_one_that_is_not_valid_is_refused(shell: ConsumerShell) -> None:
    response = shell.join("m", subscribed_topic_regex="a(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.error_message == (
        "SubscribedTopicRegex `a(` is not a valid regular expression: missing closing )."
    )
    assert not shell.coordinator.groups


def test_names_and_an_expression_at_once(shell: ConsumerShell) -> None:
    """librdkafka sends both."""
    m = Client(shell, "m").join("b", subscribed_topic_regex="a1")
    assert m.owned == {"b": [0]}
    shell.tick()
    m.beat()
    assert m.owned == {"b": [0], "a1": [0]}


def test_a_second_member_with_the_same_expression_waits_for_nothing(shell: ConsumerShell) -> None:
    shell.join("m", subscribed_topic_regex="a.*")
    shell.tick()
    shell.beat("m", 1)
    n = Client(shell, "n").join(subscribed_topic_regex="a.*")
    assert n.epoch == 3
    written = [each for each in shell.records if isinstance(each, ResolvedRegex)]
    assert len(written) == 1


def test_a_new_topic_is_looked_for_after_ten_seconds(shell: ConsumerShell) -> None:
    m = Client(shell, "m").join(subscribed_topic_regex="a.*")
    shell.tick()
    m.beat()
    shell.topic("a3")
    m.beat()
    shell.tick()
    assert resolved(shell, "a.*") == {"a1", "a2"}
    shell.advance(10_001)
    m.beat()
    shell.tick()
    m.beat()
    assert m.owned == {"a1": [0], "a2": [0], "a3": [0]}


def test_a_topic_that_is_gone_is_noticed_at_once(shell: ConsumerShell) -> None:
    m = Client(shell, "m").join(subscribed_topic_regex="a.*")
    shell.tick()
    m.beat()
    shell.drop_topic("a2")
    m.beat()
    assert m.owned == {"a1": [0]}


def test_all_expressions_of_a_group_are_refreshed_together(shell: ConsumerShell) -> None:
    m = Client(shell, "m").join(subscribed_topic_regex="a.*")
    n = Client(shell, "n").join(subscribed_topic_regex="b")
    shell.tick()
    settle(m, n)
    assert (m.owned, n.owned) == ({"a1": [0], "a2": [0]}, {"b": [0]})
    bumps = len(shell.causes(EventKind.EPOCH_BUMPED))
    shell.advance(11_000)
    shell.topic("a3")
    m.beat()
    shell.tick()
    assert len(shell.causes(EventKind.EPOCH_BUMPED)) == bumps + 1
    group = shell.consumer_group()
    assert len({each.version for each in group.resolved.values()}) == 1


def test_they_are_looked_at_again_after_the_refresh_interval(shell: ConsumerShell) -> None:
    m = Client(shell, "m").join(subscribed_topic_regex="a.*")
    shell.tick()
    first = shell.consumer_group().resolved["a.*"].timestamp_ms
    for _ in range(31):
        shell.advance(20_000)
        m.beat()
        shell.tick()
    assert shell.consumer_group().resolved["a.*"].timestamp_ms > first


def test_the_last_one_to_leave_takes_the_expression_along(shell: ConsumerShell) -> None:
    shell.join("m", subscribed_topic_regex="a.*")
    shell.join("n", subscribed_topic_regex="a.*")
    shell.tick()
    shell.leave("m")
    assert resolved(shell, "a.*") is not None
    shell.leave("n")
    assert resolved(shell, "a.*") is None
    gone = ConsumerGroupTombstone(ConsumerRecordType.REGEX, "g", "a.*")
    assert gone in shell.records


def test_another_expression_in_place_of_one(shell: ConsumerShell) -> None:
    m = Client(shell, "m").join(subscribed_topic_regex="a.*")
    shell.tick()
    m.beat()
    shell.advance(10_001)
    m.beat(subscribed_topic_regex="b")
    assert m.owned == {}, "what it does not want any more goes at once"
    assert resolved(shell, "a.*") is None
    shell.tick()
    settle(m)
    assert m.owned == {"b": [0]}


def test_expression_of_who_left_meanwhile_is_dropped(shell: ConsumerShell) -> None:
    shell.join("m", subscribed_topic_regex="a.*")
    shell.leave("m")
    shell.tick()
    assert not shell.consumer_group().resolved


def test_a_restart_knows_what_was_resolved_and_resolves_what_was_not(shell: ConsumerShell) -> None:
    shell.join("m", subscribed_topic_regex="a.*")
    early = shell.restarted()
    early.beat("m", 1)
    early.tick()
    assert resolved(early, "a.*") == {"a1", "a2"}
    late = early.restarted()
    assert resolved(late, "a.*") == {"a1", "a2"}


def test_many_topics_are_compared_in_slices(shell: ConsumerShell) -> None:
    like = shell.image.topic("b")
    assert like is not None
    for number in range(3_000):
        shell.image.put(like._replace(name=f"n{number}", topic_id=b"%16d" % number))
    shell.join("m", subscribed_topic_regex="(n|a)*[0-9]*")
    shell.tick()
    assert resolved(shell, "(n|a)*[0-9]*") is None
    assert shell.beat("m", 1).error_code == ErrorCode.NONE, "others are served between them"
    shell.advance(1_000)
    assert len(resolved(shell, "(n|a)*[0-9]*") or ()) == 3_002


def test_a_group_whose_expressions_are_not_resolved_is_not_at_rest() -> None:
    shell = ConsumerShell(config(heartbeat_interval_ms=None))
    shell.topic("a")
    assert shell.join("m", subscribed_topic_regex="a").heartbeat_interval_ms == 500
    shell.tick()
    assert shell.beat("m", 1).heartbeat_interval_ms == 1_000


def test_many_expressions_are_made_in_slices(shell: ConsumerShell) -> None:
    """Thousands of members may each bring a large one."""
    regexes = [f"a{number}{{900}}" for number in range(60)]
    work = Resolution(regexes, shell.image, 0)
    slices = 0
    while not work.is_done:
        work.advance()
        slices += 1
    assert 2 < slices < 60
    assert len(work.results("g")) == 60
