"""Commits and fetches of members of a consumer group: by epoch, and by partition (KIP-1251)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from tests.group.consumer_shell import Client, ConsumerShell, config

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def shell() -> ConsumerShell:
    """``a`` is at epoch 2 and gives up 2 and 3 of four partitions; ``b`` is at 3 with nothing."""
    made = ConsumerShell()
    made.topic("t", 4)
    made.topic("u", 1)
    Client(made, "a").join("t")
    Client(made, "b").join("t")
    made.beat("a", 2)
    return made


def commit(
    shell: ConsumerShell, member_id: str, epoch: int, partition: int = 0, *, version: int = 9
) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            OffsetCommitRequest.Topic(
                name="t",
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=partition, committed_offset=7, committed_metadata=""
                    )
                ],
            )
        ],
    )
    (topic,) = shell.ask(request, version=version).topics
    return ErrorCode.of(topic.partitions[0].error_code)


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "error"),
    [
        ("a", 2, 0, NONE),
        ("a", 2, 3, NONE),  # It is being given up: the last word is allowed.
        ("a", 3, 0, STALE),
        ("b", 3, 0, NONE),  # At its epoch a member is believed whatever it commits.
        ("b", 2, 0, STALE),  # It has never had it.
        ("a", -1, 0, STALE),
        ("x", 2, 0, UNKNOWN),
        ("", -1, 0, UNKNOWN),
    ],
)
def test_commits(
    shell: ConsumerShell, member_id: str, epoch: int, partition: int, error: ErrorCode
) -> None:
    assert commit(shell, member_id, epoch, partition) == error


def test_an_older_epoch_holds_for_what_was_kept(shell: ConsumerShell) -> None:
    """KAFKA-20066: ``a`` commits with the epoch it had before the rebalance ended."""
    shell.beat("a", 2, owned={"t": [0, 1]})
    assert shell.member("a").current.member_epoch == 3
    assert commit(shell, "a", 2, 0) == NONE
    assert commit(shell, "a", 2, 3) == STALE
    shell.beat("b", 3)
    assert commit(shell, "b", 2, 3) == STALE, "it has it since epoch 3"
    assert commit(shell, "b", 3, 3) == NONE
    assert commit(shell, "a", 1, 0) == STALE


def test_old_clients_cannot_commit_as_members(shell: ConsumerShell) -> None:
    assert commit(shell, "a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_anybody_may_commit_to_a_group_without_members(shell: ConsumerShell) -> None:
    shell.leave("a")
    shell.leave("b")
    assert commit(shell, "", -1) == NONE
    assert commit(shell, "a", 2) == UNKNOWN


def test_a_commit_does_not_keep_a_session(shell: ConsumerShell) -> None:
    shell.advance(44_000)
    assert commit(shell, "a", 2) == NONE
    shell.advance(1_000)
    assert not shell.consumer_group().members


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [("a", 2, NONE), ("a", 1, ErrorCode.ILLEGAL_GENERATION), ("x", 2, UNKNOWN), ("", -1, NONE)],
)
def test_commits_in_transactions(
    shell: ConsumerShell, member_id: str, epoch: int, error: ErrorCode
) -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequest.Topic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequest.Partition(
                        partition_index=0, committed_offset=3, committed_metadata=""
                    )
                ],
            )
        ],
    )
    (topic,) = shell.ask(request, version=5).topics
    assert topic.partitions[0].error_code == error


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [("a", 2, NONE), ("a", 1, STALE), ("a", 3, STALE), ("x", 2, UNKNOWN), (None, -1, NONE)],
)
def test_fetches(shell: ConsumerShell, member_id: str | None, epoch: int, error: ErrorCode) -> None:
    commit(shell, "a", 2)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.Group(
                group_id="g", member_id=member_id, member_epoch=epoch, topics=None
            )
        ]
    )
    (group,) = shell.ask(request, version=9).groups
    assert group.error_code == error
    assert bool(group.topics) == (error is NONE)


def test_offsets_of_topics_that_are_read_stay(shell: ConsumerShell) -> None:
    commit(shell, "a", 2)

    def delete(topic: str) -> Any:
        partition = OffsetDeleteRequest.Partition(partition_index=0)
        row = OffsetDeleteRequest.Topic(name=topic, partitions=[partition])
        (answer,) = shell.ask(OffsetDeleteRequest(group_id="g", topics=[row])).topics
        return answer.partitions[0].error_code

    assert delete("t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete("u") == ErrorCode.NONE
    shell.leave("a")
    shell.leave("b")
    assert delete("t") == ErrorCode.NONE


def test_offsets_of_an_empty_group_expire_by_their_commits() -> None:
    """Nobody notes when it became empty, so they may go at once."""
    shell = ConsumerShell(replace(config(), offsets_retention_minutes=1))
    shell.topic("t", 4)
    a = Client(shell, "a").join("t")
    assert commit(shell, "a", 2) == NONE
    for _ in range(20):
        shell.advance(40_000)
        a.beat()
    assert shell.coordinator.offsets.by_topic("g"), "it is read"
    shell.leave("a")
    shell.advance(600_000)
    assert not shell.coordinator.groups
    assert not shell.coordinator.offsets.by_topic("g")
