"""Commits that are stored, stored again, and lost; and what that is in each scheme."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.lab import SCHEMES, Act, Event, Timing, built_in, run_scenario
from shoal.lab.commits import CommitBook
from shoal.types import TopicPartition
from tests.lab.trouble import LIGHT

TP = TopicPartition("t", 0)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def counted(book: CommitBook) -> tuple[int, int, int]:
    book.finish()
    return book.made_count, book.lost, book.repeated


def test_a_commit_that_is_stored_and_answered_is_neither_lost_nor_repeated() -> None:
    book = CommitBook(Clock())
    for offset in (5, 5, 8):
        book.made([(TP, offset)])
        book.stored(TP, offset)
        book.answered([(TP, offset)])
    assert counted(book) == (3, 0, 0)


def test_a_commit_sent_again_and_stored_twice_is_repeated_once() -> None:
    book = CommitBook(Clock())
    book.made([(TP, 5)])
    book.stored(TP, 5)
    book.made([(TP, 5)])
    book.stored(TP, 5)
    book.answered([(TP, 5)])
    assert counted(book) == (1, 0, 1)


def test_a_refused_commit_is_lost_and_so_is_one_that_nobody_answered() -> None:
    clock = Clock()
    book = CommitBook(clock)
    book.made([(TP, 5), (TP, 6)])
    book.answered([(TP, 5)])
    clock.now_ms = 5_000
    assert counted(book) == (2, 2, 0)


def test_a_commit_under_way_at_the_end_is_not_lost() -> None:
    book = CommitBook(Clock())
    book.made([(TP, 5)])
    assert counted(book) == (1, 0, 0)


def test_a_commit_that_was_stored_though_the_answer_was_lost_is_not_lost() -> None:
    clock = Clock()
    book = CommitBook(clock)
    book.made([(TP, 5)])
    book.stored(TP, 5)
    clock.now_ms = 5_000
    assert counted(book) == (1, 0, 0)


# --- in the schemes ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_in_a_quiet_group_every_commit_is_stored_once(scheme: str) -> None:
    quiet = replace(built_in("member-joins"), events=(), duration_ms=30_000)
    metrics = run_scenario(quiet, scheme).metrics
    assert metrics.commits > 6 * 5
    assert metrics.commits_lost == metrics.commits_repeated == metrics.commits_backwards == 0


@pytest.mark.parametrize("scheme", ["central", "eager", "cooperative", "incremental"])
def test_with_generations_the_commits_of_who_was_cut_off_are_lost(scheme: str) -> None:
    metrics = run_scenario(built_in("network-cut"), scheme, seed=3).metrics
    assert metrics.commits_lost > 0
    assert metrics.commits_backwards == 0


def test_without_them_they_are_stored_and_move_the_group_back() -> None:
    metrics = run_scenario(built_in("network-cut"), "watchers", seed=3).metrics
    assert metrics.commits_lost == 0, "a registry takes offsets from anybody"
    assert metrics.commits_backwards > 0
    assert metrics.records_twice > 0


def test_a_registry_that_fails_makes_members_write_their_offsets_again() -> None:
    far = replace(
        built_in("coordinator-failover"),
        events=(Event(4_000, Act.FAILOVER, for_ms=1_000, jitter_ms=3_000),),
        timing=Timing(network_delay_ms=400),
        work=replace(LIGHT, commit_interval_ms=500),
        duration_ms=12_000,
        warmup_ms=5_000,
    )
    runs = [run_scenario(far, "watchers", seed=seed).metrics for seed in range(20)]
    assert sum(metrics.commits_repeated for metrics in runs) > 0
    assert all(metrics.commits_lost == 0 for metrics in runs)


def test_an_offset_read_from_a_server_that_lags_is_an_old_one() -> None:
    """Nobody lost a session and no claim was overlooked: only the offset was stale."""
    mended = built_in("split-brain-mended")
    stale = [run_scenario(mended, "watchers", seed=seed).metrics for seed in range(4)]
    assert any(metrics.records_twice > 100 for metrics in stale)
    assert all(metrics.two_owners == 0 for metrics in stale)
    synced = replace(mended, registry=replace(mended.registry, sync=True))
    fresh = [run_scenario(synced, "watchers", seed=seed).metrics for seed in range(4)]
    assert all(metrics.records_twice <= 2 for metrics in fresh)
