"""How long requests took: histograms by API, the slowest of a window."""

from __future__ import annotations

from time import perf_counter
from types import SimpleNamespace
from typing import Any

from shoal.broker.timings import WINDOW_S, RequestTimings
from shoal.wire.apis.registry import ApiKey


def reply(api_key: int, *, is_stored: bool = False, seconds: float = 0.0) -> Any:
    """Of a connection's exchange only what is looked at."""
    return SimpleNamespace(api_key=api_key, is_stored=is_stored, started=perf_counter() - seconds)


def test_only_what_was_stored_is_an_acknowledgement() -> None:
    found = RequestTimings(is_durable=True)
    found.answered(reply(ApiKey.PRODUCE, is_stored=True, seconds=2.0))
    found.answered(reply(ApiKey.PRODUCE))
    assert sum(found.answers()[ApiKey.PRODUCE].counts) == 2
    assert sum(found.acks().counts) == 1
    assert 2 <= found.acks().total < 3
    relaxed = RequestTimings(is_durable=False)
    relaxed.answered(reply(ApiKey.PRODUCE, is_stored=True))
    assert sum(relaxed.acks().counts) == 0


def test_what_no_api_is_has_no_series() -> None:
    found = RequestTimings(is_durable=True)
    for key in (-1, 4, 12_345, -32_768):
        found.answered(reply(key, seconds=1.0))
    assert found.answers() == {}
    assert found.slowest() == {}


def test_requests_together_count_each() -> None:
    found = RequestTimings(is_durable=False)
    found.took(ApiKey.PRODUCE, 0.25, 4)
    buckets = found.answers()[ApiKey.PRODUCE]
    assert (sum(buckets.counts), buckets.total) == (4, 1.0)


def test_the_slowest_is_forgotten_after_a_window_or_two() -> None:
    found = RequestTimings(is_durable=True)
    began = perf_counter()
    found.took(ApiKey.FETCH, 3.0, 1)
    assert found.slowest(began) == {ApiKey.FETCH: 3.0}
    assert found.slowest(began + WINDOW_S + 1)[ApiKey.FETCH] == 3.0
    found.took(ApiKey.FETCH, 1.0, 1)
    assert found.slowest(began + WINDOW_S + 2)[ApiKey.FETCH] == 3.0
    assert found.slowest(began + 2 * WINDOW_S + 3)[ApiKey.FETCH] == 3.0
    assert found.slowest(began + 2 * WINDOW_S + 4)[ApiKey.FETCH] == 1.0
    assert found.slowest(began + 4 * WINDOW_S)[ApiKey.FETCH] == 1.0
    assert found.slowest(began + 4 * WINDOW_S) == {}
