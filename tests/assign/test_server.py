"""The coordinator's assignors (KIP-848): examples, properties, and Kafka's own as an oracle."""

from __future__ import annotations

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
