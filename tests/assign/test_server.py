"""The coordinator's assignors (KIP-848): examples, properties, and Kafka's own as an oracle."""

from __future__ import annotations

import time
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign.hash_order import id_key
from shoal.assign.server import (
    SERVER_ASSIGNORS,
    ServerMember,
    ServerRangeAssignor,
    Target,
    UniformAssignor,
)
from shoal.errors import InvalidAssignmentError
from tests.assign.oracle import Oracle
from tests.peers.cache import need

A, B, C = (bytes(15) + bytes([number]) for number in (1, 2, 3))
Members = dict[str, ServerMember]


def follow(members: Members, target: dict[str, Target]) -> Members:
    """The same members, having reached a target."""
    return {
        name: ServerMember(one.topics, target.get(name, {}), one.instance_id)
        for name, one in members.items()
    }


def test_the_first_is_the_default() -> None:
    assert list(SERVER_ASSIGNORS) == ["uniform", "range"]
    assert [make().name for make in SERVER_ASSIGNORS.values()] == ["uniform", "range"]


def test_range_cuts_every_topic_by_member_order() -> None:
    members = {
        "b": ServerMember([A, B]),
        "a": ServerMember([A, B]),
        "z": ServerMember([A], instance_id="0"),
    }
    assert ServerRangeAssignor().assign(members, {A: 4, B: 3}) == {
        "z": {A: [0, 1]},
        "a": {A: [2], B: [0, 1]},
        "b": {A: [3], B: [2]},
    }


def test_uniform_gives_everybody_the_same_and_moves_nothing_without_need() -> None:
    members: Members = {f"m{n}": ServerMember([A, B]) for n in range(3)}
    target = UniformAssignor().assign(members, {A: 4, B: 4})
    counts = sorted(sum(map(len, one.values())) for one in target.values())
    assert counts == [2, 3, 3]
    assert UniformAssignor().assign(follow(members, target), {A: 4, B: 4}) == target


def test_whoever_has_the_extra_partition_keeps_it() -> None:
    # KAFKA-18688: before 4.1 the extra partition went to the first members of a hash map.
    for holder in ("m0", "m1", "m2"):
        assigned = {"m0": [0], "m1": [1], "m2": [2]}
        assigned[holder] = [*assigned[holder], 3]
        members = {name: ServerMember([A], {A: held}) for name, held in assigned.items()}
        target = UniformAssignor().assign(members, {A: 4})
        assert target == {name: {A: held} for name, held in assigned.items()}


def test_who_keeps_everything_is_given_the_same_object() -> None:
    # The coordinator then sees at a glance that there is nothing to write.
    members: Members = {f"m{n}": ServerMember([A, B]) for n in range(10)}
    first = UniformAssignor().assign(members, {A: 20, B: 25})
    before = deepcopy(first)
    members = follow({**members, "new": ServerMember([A, B])}, first)
    second = UniformAssignor().assign(members, {A: 20, B: 25})
    assert first == before, "what members have is never changed in place"
    unchanged = [name for name in first if second[name] == first[name]]
    assert 5 <= len(unchanged) < 10
    assert all(second[name] is first[name] for name in unchanged)
    # Nor where members take more than they had.
    del members["m0"]
    UniformAssignor().assign(members, {A: 21, B: 25})
    assert first == before


def test_numbers_in_any_collection_come_back_ascending() -> None:
    members = {
        "m1": ServerMember((A,), {A: {4, 0, 2}}),
        "m2": ServerMember((A,), {A: (5, 3, 1)}),
    }
    target = UniformAssignor().assign(members, {A: 6})
    assert target == {"m1": {A: [0, 2, 4]}, "m2": {A: [1, 3, 5]}}


def test_the_second_member_takes_its_half_in_no_time() -> None:
    # Sorted in one by one they took 25 seconds, in which a broker answers nobody.
    members = {"m1": ServerMember((A,), {A: list(range(80_000))}), "m2": ServerMember((A,))}
    began = time.process_time()
    target = UniformAssignor().assign(members, {A: 80_000})
    assert time.process_time() - began < 2
    assert_target(members, {A: 80_000}, target)
    assert [len(one[A]) for one in target.values()] == [40_000, 40_000]


