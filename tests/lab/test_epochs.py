"""KIP-848's epochs and reconciliation: the table of states, and never two owners."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.lab.epochs import FENCED, JOIN, EpochGroup, MemberStatus
from shoal.types import TopicPartition

TOPICS = ("t",)


def group(partitions: int = 4) -> EpochGroup:
    made = EpochGroup(session_timeout_ms=10_000, rebalance_timeout_ms=5_000)
    made.topics_changed({"t": partitions})
    return made


def tps(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


def test_the_first_member_gets_everything() -> None:
    beat = group().heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    assert beat.assigned == tps(0, 1, 2, 3)
    assert beat.epoch > 0


def test_a_newcomer_waits_until_the_others_have_given_up() -> None:
    made = group()
    first = made.heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    waiting = made.heartbeat("b", JOIN, 1, topics=TOPICS, owned=())
    assert waiting.assigned == ()
    assert made.members["b"].status is MemberStatus.UNRELEASED_PARTITIONS

    told = made.heartbeat("a", first.epoch, 2)
    assert told.assigned is not None
    assert len(told.assigned) == 2
    assert told.epoch == first.epoch, "the epoch waits for the revocation"
    assert made.members["a"].status is MemberStatus.UNREVOKED_PARTITIONS
    assert made.heartbeat("b", waiting.epoch, 3).assigned is None, "nothing is free yet"

    done = made.heartbeat("a", told.epoch, 4, owned=told.assigned)
    assert done.epoch == made.target_epoch
    given = made.heartbeat("b", waiting.epoch, 5)
    assert set(given.assigned or ()) == set(tps(0, 1, 2, 3)) - set(told.assigned)
    assert made.members["b"].status is MemberStatus.STABLE


def test_who_still_reports_what_it_must_give_up_stays_where_it_is() -> None:
    made = group()
    first = made.heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    made.heartbeat("b", JOIN, 1, topics=TOPICS, owned=())
    made.heartbeat("a", first.epoch, 2)
    stubborn = made.heartbeat("a", first.epoch, 3, owned=tps(0, 1, 2, 3))
    assert stubborn.epoch == first.epoch
    assert made.members["a"].status is MemberStatus.UNREVOKED_PARTITIONS


def test_who_does_not_give_up_in_time_is_fenced() -> None:
    made = group()
    first = made.heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    made.heartbeat("b", JOIN, 1, topics=TOPICS, owned=())
    made.heartbeat("a", first.epoch, 2)
    assert made.expire(5_001) == []
    assert made.expire(5_002) == ["a"]
    assert made.heartbeat("a", first.epoch, 5_003) == FENCED
    assert not made.accepts_commit("a", first.epoch)


def test_a_lost_answer_is_forgiven_once() -> None:
    made = group()
    first = made.heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    made.topics_changed({"t": 6})
    second = made.heartbeat("a", first.epoch, 1)
    assert second.epoch > first.epoch
    again = made.heartbeat("a", first.epoch, 2, owned=first.assigned)
    assert again.epoch == second.epoch
    assert made.heartbeat("a", 99, 3) == FENCED


def test_commits_are_taken_in_the_current_epoch_alone() -> None:
    made = group()
    first = made.heartbeat("a", JOIN, 0, topics=TOPICS, owned=())
    assert made.accepts_commit("a", first.epoch)
    assert not made.accepts_commit("a", first.epoch - 1)
    assert not made.accepts_commit("b", first.epoch)


def test_a_static_member_that_comes_back_finds_its_partitions_and_disturbs_nobody() -> None:
    made = group()
    made.heartbeat("a1", JOIN, 0, topics=TOPICS, owned=(), instance_id="i1")
    made.heartbeat("b", JOIN, 1, topics=TOPICS, owned=())
    told = made.heartbeat("a1", made.members["a1"].epoch, 2)
    made.heartbeat("a1", told.epoch, 3, owned=told.assigned)
    made.heartbeat("b", made.members["b"].epoch, 4)
    before, owned = made.epoch, set(made.members["a1"].assigned)
    made.leave("a1", for_a_while=True)
    back = made.heartbeat("a2", JOIN, 5, topics=TOPICS, owned=(), instance_id="i1")
    assert set(back.assigned or ()) == owned
    assert made.epoch == before


def test_a_static_member_that_stays_away_is_forgotten() -> None:
    made = group()
    made.heartbeat("a1", JOIN, 0, topics=TOPICS, owned=(), instance_id="i1")
    made.leave("a1", for_a_while=True)
    assert made.expire(10_000) == ["a1"]
    assert made.members == {}


class _Client:
    """A member that obeys, sooner or later."""

    def __init__(self) -> None:
        self.epoch = JOIN
        self.owned: set[TopicPartition] = set()
        self.wanted: tuple[TopicPartition, ...] | None = None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "obey", "join", "leave", "expire", "grow"]),
        st.sampled_from(["a", "b", "c", "d"]),
    ),
    max_size=80,
)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_a_partition_never_has_two_owners_and_everything_is_owned_in_the_end(
    steps: list[tuple[str, str]],
) -> None:
    made = group(5)
    clients: dict[str, _Client] = {}
    now_ms = 0

    def beat(name: str, *, tells: bool) -> None:
        client = clients[name]
        topics = TOPICS if client.epoch == JOIN else None
        owned = tuple(client.owned) if tells or topics else None
        answer = made.heartbeat(name, client.epoch, now_ms, topics=topics, owned=owned)
        if answer == FENCED:
            client.owned.clear()
            client.epoch, client.wanted = JOIN, None
            return
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.wanted = answer.assigned

    def obey(name: str) -> None:
        client = clients[name]
        if client.wanted is not None:
            client.owned, client.wanted = set(client.wanted), None
            beat(name, tells=True)

    def check() -> None:
        seen: dict[TopicPartition, str] = {}
        for name, client in clients.items():
            if name not in made.members:
                continue
            for tp in client.owned:
                assert seen.setdefault(tp, name) == name, f"{tp} has two owners"

    partitions = 5
    for what, name in steps:
        now_ms += 700
        if what == "join":
            clients.setdefault(name, _Client())
            beat(name, tells=False)
        elif what == "grow" and partitions < 8:
            partitions += 1
            made.topics_changed({"t": partitions})
        elif name not in clients:
            continue
        elif what == "beat":
            beat(name, tells=False)
        elif what == "obey":
            obey(name)
        elif what == "leave":
            made.leave(name)
            del clients[name]
        elif what == "expire":
            made.expire(now_ms)
        check()
    for _ in range(12):
        now_ms += 100
        for name in clients:
            beat(name, tells=True)
            obey(name)
            check()
    if clients:
        owned = [tp for client in clients.values() for tp in client.owned]
        assert sorted(owned) == list(tps(*range(partitions)))
