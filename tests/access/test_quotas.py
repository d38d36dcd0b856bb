"""Quotas: which one counts, and how long who did more has to wait."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from itertools import product
from math import ceil
from random import Random

import pytest

from shoal.access.quotas import (
    CLIENT_ID,
    USER,
    QuotaKey,
    Quotas,
    entity_problem,
    quota_entity,
    value_problem,
)

PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST
# From the most exact to the least, as Kafka documents it.
PRECEDENCE = [
    ((USER, "ann"), (CLIENT_ID, "app")),
    ((USER, "ann"), (CLIENT_ID, None)),
    ((USER, "ann"),),
    ((USER, None), (CLIENT_ID, "app")),
    ((USER, None), (CLIENT_ID, None)),
    ((USER, None),),
    ((CLIENT_ID, "app"),),
    ((CLIENT_ID, None),),
]


def quotas(**limits: float) -> Quotas:
    made = Quotas()
    made.replace(((USER, "ann"),), {QuotaKey[key].value: value for key, value in limits.items()})
    return made


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_exact_quota_counts(first):
    made = Quotas()
    for number, entity in enumerate(PRECEDENCE[first:], first):
        made.replace(entity, {PRODUCE.value: 100.0 + number})
    found = made.limit(PRODUCE, "ann", "app")
    assert found is not None
    assert found.per_second == 100 + first


def test_each_key_is_looked_for_on_its_own():
    made = Quotas()
    made.replace(((USER, "ann"),), {PRODUCE.value: 1.0})
    made.replace(((USER, None),), {PRODUCE.value: 2.0, FETCH.value: 3.0})
    produce, fetch = made.limit(PRODUCE, "ann", "x"), made.limit(FETCH, "ann", "x")
    assert produce is not None
    assert fetch is not None
    assert (produce.per_second, fetch.per_second) == (1.0, 3.0)
    assert made.limit(REQUEST, "ann", "x") is None


def test_who_shares_the_names_of_a_quota_shares_its_rate():
    made = Quotas()
    made.replace(((USER, None),), {PRODUCE.value: 100})
    for client in ("a", "b"):
        made.charge(PRODUCE, "ann", client, 1_000, 0)
    assert made.charge(PRODUCE, "ann", "c", 500, 0) == pytest.approx(23_000)
    assert made.charge(PRODUCE, "bob", "a", 200, 0) == 0
    by_client = Quotas()
    by_client.replace(((CLIENT_ID, None),), {PRODUCE.value: 100})
    by_client.charge(PRODUCE, "ann", "a", 1_000, 0)
    assert by_client.charge(PRODUCE, "bob", "a", 100, 0) > 0
    assert by_client.charge(PRODUCE, "bob", "b", 100, 0) == 0


def test_two_seconds_worth_go_through_and_what_is_more_waits():
    made = quotas(PRODUCE=100)
    assert made.charge(PRODUCE, "ann", "app", 200, 0) == 0
    assert made.charge(PRODUCE, "ann", "app", 100, 0) == pytest.approx(1_000)
    # When that is paid there is nothing to spare, and after a while there is again.
    assert made.charge(PRODUCE, "ann", "app", 10, 1_000) == pytest.approx(100)
    assert made.charge(PRODUCE, "ann", "app", 150, 2_600) == 0
    assert made.charge(PRODUCE, "ann", "app", 200, 60_000) == 0
    assert made.charge(PRODUCE, "ann", "app", 1, 60_000) == pytest.approx(10)


@pytest.mark.parametrize(
    ("seconds_worth", "late_ms", "clients"),
    [
        case
        for case in product((0.016, 0.064, 0.4, 1.0), (0, 1, 40, 400), (1, 7))
        # Who comes back so late that the quota is not what holds them back is not measured.
        if case[0] * 1_000 * case[2] >= 2 * case[1]
    ],
)
def test_any_thirty_seconds_hold_the_rate(seconds_worth, late_ms, clients):
    """Whenever they begin, however large the answers are and however late their clients ask again.

    At most there are two seconds' worth to spare, and one answer to each client before it waits.
    """
    limit, chance = 1_000_000, Random(5)
    made, size = quotas(FETCH=limit), limit * seconds_worth
    asked = [(0.0, number) for number in range(clients)]
    taken: list[float] = []
    while (now_ms := asked[0][0]) < 120_000:
        _, client = heappop(asked)
        taken.append(now_ms)
        wait_ms = ceil(made.charge(FETCH, "ann", "app", size, now_ms))
        heappush(asked, (now_ms + wait_ms + 0.1 + chance.uniform(0, 2 * late_ms), client))
    for begin_ms in range(0, 90_000, 500):
        held = size * (bisect_left(taken, begin_ms + 30_000) - bisect_left(taken, begin_ms))
        assert 27 <= held / limit <= 30 + 2 + clients * seconds_worth, begin_ms


def test_what_is_owed_is_owed_by_a_new_connection_too():
    made = quotas(PRODUCE=100)
    assert made.charge(PRODUCE, "ann", "app", 5_000, 0) == pytest.approx(48_000)
    assert made.charge(PRODUCE, "ann", "app", 100, 30_000) == pytest.approx(19_000)


def test_a_new_quota_begins_anew():
    made = quotas(PRODUCE=1)
    assert made.charge(PRODUCE, "ann", "app", 10_000_000, 0) == 3_600_000
    made.replace(((USER, "ann"),), {PRODUCE.value: 1_000_000.0})
    assert made.charge(PRODUCE, "ann", "app", 1_000, 10) == 0


def test_request_time_costs_a_second_at_most_and_is_forgotten_after_ten():
    made = quotas(REQUEST=1)
    assert made.charge(REQUEST, "ann", "app", 1_000, 0) == 1_000
    assert made.charge(REQUEST, "ann", "app", 0, 9_000) == 1_000
    assert made.charge(REQUEST, "ann", "app", 0, 9_500) == 500
    assert made.charge(REQUEST, "ann", "app", 0, 10_000) == 0


def test_changes_of_topics_are_tokens():
    made = quotas(MUTATION=10)
    # A full bucket is eleven seconds' worth.
    assert made.mutations_wait_ms("ann", "app", 0) == 0
    assert made.charge_mutations("ann", "app", 110, 0) == 0
    assert made.charge_mutations("ann", "app", 20, 0) == pytest.approx(2_000)
    assert made.mutations_wait_ms("ann", "app", 1_500) == pytest.approx(500)
    assert made.mutations_wait_ms("ann", "app", 2_000) == 0
    assert made.mutations_wait_ms("bob", "app", 0) == 0


def test_a_quota_that_is_removed_holds_nobody_back():
    made = quotas(PRODUCE=1)
    assert made.is_set
    assert made.charge(PRODUCE, "ann", "app", 1_000, 0) > 0
    made.replace(((USER, "ann"),), {})
    assert not made.is_set
    assert made.charge(PRODUCE, "ann", "app", 1_000, 0) == 0


def test_rates_nobody_uses_are_forgotten():
    made = Quotas()
    made.replace(((CLIENT_ID, None),), {PRODUCE.value: 1.0})
    for number in range(20_000):
        made.charge(PRODUCE, "ann", str(number), 1, 0)
    assert len(made._paces) <= 10_000
    made.charge(PRODUCE, "ann", "last", 1, 3_600_001)
    assert len(made._paces) == 1


def test_a_fetch_takes_no_more_than_a_second_allows():
    assert quotas(FETCH=100).fetch_bytes_max("ann", "app") == 100
    assert quotas(PRODUCE=100).fetch_bytes_max("ann", "app") is None


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "empty"),
        ([("ip", "host.example")], "is not an address"),
        ([("ip", "::1"), (USER, "ann")], "goes with no user"),
        ([("group", "g")], "is not user, client-id or ip"),
        ([(USER, "")], "empty name"),
    ],
)
def test_there_is_no_such_entity(parts, why):
    assert why in entity_problem(parts)


def test_an_entity_has_one_form():
    turned = [(CLIENT_ID, None), (USER, "ann")]
    assert entity_problem(turned) == ""
    assert quota_entity(turned) == ((USER, "ann"), (CLIENT_ID, None))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("speed", 1.0, "not one of producer_byte_rate"),
        ("producer_byte_rate", 0.0, "more than 0"),
        ("producer_byte_rate", -1.0, "more than 0"),
        ("producer_byte_rate", float("nan"), "more than 0"),
        ("producer_byte_rate", float("inf"), "more than 0"),
        ("consumer_byte_rate", 1.5, "whole number"),
    ],
)
def test_there_is_no_such_quota(key, value, why):
    assert why in value_problem(key, value)
    assert (
        value_problem("request_percentage", 1.5) == value_problem("request_percentage", None) == ""
    )


def test_addresses_have_quotas_of_connections_and_of_nothing_else():
    assert entity_problem([("ip", "::1")]) == entity_problem([("ip", None)]) == ""
    assert value_problem("connection_creation_rate", 5, of_ip=True) == ""
    assert "whole number" in value_problem("connection_creation_rate", 0.5, of_ip=True)
    assert "not one of" in value_problem("connection_creation_rate", 5)
    assert "not one of connection" in value_problem("producer_byte_rate", 5, of_ip=True)


def test_a_connection_too_many_is_counted_for_its_address_alone_and_not_when_turned_away():
    found = Quotas()
    found.replace((("ip", None),), {"connection_creation_rate": 1.0})
    found.replace((("ip", "10.0.0.1"),), {"connection_creation_rate": 2.0})
    waits = [found.charge_connection("10.0.0.9", 5_000) for _ in range(14)]
    admitted = waits.count(0.0)
    assert admitted == 10
    assert all(wait > 0 for wait in waits[admitted:])
    assert found.charge_connection("10.0.0.8", 5_000) == 0.0
    more = [found.charge_connection("10.0.0.1", 5_000) for _ in range(30)]
    assert more.count(0.0) == 20
    # Whoever was turned away many times does not wait any longer for it.
    for now_ms in range(5_100, 6_000, 10):
        assert found.charge_connection("10.0.0.9", now_ms) > 0
    assert found.charge_connection("10.0.0.9", 6_000) == 0.0
    assert found.charge_connection("10.0.0.9", 6_000) == pytest.approx(1_000)
    assert Quotas().charge_connection("10.0.0.9", 5_000) == 0.0