def test_a_topic_without_partitions_ends_nothing() -> None:
    members: Members = {"m1": ServerMember((A, B, C)), "m2": ServerMember((A, B, C))}
    target = UniformAssignor().assign(members, {A: 1, B: 0, C: 3})
    assert_target(members, {A: 1, B: 0, C: 3}, target)


def test_a_topic_that_is_not_known_is_refused() -> None:
    for make in SERVER_ASSIGNORS.values():
        with pytest.raises(InvalidAssignmentError, match=C.hex()):
            make().assign({"m": ServerMember([C])}, {A: 1})


def test_nobody_gets_nothing() -> None:
    assert UniformAssignor().assign({}, {}) == {}
    assert ServerRangeAssignor().assign({}, {}) == {}
    assert UniformAssignor().assign({"m": ServerMember([])}, {}) == {"m": {}}


topics = st.sampled_from([A, B, C])
groups = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(lambda wanted: ServerMember(sorted(wanted)), st.sets(topics)),
    min_size=1,
    max_size=8,
)


@given(
    groups,
    st.fixed_dictionaries({A: st.integers(0, 9), B: st.integers(0, 9), C: st.integers(0, 9)}),
    groups,
)
@pytest.mark.slow
@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
def test_targets_are_total_disjoint_and_wanted(
    name: str, members: Members, counts: dict[bytes, int], later: Members
) -> None:
    assignor = SERVER_ASSIGNORS[name]()
    target = assignor.assign(members, counts)
    assert_target(members, counts, target)
    # Then some leave, some come, some want something else.
    changed = {
        member_id: ServerMember(one.topics, target.get(member_id, {}))
        for member_id, one in later.items()
    }
    target = assignor.assign(changed, counts)
    assert_target(changed, counts, target)
    assert assignor.assign(follow(changed, target), counts) == target, "a target is a fixed point"


def assert_target(members: Members, counts: dict[bytes, int], target: dict[str, Target]) -> None:
    wanted = {topic for one in members.values() for topic in one.topics}
    held = [(t, n) for one in target.values() for t, numbers in one.items() for n in numbers]
    assert sorted(held) == [(t, n) for t in sorted(wanted) for n in range(counts[t])]
    for name, one in target.items():
        assert set(one) <= set(members[name].topics)
        assert all(numbers == sorted(numbers) and numbers for numbers in one.values())


@given(groups, st.integers(0, 30))
def test_uniform_is_even_when_all_want_the_same(members: Members, count: int) -> None:
    alike = {name: ServerMember([A]) for name in members}
    target = UniformAssignor().assign(alike, {A: count})
    loads = [sum(map(len, one.values())) for one in target.values()]
    assert max(loads) - min(loads) <= 1


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=2, max_size=6),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_members_that_want_the_same_come_and_go(
    groups: list[set[str]], count: int, growth: int
) -> None:
    target: dict[str, Target] = {}
    for step, present in enumerate(groups):
        counts = {A: count + step * growth, B: 17, C: 0}
        members = {name: ServerMember((A, B, C), target.get(name, {})) for name in present}
        before = deepcopy(target)
        after = UniformAssignor().assign(members, counts)
        assert target == before, "what members have is never changed in place"
        assert_target(members, counts, after)
        loads = [sum(map(len, one.values())) for one in after.values()]
        assert max(loads) - min(loads) <= 1
        for name in present:
            had, has = (
                {(topic, number) for topic in one for number in one[topic]}
                for one in (before.get(name, {}), after[name])
            )
            assert had <= has or has <= had, "nobody gives something up and takes something else"
        target = after


