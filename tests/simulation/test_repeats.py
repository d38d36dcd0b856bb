"""Whether records are read again when nothing goes wrong but members coming and going."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.testing.simulation.client_simulator import ClientSimulation
from shoal.testing.simulation.simulated_client import SimulatedClient
from shoal.testing.simulation.simulated_engine import SimulatedConsumerSettings
from shoal.testing.simulation.swarm import GroupScenario
from shoal.types import Record

SETTLED_MS = 15_000


class _CountingClient(SimulatedClient):
    def _process(self, records: Sequence[Record[Any, Any]]) -> None:
        super()._process(records)
        assert isinstance(self._world, _Coming)
        self._world.read.update((one.topic, one.partition, one.offset) for one in records)


class _Coming(ClientSimulation):
    """A group whose members come and go in order; what they read is counted."""

    read: Counter[tuple[str, int, int]]

    def new_consumer(self, settings: SimulatedConsumerSettings) -> Any:
        self.started.append(_CountingClient(self, settings))
        return self.started[-1]


def _world(seed: int, assignor: str, changes: int) -> _Coming:
    """Timeouts are the defaults of a consumer, and records come all the time."""
    world = _Coming(
        GroupScenario(
            seed=seed,
            duration_ms=(changes + 2) * SETTLED_MS,
            members=2,
            members_max=4,
            topics={"t": 8},
            assignors=(assignor,),
            mixed_assignors=(assignor,),
            uses_pattern=False,
            static_share=0.0,
            auto_commit_share=1.0,
            session_timeout_ms=45_000,
            heartbeat_interval_ms=3_000,
            max_poll_interval_ms=300_000,
            request_timeout_ms=30_000,
            initial_rebalance_delay_ms=0,
            through_bytes=True,
            join_version=9,
            offset_fetch_version=8,
            network_delay_ms=5,
            disk_delay_ms=0,
            poll_interval_ms=200,
            produce_interval_ms=100,
            fault_kinds={},
        )
    )
    world.read = Counter()
    return world


@pytest.mark.slow
@pytest.mark.parametrize(
    ("assignor", "seed"),
    [("cooperative-sticky", 1), ("cooperative-sticky", 2), ("sticky", 3), ("range", 4)],
)
def test_no_record_is_read_twice_because_members_come_and_go(assignor: str, seed: int) -> None:
    changes = 16
    world = _world(seed, assignor, changes)
    try:
        for change in range(changes):
            world.run_until((change + 1) * SETTLED_MS)
            if change % 2:
                leaver = world.alive[change // 2 % len(world.alive)]
                leaver.do(leaver.close)
            else:
                world.start_consumer()
        world.run_until((changes + 1) * SETTLED_MS)
    finally:
        world.end()
    assert world.watcher.generations > changes
    assert len(world.read) > 1_000
    again = {record for record, times in world.read.items() if times > 1}
    assert not again, f"{len(again)} of {len(world.read)} records were read again"
