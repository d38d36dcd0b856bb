"""The room in which requests wait for data: who leaves it leaves nothing behind."""

from __future__ import annotations

import asyncio

from shoal.broker.counters import Counters
from shoal.broker.waiting import WaitingRoom
from shoal.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_who_has_left_is_not_remembered_for_any_partition() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop(), Counters(), limit=10)
        woken: list[str] = []

        def wait(name: str, keys: list[TopicPartition], *, stable_only: bool = False) -> None:
            room.wait(
                keys,
                missing_bytes=5,
                timeout_ms=600_000,
                wake=lambda: woken.append(name),
                stable_only=stable_only,
            )

        wait("both", [T0, T1])
        wait("stable", [T1], stable_only=True)
        wait("other", [T1])
        room.arrived(T0, 5, 0)
        await asyncio.sleep(0)
        assert woken == ["both"]
        assert (len(room), list(room._by_partition)) == (2, [T1])
        room.disturb(T1)
        assert woken == ["both", "other", "stable"]
        assert len(room) == 0
        assert not room._by_partition
        assert not room._for_stable

    asyncio.run(scenario())