def random_history(seed: int) -> tuple[dict[str, Any], Random]:
    random = Random(seed)
    topics = {
        f"{random.getrandbits(128):032x}": random.randint(0, random.choice((3, 8, 20, 60)))
        for _ in range(random.choice((1, 2, 5, 12, 14, 30)))
    }
    names = list(topics)
    shared = random.sample(names, random.randint(1, len(names)))
    mixed = random.random() < 0.6
    members = [
        {
            "id": f"m{random.getrandbits(32):x}",
            "topics": random.sample(names, random.randint(0, len(names))) if mixed else [*shared],
            "instance": f"i{random.randrange(1000)}" if random.random() < 0.1 else None,
        }
        for _ in range(random.choice((1, 2, 3, 5, 8, 15, 40)))
    ]
    name = random.choice(("uniform", "uniform", "range"))
    return {"server": True, "assignor": name, "topics": topics, "members": members}, random


def ours(scenario: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    members = {}
    for one in scenario["members"]:
        assigned: dict[bytes, list[int]] = {}
        for topic, number in one.get("owned", ()):
            assigned.setdefault(bytes.fromhex(topic), []).append(number)
        wanted = [bytes.fromhex(topic) for topic in one["topics"]]
        members[one["id"]] = ServerMember(wanted, assigned, one["instance"])
    counts = {bytes.fromhex(topic): count for topic, count in scenario["topics"].items()}
    target = SERVER_ASSIGNORS[scenario["assignor"]]().assign(members, counts)
    return {name: {t.hex(): numbers for t, numbers in one.items()} for name, one in target.items()}


def change(scenario: dict[str, Any], random: Random) -> None:
    members, topics = scenario["members"], scenario["topics"]
    kind = random.random()
    if kind < 0.3 and len(members) > 1:
        members.pop(random.randrange(len(members)))
    elif kind < 0.6:
        wanted = [*random.choice(members)["topics"]]
        members.append({"id": f"m{random.getrandbits(32):x}", "topics": wanted, "instance": None})
    elif kind < 0.8:
        topics[random.choice(list(topics))] += random.randint(0, 5)
    else:
        count = random.randint(1, len(topics))
        random.choice(members)["topics"] = random.sample(list(topics), count)


@pytest.mark.kafka
@pytest.mark.slow
def test_random_histories_go_as_in_kafkas_coordinator() -> None:
    with need(Oracle) as oracle:
        for seed in range(400):
            scenario, random = random_history(seed)
            for _ in range(4):
                for one in scenario["members"]:
                    # Java's sets remember insertion where hashes collide; ours enter by id.
                    one["topics"].sort(key=lambda topic: id_key(bytes.fromhex(topic)))
                    one.get("owned", []).sort(key=lambda tp: (id_key(bytes.fromhex(tp[0])), tp[1]))
                target = ours(scenario)
                theirs = oracle.ask(scenario)["assignment"]
                assert target == {name: theirs.get(name, {}) for name in target}, f"seed {seed}"
                for one in scenario["members"]:
                    held = target[one["id"]]
                    one["owned"] = [[topic, n] for topic in held for n in held[topic]]
                change(scenario, random)


def test_what_a_member_no_longer_wants_is_not_kept_for_it() -> None:
    members = {
        "m1": ServerMember((A,), {A: {0, 1}, B: {0, 1, 2}}),
        "m2": ServerMember((A,), {A: {2, 3}}),
    }
    target = UniformAssignor().assign(members, {A: 4, B: 3})
    assert target == {"m1": {A: [0, 1]}, "m2": {A: [2, 3]}}
    # Nor does it take the room of what the member wants instead.
    members["m1"] = ServerMember((A,), {B: {0, 1, 2}})
    assert UniformAssignor().assign(members, {A: 4, B: 3}) == target


def test_who_has_its_share_from_one_topic_gives_up_the_next_whole() -> None:
    members = {
        "m1": ServerMember((A, B), {A: {0, 1}, B: {0, 1}}),
        "m2": ServerMember((A, B)),
    }
    target = UniformAssignor().assign(members, {A: 2, B: 2})
    assert sorted(sum(map(len, one.values())) for one in target.values()) == [2, 2]
    assert len(target["m1"]) == 1
