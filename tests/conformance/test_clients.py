"""The Python and JavaScript clients against our broker: one list of checks for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.client import PARTITIONS, Client, Door, until
from tests.conformance.node_clients import KAFKAJS, PLATFORMATIC, NodeClient
from tests.conformance.own_client import Shoal
from tests.conformance.python_clients import PYTHON_CLIENTS

pytestmark = [
    pytest.mark.slow,
    # Not ours to mend: a client may forget a socket.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def marks_of(client: Client) -> tuple[pytest.MarkDecorator, ...]:
    return () if isinstance(client, Shoal) else (pytest.mark.peer,)


CLIENTS: tuple[Client, ...] = (Shoal(), *PYTHON_CLIENTS, KAFKAJS, PLATFORMATIC)
every_client = pytest.mark.parametrize(
    "client", [pytest.param(each, marks=marks_of(each), id=each.name) for each in CLIENTS]
)
ALL_PARTITIONS = frozenset(PARTITIONS)


def values(count: int, mark: str = "") -> list[bytes]:
    return [f"{mark}{number:06d}".encode() + b"x" * 50 for number in range(count)]


def consume_all(client: Client, door: Door, topic: str, group: str, count: int) -> list[bytes]:
    member = client.member(door, topic, group, strategy=client.strategies[0], instance=None)
    until(lambda: len(member.values) >= count, f"{count} records")
    member.stop()
    return sorted(member.values)


def codecs() -> Iterator[object]:
    """Every codec of every client. A Node process costs seconds: CI takes its two extremes."""
    for client in CLIENTS:
        for codec in client.codecs:
            in_ci = not isinstance(client, NodeClient) or codec in ("none", "zstd")
            marks = marks_of(client) if in_ci else (pytest.mark.long,)
            yield pytest.param(client, codec, marks=marks, id=f"{client.name}-{codec}")


@pytest.mark.parametrize(("client", "codec"), list(codecs()))
def test_produces_and_consumes(client, codec, door, topic):
    sent = values(200)
    assert client.produce(door, topic, sent, codec=codec, idempotent=False) == 200
    assert consume_all(client, door, topic, f"g-{topic}", 200) == sent


@every_client
def test_produces_idempotently(client, door, topic):
    sent = values(100)
    client.produce(door, topic, sent, codec="none", idempotent=True)
    assert consume_all(client, door, topic, f"g-{topic}", 100) == sent


@every_client
def test_uses_tls_and_scram(client, guarded_door, topic):
    sent = values(50)
    client.produce(guarded_door, topic, sent, codec="none", idempotent=False)
    assert consume_all(client, guarded_door, topic, f"g-{topic}", 50) == sent


def share(client: Client, door: Door, topic: str, strategy: str) -> None:
    """One joins, another joins, the first leaves; nothing is ever owned twice at rest."""
    if strategy not in client.strategies:
        pytest.skip(f"this client has no {strategy} assignor")
    group = f"g-{topic}"
    first = client.member(door, topic, group, strategy=strategy, instance=None)
    until(lambda: first.assignment == ALL_PARTITIONS, "the first member owns everything")
    second = client.member(door, topic, group, strategy=strategy, instance=None)
    until(
        lambda: (
            len(first.assignment) == len(second.assignment) == 2
            and first.assignment | second.assignment == ALL_PARTITIONS
        ),
        "two members own two partitions each",
    )
    sent = values(100)
    client.produce(door, topic, sent, codec="none", idempotent=False)
    until(lambda: len(first.values) + len(second.values) >= 100, "everything is read")
    first.stop()
    until(lambda: second.assignment == ALL_PARTITIONS, "the second member took over")
    second.stop()
    assert sorted(first.values + second.values) == sent


@every_client
def test_shares_a_topic_by_range(client, door, topic):
    share(client, door, topic, "range")


@every_client
def test_shares_a_topic_by_roundrobin(client, door, topic):
    share(client, door, topic, "roundrobin")


@every_client
def test_shares_a_topic_by_sticky(client, door, topic):
    share(client, door, topic, "sticky")


@every_client
def test_shares_a_topic_cooperatively(client, door, topic):
    share(client, door, topic, "cooperative-sticky")


@every_client
def test_restarts_a_static_member_without_a_rebalance(client, door, topic, generation):
    if not client.static:
        pytest.skip("this client has no static membership")
    group, strategy = f"g-{topic}", client.strategies[0]
    members = [
        client.member(door, topic, group, strategy=strategy, instance=name) for name in ("a", "b")
    ]
    until(
        lambda: sum(len(m.assignment) for m in members) == 4 and all(m.assignment for m in members),
        "both own something",
    )

    before, owned = generation(group), members[0].assignment
    members[0].stop()
    again = client.member(door, topic, group, strategy=strategy, instance="a")
    until(lambda: again.assignment == owned, "the same partitions come back")
    assert generation(group) == before
    again.stop()
    members[1].stop()


@every_client
def test_commits_and_resumes(client, door, topic):
    group = f"g-{topic}"
    client.produce(door, topic, values(60, "a"), codec="none", idempotent=False)
    assert len(consume_all(client, door, topic, group, 60)) == 60
    client.produce(door, topic, values(40, "b"), codec="none", idempotent=False)
    assert consume_all(client, door, topic, group, 40) == values(40, "b")
    assert sum(client.committed(door, topic, group).values()) == 100


@every_client
def test_resets_offsets(client, door, topic):
    group = f"g-{topic}"
    client.produce(door, topic, values(80), codec="none", idempotent=False)
    consume_all(client, door, topic, group, 80)
    beginning = dict.fromkeys(PARTITIONS, 0)
    client.commit(door, topic, group, beginning)
    assert client.committed(door, topic, group) == beginning
    assert consume_all(client, door, topic, group, 80) == values(80)


@every_client
def test_describes_groups(client, door, topic):
    group = f"g-{topic}"
    member = client.member(door, topic, group, strategy=client.strategies[0], instance=None)
    until(lambda: member.assignment, "it is a member")
    assert client.describe(door, group) == ("Stable", 1)
    member.stop()
    assert client.describe(door, group) == ("Empty", 0)


@every_client
def test_deletes_groups(client, door, topic):
    if not client.deletes_groups:
        pytest.skip("this client has no call for it")
    group = f"g-{topic}"
    client.commit(door, topic, group, {0: 0})
    assert client.describe(door, group) == ("Empty", 0)
    client.delete_group(door, group)
    assert client.describe(door, group)[0] == "Dead"
