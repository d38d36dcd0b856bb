"""Names that tell members apart and can be read."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from shoal.fleet.member_names import SHOWN_MIN, MemberIdentity, member_names, short_names

FIRST = "3f2a6c1e-0d51-4c8a-9c0b-0a4a5b6c7d8e"
NEAR = "3f2a6c99-0d51-4c8a-9c0b-0a4a5b6c7d8e"
OTHER = "b0b0b0b0-0d51-4c8a-9c0b-0a4a5b6c7d8e"


def names(*members: MemberIdentity) -> list[str]:
    return list(member_names(members).values())


def test_a_name_is_the_client_id_and_the_beginning_of_the_uuid() -> None:
    one = MemberIdentity(f"shoal-{FIRST}", "shoal")
    assert names(one) == ["shoal-3f2a"]
    assert names(one, MemberIdentity(f"shoal-{OTHER}", "shoal")) == ["shoal-3f2a", "shoal-b0b0"]


def test_more_is_shown_of_ids_that_begin_alike() -> None:
    alike = [MemberIdentity(f"shoal-{uuid}", "shoal") for uuid in (FIRST, NEAR, OTHER)]
    assert names(*alike) == ["shoal-3f2a6c1", "shoal-3f2a6c9", "shoal-b0b0"]


def test_a_static_member_is_called_by_its_instance() -> None:
    assert names(MemberIdentity(f"till-1-{FIRST}", "shoal", "till-1")) == ["till-1"]


def test_an_id_of_the_new_protocol_is_shortened_too() -> None:
    assert names(MemberIdentity("wX4p1vXUQ2Kt0Yv0n3vB-Q", "rdkafka")) == ["rdkafka-wX4p"]
    assert names(MemberIdentity("g9XQbVCuSCq6XJdDoD+WV/", "rdkafka")) == ["rdkafka-g9XQ"]
    assert names(MemberIdentity(FIRST, "rdkafka")) == ["rdkafka-3f2a"]
    assert short_names(["wX4p1vXUQ2Kt0Yv0n3vB-Q"]) == ["wX4p"]


def test_the_past_knows_ids_alone_and_gives_the_same_names() -> None:
    ids = [f"consumer-billing-1-{FIRST}", f"consumer-billing-1-{OTHER}"]
    with_clients = [MemberIdentity(one, "consumer-billing-1") for one in ids]
    assert short_names(ids) == names(*with_clients)
    assert short_names(["worker"]) == ["worker"]
    assert short_names([]) == []


words = st.text("ab-", max_size=3)
identities = st.builds(
    lambda client, uuid, instance, is_classic: MemberIdentity(
        f"{instance or client}-{uuid}" if is_classic else str(uuid), client, instance
    ),
    words,
    # Few distinct digits, so that many begin alike.
    st.integers(0, 15).map(lambda number: UUID(int=number)),
    st.none() | words.filter(bool),
    st.booleans(),
)


@given(st.lists(identities, max_size=8, unique_by=lambda one: one.member_id))
def test_no_two_members_share_a_name(members: list[MemberIdentity]) -> None:
    found = member_names(members)
    assert list(found) == [one.member_id for one in members]
    assert len(set(found.values())) == len(members)


@given(st.uuids(), st.uuids(), words)
def test_a_name_keeps_its_beginning_when_others_join(one: UUID, other: UUID, client: str) -> None:
    member = MemberIdentity(f"{client}-{one}", client)
    alone = member_names([member])[member.member_id]
    joined = member_names([member, MemberIdentity(f"{client}-{other}", client)])[member.member_id]
    assert joined.startswith(alone)
    assert len(alone) <= len(client) + 1 + SHOWN_MIN
