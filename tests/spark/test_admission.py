"""How far a micro-batch goes: limits, minimums, and the delay after which less is enough."""

from __future__ import annotations

from shoal.spark.admission import BatchAdmission
from shoal.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
START, LATEST = {A: 0, B: 0}, {A: 30, B: 10}


def test_without_limits_everything_is_admitted() -> None:
    assert BatchAdmission().end(START, LATEST, 0) == LATEST


def test_a_limit_of_rows_is_shared_by_the_backlogs() -> None:
    assert BatchAdmission(rows_max=20).end(START, LATEST, 0) == {A: 15, B: 5}


def test_fewer_rows_than_the_minimum_wait_for_the_delay_and_no_longer() -> None:
    admission = BatchAdmission(rows_min=100, delay_ms=5_000)
    assert admission.end(START, LATEST, 1_000) == START
    assert admission.end(START, LATEST, 5_999) == START
    assert admission.end(START, LATEST, 6_000) == LATEST
    # From then on the delay counts from that batch.
    more = {A: 31, B: 10}
    assert admission.end(LATEST, more, 10_999) == LATEST
    assert admission.end(LATEST, more, 11_000) == more


def test_enough_rows_do_not_wait() -> None:
    assert BatchAdmission(rows_min=40, delay_ms=5_000).end(START, LATEST, 1_000) == LATEST


def test_the_last_batch_of_a_query_takes_what_is_there() -> None:
    admission = BatchAdmission(rows_min=100, delay_ms=5_000)
    assert admission.end(START, LATEST, 1_000, finishing=True) == LATEST


def test_a_limit_of_bytes_counts_the_size_of_the_records() -> None:
    admission = BatchAdmission(bytes_max=400)
    assert admission.end(START, LATEST, 0, row_bytes=lambda: {A: 20.0, B: 20.0}) == {A: 15, B: 5}
