"""Random groups for comparing assignors: mostly plain, some messy, a few hostile; one seed each."""

from __future__ import annotations

from random import Random
from typing import Any

from shoal.assign.scenario import answer, subscription_of
from shoal.assign.user_data import encode_sticky

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
RACKS = ("a", "b", "c", None)

Scenario = dict[str, Any]


def random_scenario(seed: int) -> Scenario:
    """One group in the form of ``shoal.assign.scenario``."""
    random = Random(seed)
    assignor = random.choices(ASSIGNORS, weights=(1, 1, 3, 3))[0]
    scenario: Scenario = {
        "assignor": assignor,
        "topics": _topics(random),
        "members": [],
    }
    lists = _topic_lists(random, list(scenario["topics"]))
    racks = random.random() < 0.3
    for member_id in _member_ids(random):
        member: dict[str, Any] = {"id": member_id, "topics": lists(), "generation": -1}
        if random.random() < 0.15:
            member["instance"] = f"instance-{random.randrange(1000)}"
        if racks and random.random() < 0.9:
            member["rack"] = random.choice(("a", "b", "c", "d", ""))
        scenario["members"].append(member)
    if racks:
        _place_replicas(random, scenario["topics"])
    if assignor in ("sticky", "cooperative-sticky"):
        _claim(random, scenario)
    return scenario


def _topics(random: Random) -> dict[str, Any]:
    most = random.choice((2, 5, 10, 40))
    style = random.choice(("t{}", "topic-{}", "orders.{}", "A_{}"))
    numbers = random.sample(range(1000), random.randint(1, most))
    size = random.choice((1, 3, 8, 20, 60))
    return {style.format(number): random.randint(0, size) for number in numbers}


def _place_replicas(random: Random, topics: dict[str, Any]) -> None:
    """Racks for most topics: all alike, or one to three per partition."""
    everywhere = random.random() < 0.2
    for topic, count in topics.items():
        if random.random() < 0.9:
            topics[topic] = [
                ["a", "b", "c"] if everywhere else random.choices(RACKS, k=random.randint(1, 3))
                for _ in range(count)
            ]


def _member_ids(random: Random) -> list[str]:
    count = random.choice((1, 2, 3, 5, 8, 15, 40))
    style = random.randrange(5)
    if style == 0:
        ids = [f"consumer-{number}" for number in range(count)]
    elif style == 1:
        ids = [f"c{number}" for number in random.sample(range(1000), count)]
    elif style == 2:
        # Java hashes Aa and BB alike, so all of these meet in one bucket. Eight would make a tree.
        ids = ["AaAaAa", "AaAaBB", "AaBBAa", "AaBBBB", "BBAaAa", "BBAaBB", "BBBBAa"][:count]
    elif style == 3:
        # Code points and UTF-16 units sort differently here.
        ids = [chr(random.choice((0x41, 0x30A2, 0xFF21, 0x1F41F))) + str(n) for n in range(count)]
    else:
        ids = [
            f"client-{random.getrandbits(32):08x}-{random.getrandbits(16)}" for _ in range(count)
        ]
    random.shuffle(ids)
    return list(dict.fromkeys(ids))


def _topic_lists(random: Random, topics: list[str]) -> Any:
    """A function that gives each member its topics."""
    kind = random.random()
    pool = topics + ["missing"] * (random.random() < 0.1)
    if kind < 0.4:
        shared = random.sample(pool, random.randint(1, len(pool)))
        return lambda: list(shared)
    if kind < 0.6:
        classes = [random.sample(pool, random.randint(1, len(pool))) for _ in range(2)]
        return lambda: list(random.choice(classes))
    if kind < 0.95:
        return lambda: random.sample(pool, random.randint(random.random() > 0.1, len(pool)))
    return lambda: random.choices(pool, k=random.randint(0, len(pool)))  # may repeat a topic


def _claim(random: Random, scenario: Scenario) -> None:
    """Give members something they own: from an earlier round, or made up."""
    kind = random.random()
    if kind < 0.2:
        return
    if kind < 0.65:
        owned = _earlier_round(random, scenario)
    else:
        owned = _made_up(random, scenario)
    mixed = random.random() < 0.4
    for member in scenario["members"]:
        pairs = owned.get(member["id"], [])
        generation = random.choice((-1, 3, 4, 5)) if mixed else 5
        if not pairs and random.random() < 0.7:
            continue
        if scenario["assignor"] == "sticky":
            if random.random() < 0.3:
                member["generation"] = generation
            member["sticky"] = {"owned": pairs, "generation": generation}
            if random.random() < 0.03:
                _spoil(random, member)
        else:
            member["owned"] = pairs
            if random.random() < 0.7:
                member["generation"] = generation
            elif random.random() < 0.8:
                member["coopGen"] = generation


def _earlier_round(random: Random, scenario: Scenario) -> dict[str, list[Any]]:
    """What an earlier generation of the group had: other members, other topics, other sizes."""
    members = [{**member, "topics": list(member["topics"])} for member in scenario["members"]]
    for number in range(random.choice((0, 0, 1, 3))):
        members.append({"id": f"gone-{number}", "topics": list(random.choice(members)["topics"])})
    for _ in range(random.choice((0, 0, 1, 3))):
        if len(members) > 1:
            members.pop(random.randrange(len(members)))
    topics = dict(scenario["topics"])
    if random.random() < 0.2:
        for topic, count in topics.items():
            if isinstance(count, int) and random.random() < 0.5:
                # Grown since, or (seldom, for it must have been made anew) shrunk.
                topics[topic] = max(0, count + random.choice((-2, -1, -1, -1, 1)))
    earlier = {"assignor": scenario["assignor"], "topics": topics, "members": members}
    owned: dict[str, list[Any]] = answer(earlier)["assignment"]
    return owned


def _made_up(random: Random, scenario: Scenario) -> dict[str, list[Any]]:
    ghosts = 1 if random.random() < 0.1 else 0
    every = [
        [topic, partition]
        for topic, count in scenario["topics"].items()
        for partition in range((count if isinstance(count, int) else len(count)) + ghosts)
    ]
    members = [member["id"] for member in scenario["members"]]
    doubled = random.random() < 0.3
    favourites = random.sample(members, max(1, len(members) // random.choice((1, 2, 4))))
    owned: dict[str, list[Any]] = {member_id: [] for member_id in members}
    random.shuffle(every)
    for pair in every:
        if random.random() < 0.8:
            owned[random.choice(favourites)].append(pair)
        if doubled and random.random() < 0.1:
            owned[random.choice(members)].append(pair)
    if random.random() < 0.05:
        owned[random.choice(members)].append(["missing", 0])
    return owned


def _spoil(random: Random, member: dict[str, Any]) -> None:
    """Damage user data as a broken peer might."""
    data = bytearray(subscription_of(member).user_data or b"")
    kind = random.randrange(4)
    if kind == 0:
        data = data[: random.randrange(len(data))]
    elif kind == 1:
        data = data[:-4]  # as version 0 wrote it
    elif kind == 2:
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
    else:
        data = bytearray(encode_sticky([], 5)) + data
    del member["sticky"]
    member["userData"] = data.hex()
