"""Transactions that hold a group up: whose they are, since when, and what to do."""

from __future__ import annotations

from shoal import Admin
from shoal.fleet.diagnosis import diagnose
from shoal.fleet.open_transactions import (
    BlockingTransaction,
    PendingCommits,
    diagnose_pending_commits,
    diagnose_transactions,
    look_for_transactions,
)
from shoal.fleet.snapshots import MemberView, Snapshot
from shoal.types import TopicPartition
from tests.client.scripted_transactions import OPENED_AT, ScriptedCoordinator

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def blocking(
    tp: TopicPartition = T0,
    *,
    at: int = 120,
    committed: int = 120,
    owner: str | None = "billing-1",
    open_s: float = 45.0,
    behind: int = 7,
) -> BlockingTransaction:
    return BlockingTransaction(tp, at, committed, behind, 4000, owner, open_s)


def test_the_owner_and_the_time_are_named_and_how_to_end_it() -> None:
    (one,) = diagnose_transactions([blocking()])
    assert one.level == "problem"
    assert "orders-0 ends at offset 120" in one.what
    assert "'billing-1' (producer 4000) is open for 45 s" in one.what
    assert one.advice.endswith("shoal transaction abort billing-1")


def test_a_transaction_that_just_began_is_only_noted() -> None:
    assert diagnose_transactions([blocking(open_s=2.0)])[0].level == "note"


def test_a_group_that_has_not_come_to_it_yet_is_not_held_up() -> None:
    far = blocking(committed=20)
    assert not far.holds
    assert diagnose_transactions([far])[0].level == "note"


def test_a_transaction_nobody_will_end_is_a_problem_with_the_command_that_ends_it() -> None:
    (one,) = diagnose_transactions([blocking(owner=None, open_s=1.0)])
    assert one.level == "problem"
    assert "hangs" in one.what
    assert one.advice.endswith("shoal transaction abort --partition orders-0 --start-offset 120")


def test_one_transaction_in_many_partitions_is_one_finding() -> None:
    found = diagnose_transactions([blocking(), blocking(T1, behind=90), blocking(T1, owner="x")])
    assert len(found) == 2
    assert "orders-1 ends at" in found[0].what
    assert "and 1 more partitions" in found[0].what


def test_who_waits_for_a_transaction_is_not_called_stuck() -> None:
    member = MemberView("m", "reader", "h", None, frozenset({"orders"}), frozenset({T0}))
    looks = [
        Snapshot(at, "Stable", "range", {"m": member}, {T0: 7}, {T0: 127}) for at in (0.0, 5.0)
    ]
    assert any("no progress" in one.what for one in diagnose(looks))
    assert not any("no progress" in one.what for one in diagnose(looks, {T0}))


def test_offsets_that_a_transaction_is_about_to_commit_are_told_with_its_owner() -> None:
    assert diagnose_pending_commits(None) == []
    (one,) = diagnose_pending_commits(PendingCommits((T0, T1), ("billing-1",), 45.0))
    assert one.level == "problem"
    assert "a transaction of 'billing-1', open for 45 s" in one.what
    assert "2 partitions, the first is orders-0" in one.what
    assert one.advice.endswith("shoal transaction abort billing-1")
    (young,) = diagnose_pending_commits(PendingCommits((T0,), ("a", "b"), 1.0))
    assert young.level == "note"
    assert "'a' or 'b'" in young.what


def test_a_transaction_is_looked_for_where_the_group_stands_and_its_owner_with_it() -> None:
    tp = TopicPartition("t", 0)
    with ScriptedCoordinator(2) as cluster, Admin(bootstrap_servers=cluster.servers) as admin:

        def look(committed: int) -> list[BlockingTransaction]:
            last = Snapshot(0.0, "Stable", "range", {}, {tp: 20 - committed}, {tp: 20})
            return look_for_transactions(admin, last, 61_000)

        (one,) = look(OPENED_AT)
        assert (one.transactional_id, one.holds, one.open_s) == ("billing-1", True, 60.0)
        (far,) = look(OPENED_AT - 1)
        assert not far.holds
        assert look(OPENED_AT + 1) == [], "the group is past it"
        cluster.hangs = True  # its owner is in another transaction by now
        (hanging,) = look(OPENED_AT)
        assert hanging.transactional_id is None
