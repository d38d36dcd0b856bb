"""Nothing leaves before the disk: what a real broker says while syncs stall, fail and lose power.

An answer is a promise. While a sync is under way nobody hears of what it stores: not who wrote it,
and not others. If it fails, who wrote it is told so. After a power cut everything is there that
was promised.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.broker import coordinator_runtime
from shoal.errors import ErrorCode
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.broker.asking import fetch_request
from tests.broker.raw_client import batch, values_of
from tests.broker.slow_disk import Client, SlowPlatform, serving

LATEST = -1
# Requests in front of the one that is looked at: the second of a kind may take the quick way.
WAYS = {"long": 0, "quick": 2}


def produced(value: bytes, *partitions: int) -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=batch(value))
        for index in partitions or (0,)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer.responses[0].partition_responses]


async def values(client: Client, partition: int = 0) -> list[bytes | None]:
    request = fetch_request("t", 0, partition=partition)
    return values_of((await client.ask(request, 12)).responses[0].partitions[0].records)


async def latest(client: Client) -> int:
    wanted = ListOffsetsRequest.Partition(partition_index=0, timestamp=LATEST)
    topic = ListOffsetsRequest.Topic(name="t", partitions=[wanted])
    answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def made(name: str, partitions: int = 3) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


async def topics(client: Client) -> dict[str, tuple[bytes, int]]:
    """Of every topic its id and how many partitions it has."""
    found = (await client.ask(MetadataRequest(topics=None), 12)).topics
    return {each.name: (each.topic_id, len(each.partitions)) for each in found}


# --- records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)], ids=["one", "three"])
@pytest.mark.parametrize("way", WAYS)
def test_records_are_neither_acknowledged_nor_shown_before_they_are_stored(
    tmp_path, way, partitions
):
    before = [b"before"] * WAYS[way]

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            writer, reader = await served.connect(), await served.connect()
            await writer.ask(made("t"))
            for value in before:
                assert set(codes(await writer.ask(produced(value, *partitions), 9))) == {0}
            platform.slow_disk.gate.stall()
            answer = writer.ask(produced(b"new", *partitions), 9)
            await platform.slow_disk.gate.is_waited_for(answer)
            await served.settle()
            assert not answer.done()
            assert (await values(reader), await latest(reader)) == (before, len(before))
            platform.slow_disk.gate.let_pass()
            assert codes(await answer) == [0] * len(partitions)
            assert await values(reader) == [*before, b"new"]
            assert await latest(reader) == len(before) + 1
            left = platform.next_life()
        async with serving(left) as served:
            reader = await served.connect()
            for partition in partitions:
                assert await values(reader, partition) == [*before, b"new"]

    asyncio.run(scenario(SlowPlatform(tmp_path)))


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)], ids=["one", "three"])
@pytest.mark.parametrize("way", WAYS)
def test_records_whose_sync_failed_are_refused_and_gone_after_a_power_cut(
    tmp_path, way, partitions
):
    before = [b"before"] * WAYS[way]

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            writer = await served.connect()
            await writer.ask(made("t"))
            for value in before:
                await writer.ask(produced(value, *partitions), 9)
            platform.slow_disk.gate.stall()
            answer = writer.ask(produced(b"new", *partitions), 9)
            await platform.slow_disk.gate.is_waited_for(answer)
            platform.slow_disk.gate.fail()
            refused = (await answer).responses[0].partition_responses
            assert {(one.error_code, one.base_offset) for one in refused} == {
                (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            }
            # The disk is well again, but what it said before is not taken back.
            platform.slow_disk.gate.let_pass()
            again = codes(await writer.ask(produced(b"more", *partitions), 9))
            assert set(again) == {ErrorCode.KAFKA_STORAGE_ERROR}
            left = platform.next_life()
        async with serving(left) as served:
            assert await values(await served.connect()) == before

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_a_power_cut_during_a_sync_leaves_what_was_acknowledged(tmp_path):
    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            writer = await served.connect()
            await writer.ask(made("t"))
            for value in (b"a", b"b", b"c"):
                assert codes(await writer.ask(produced(value), 9)) == [0]
            platform.slow_disk.gate.stall()
            answer = writer.ask(produced(b"d"), 9)
            await platform.slow_disk.gate.is_waited_for(answer)
            left = platform.next_life()
            answer.cancel()
        async with serving(left) as served:
            assert await values(await served.connect()) == [b"a", b"b", b"c"]

    asyncio.run(scenario(SlowPlatform(tmp_path)))


# --- groups -----------------------------------------------------------------------------------


def commit_of(offset: int, group: str = "g") -> OffsetCommitRequest:
    position = OffsetCommitRequest.Partition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.Topic(name="t", partitions=[position])
    return OffsetCommitRequest(group_id=group, member_id="", topics=[topic])


def commit_code(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


POSITION = OffsetFetchRequest(
    group_id="g", topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])]
)


def position_of(answer: Any) -> tuple[int, int]:
    if answer.error_code:
        return answer.error_code, -1
    (position,) = answer.topics[0].partitions
    return position.error_code, position.committed_offset


async def reloaded(client: Client) -> tuple[int, int]:
    """The position, as soon as the group is loaded again."""
    async with asyncio.timeout(5):
        while (found := position_of(await client.ask(POSITION, 7)))[0]:  # noqa: ASYNC110 - it asks
            await asyncio.sleep(0.01)
    return found


def test_nobody_hears_of_a_commit_before_it_is_stored(tmp_path):
    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            member, other = await served.connect(), await served.connect()
            await member.ask(made("t"))
            assert commit_code(await member.ask(commit_of(1), 8)) == 0
            platform.slow_disk.gate.stall()
            answers = [member.ask(commit_of(2), 8), other.ask(POSITION, 7)]
            await platform.slow_disk.gate.is_waited_for(*answers)
            await served.settle()
            # Also not who only asks: the coordinator would tell what may be gone in a moment.
            assert [each.done() for each in answers] == [False, False]
            platform.slow_disk.gate.let_pass()
            assert commit_code(await answers[0]) == 0
            assert position_of(await answers[1]) == (0, 2)
            left = platform.next_life()
        async with serving(left) as served:
            assert position_of(await (await served.connect()).ask(POSITION, 7)) == (0, 2)

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_a_commit_whose_sync_failed_is_refused_and_the_group_goes_back_to_what_is_stored(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(coordinator_runtime, "_RETRY_LOAD_SECONDS", 0.2)

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            member, other = await served.connect(), await served.connect()
            await member.ask(made("t"))
            assert commit_code(await member.ask(commit_of(1), 8)) == 0
            platform.slow_disk.gate.stall()
            answers = [member.ask(commit_of(2), 8), other.ask(POSITION, 7)]
            await platform.slow_disk.gate.is_waited_for(*answers)
            await served.settle()
            platform.slow_disk.gate.fail()
            assert commit_code(await answers[0]) != 0
            assert position_of(await answers[1])[0] != 0
            platform.slow_disk.forget_unsynced()
            platform.slow_disk.gate.let_pass()
            assert await reloaded(other) == (0, 1)
            assert commit_code(await member.ask(commit_of(3), 8)) == 0
            left = platform.next_life()
        async with serving(left) as served:
            assert position_of(await (await served.connect()).ask(POSITION, 7)) == (0, 3)

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_a_commit_that_cannot_be_written_is_refused_and_not_remembered(tmp_path):
    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform, disk_reserve_bytes=0) as served:
            member = await served.connect()
            await member.ask(made("t"))
            assert commit_code(await member.ask(commit_of(1), 8)) == 0
            disk = platform.slow_disk
            disk.capacity_bytes = disk.used_bytes
            assert commit_code(await member.ask(commit_of(2), 8)) != 0
            disk.capacity_bytes = 1 << 50
            assert (await reloaded(member))[1] == 1

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_an_assignment_is_told_when_it_is_stored(tmp_path):
    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            member, other = await served.connect(), await served.connect()
            join = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
            )
            join.member_id = (await member.ask(join, 5)).member_id
            generation = (await member.ask(join, 5)).generation_id
            share = SyncGroupRequest.Assignment(member_id=join.member_id, assignment=b"all")
            sync = SyncGroupRequest(
                group_id="g",
                generation_id=generation,
                member_id=join.member_id,
                assignments=[share],
            )
            alive = HeartbeatRequest(
                group_id="g", generation_id=generation, member_id=join.member_id
            )
            platform.slow_disk.gate.stall()
            answers = [member.ask(sync, 3), other.ask(alive, 3)]
            await platform.slow_disk.gate.is_waited_for(*answers)
            await served.settle()
            assert [each.done() for each in answers] == [False, False]
            platform.slow_disk.gate.let_pass()
            assert bytes((await answers[0]).assignment) == b"all"
            assert (await answers[1]).error_code == 0
            left = platform.next_life()
        async with serving(left) as served:
            # The member never learnt of the power cut, and need not.
            assert (await (await served.connect()).ask(alive, 3)).error_code == 0

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_commits_outlive_the_line_of_the_journal_that_made_their_topic(tmp_path):
    """It is not waited for: the logs of ``__consumer_offsets`` speak for it."""

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            member = await served.connect()
            await member.ask(made("t"))
            platform.slow_journal.gate.stall()
            assert commit_code(await member.ask(commit_of(5), 8)) == 0
            left = platform.next_life()
        async with serving(left) as served:
            assert position_of(await (await served.connect()).ask(POSITION, 7)) == (0, 5)

    asyncio.run(scenario(SlowPlatform(tmp_path)))


# --- the catalogue ----------------------------------------------------------------------------

GROW = CreatePartitionsRequest(
    topics=[CreatePartitionsRequest.Topic(name="t", count=9, assignments=None)],
    timeout_ms=1000,
    validate_only=False,
)
CHANGES = {
    "create": (made("new"), 7, {"t": 3, "new": 3}),
    "delete": (DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4, {}),
    "partitions": (GROW, 1, {"t": 9}),
}


def sizes(found: dict[str, tuple[bytes, int]]) -> dict[str, int]:
    return {name: count for name, (_, count) in found.items()}


def error_of(answer: Any) -> int:
    results = getattr(answer, "topics", None) or getattr(answer, "responses", None)
    code: int = (results or answer.results)[0].error_code
    return code


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_hears_of_a_change_of_topics_before_it_is_stored(tmp_path, change):
    request, version, after = CHANGES[change]

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            admin, other = await served.connect(), await served.connect()
            await admin.ask(made("t"))
            platform.slow_journal.gate.stall()
            answer = admin.ask(request, version)
            await platform.slow_journal.gate.is_waited_for(answer)
            await served.settle()
            assert not answer.done()
            assert sizes(await topics(other)) == {"t": 3}
            platform.slow_journal.gate.let_pass()
            assert error_of(await answer) == 0
            assert sizes(await topics(other)) == after
            left = platform.next_life()
        async with serving(left) as served:
            assert sizes(await topics(await served.connect())) == after

    asyncio.run(scenario(SlowPlatform(tmp_path)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_topics_whose_sync_failed_is_refused_and_never_counts(tmp_path, change):
    request, version, _ = CHANGES[change]

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            admin = await served.connect()
            await admin.ask(made("t"))
            platform.slow_journal.gate.stall()
            answer = admin.ask(request, version)
            await platform.slow_journal.gate.is_waited_for(answer)
            platform.slow_journal.gate.fail()
            assert error_of(await answer) == ErrorCode.KAFKA_STORAGE_ERROR
            assert sizes(await topics(admin)) == {"t": 3}
            platform.slow_journal.gate.let_pass()
            assert error_of(await admin.ask(made("later"))) == 0
            left = platform.next_life()
        async with serving(left) as served:
            assert sizes(await topics(await served.connect())) == {"t": 3, "later": 3}

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_two_who_ask_for_a_missing_topic_at_once_get_the_same(tmp_path):
    wanted = MetadataRequest(
        topics=[MetadataRequest.Topic(name="new", topic_id=bytes(16))],
        allow_auto_topic_creation=True,
    )

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            clients = [await served.connect() for _ in range(2)]
            platform.slow_journal.gate.stall()
            answers = [client.ask(wanted, 12) for client in clients]
            await platform.slow_journal.gate.is_waited_for(*answers)
            await served.settle()
            platform.slow_journal.gate.let_pass()
            ids = {(await answer).topics[0].topic_id for answer in answers}
            stored = [one for one in platform.slow_journal.load() if one["kind"] == "topic"]
            assert [one["name"] for one in stored] == ["new"]
            left = platform.next_life()
        async with serving(left) as served:
            assert {(await topics(await served.connect()))["new"][0]} == ids

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_a_topic_of_an_old_name_is_empty_although_the_old_files_are_back(tmp_path):
    """The journal is synced, the move of the old directory is not: a power cut takes it back."""

    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            client = await served.connect()
            await client.ask(made("t"))
            assert codes(await client.ask(produced(b"old"), 9)) == [0]
            platform.slow_disk.gate.stall()
            request, version, _ = CHANGES["delete"]
            assert error_of(await client.ask(request, version)) == 0
            assert error_of(await client.ask(made("t"))) == 0
            left = platform.next_life()
        assert any(path.startswith("t-0/") for path in left.slow_disk.contents())
        async with serving(left) as served:
            client = await served.connect()
            assert (await values(client), await latest(client)) == ([], 0)
            assert codes(await client.ask(produced(b"new"), 9)) == [0]
            assert await values(client) == [b"new"]

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_a_partition_that_cannot_be_read_does_not_look_empty(tmp_path):
    async def scenario(platform: SlowPlatform) -> None:
        async with serving(platform) as served:
            client = await served.connect()
            await client.ask(made("t"))
            assert codes(await client.ask(produced(b"kept"), 9)) == [0]
            left = platform.next_life()
        left.slow_disk.unreadable = "t-0"
        async with serving(left) as served:
            client = await served.connect()
            found = (await client.ask(fetch_request("t", 0), 12)).responses[0].partitions[0]
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert codes(await client.ask(produced(b"new"), 9)) == [ErrorCode.KAFKA_STORAGE_ERROR]
            assert codes(await client.ask(produced(b"new", 1), 9)) == [0]

    asyncio.run(scenario(SlowPlatform(tmp_path)))


def test_producer_ids_are_given_when_they_are_stored_and_never_twice(tmp_path):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    given: list[int] = []

    async def scenario(platform: SlowPlatform) -> None:
        for _ in range(3):
            async with serving(platform) as served:
                client = await served.connect()
                platform.slow_journal.gate.stall()
                answer = client.ask(request, 4)
                await platform.slow_journal.gate.is_waited_for(answer)
                await served.settle()
                assert not answer.done()
                platform.slow_journal.gate.let_pass()
                given.append((await answer).producer_id)
                given.append((await client.ask(request, 4)).producer_id)
                platform = platform.next_life()
            async with serving(platform):  # a life in which nobody asks
                platform = platform.next_life()
        assert len(set(given)) == 6

    asyncio.run(scenario(SlowPlatform(tmp_path)))
