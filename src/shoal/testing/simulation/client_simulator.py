"""Simulations with real clients, on a loop with virtual time.

The same worlds, faults and invariants as in ``simulator.py``, but a consumer here is everything
that runs in a user's process, and what it says are bytes. Beside the group live producers and the
broker they send to, with faults of their own (``producer_simulator.py``).

    report = simulate_clients(7)      # raises Violation, which says how to see it again

Rule: nothing of the client is replaced. The loop it runs on makes time pass and connections break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from shoal.testing.simulation import swarm
from shoal.testing.simulation.broker_world import repeatable
from shoal.testing.simulation.client_process import ClientProcess
from shoal.testing.simulation.producer_simulator import SendingWorld
from shoal.testing.simulation.producer_swarm import (
    PlannedFault,
    SendScenario,
    send_faults,
    send_scenario,
)
from shoal.testing.simulation.simulated_client import WATCH_EVERY_MS, SimulatedClient
from shoal.testing.simulation.simulated_engine import SimulatedConsumerSettings
from shoal.testing.simulation.simulated_wire import (
    FIRST_PORT,
    HOST,
    SENDING_PORT,
    Desk,
    Front,
    MemoryTransport,
)
from shoal.testing.simulation.simulator import Report, Simulation, repeat_command
from shoal.testing.simulation.swarm import Fault, GroupScenario
from shoal.testing.simulation.virtual_loop import SimulatedProcess, SimulationStage
from shoal.wire.apis.offset_fetch import OffsetFetchResponse


def simulate_clients(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed with real clients, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    group, producers = worlds(seed)
    of_group, of_producers = swarm.faults(group), send_faults(producers)
    simulation = ClientSimulation(
        group,
        [one for number, one in enumerate(of_group) if number not in without],
        sending=producers,
        send_faults=[
            one for number, one in enumerate(of_producers, len(of_group)) if number not in without
        ],
    )
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without, kind="clients"))
        failure.add_note("last events:\n  " + "\n  ".join(simulation.notes))
        raise
    finally:
        simulation.end()


def scenario(seed: int) -> GroupScenario:
    """A seed's world, made smaller: a real client does much more in a second than a model."""
    world = swarm.scenario(seed)
    return replace(
        world,
        duration_ms=world.duration_ms // 2,
        members=min(world.members, 3),
        members_max=4,
        poll_interval_ms=max(world.poll_interval_ms, 200),
        produce_interval_ms=400,
    )


def worlds(seed: int) -> tuple[GroupScenario, SendScenario]:
    """The group's world, and the producers', which ends earlier: they do more in a second."""
    world = scenario(seed)
    return world, send_scenario(seed, world.duration_ms // 6)


def planned_faults(seed: int) -> list[Fault | PlannedFault]:
    """Everything that goes wrong; the group's faults have the first numbers."""
    group, producers = worlds(seed)
    return [*swarm.faults(group), *send_faults(producers)]


class ClientSimulation(Simulation):
    """A simulation whose consumers are real clients; with ``sending`` there are producers too."""

    def __init__(
        self,
        scenario: GroupScenario,
        faults: Collection[Fault] = (),
        *,
        sending: SendScenario | None = None,
        send_faults: Collection[PlannedFault] = (),
    ) -> None:
        super().__init__(scenario, faults)
        self.front = Front(self)
        self.stage = SimulationStage(self.clock, self._connect)
        self.loop = self.stage.loop
        self.fail = self.stage.fail
        self.end = self.stage.end
        self.started: list[SimulatedClient] = []
        """Everybody, the dead too: what they were in the middle of is not to be cleared away."""
        self.clock.at(WATCH_EVERY_MS, self._watch)
        self.sending: SendingWorld | None = None
        if sending is not None:
            self.sending = SendingWorld(self.clock, self.stage, sending, send_faults, self.note)

    def run(self) -> Report:
        with repeatable(self.scenario.seed, self.loop):
            report = super().run()
        if self.sending is not None:
            report.sending = self.sending.report()
        return report

    def _stay_quiet(self) -> None:
        if self.sending is not None:
            self.sending.finish(self.run_until)
        super()._stay_quiet()

    def run_until(self, end_ms: int) -> None:
        self.events += self.stage.run_until(end_ms)

    # --- the network -----------------------------------------------------------------------------

    async def _connect(
        self, process: SimulatedProcess, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert host == HOST
        assert isinstance(process, ClientProcess)
        if port == SENDING_PORT:
            assert self.sending is not None
            return await self.sending.connect(process, protocol_factory)
        process.count_connect()
        node = self.cluster.nodes[port - FIRST_PORT]
        await asyncio.sleep((self.network.delay() + self.network.delay()) / 1000)
        if node is self.cluster.leader and not self.cluster.is_up:
            raise ConnectionRefusedError(f"{host}:{port} is down")
        protocol = protocol_factory()
        transport = MemoryTransport(process, protocol, process.on_request)
        transport.connection = self.network.connect(transport, Desk(self, node))
        node.connections.append(transport.connection)
        process.connections.append(transport.connection)
        protocol.connection_made(transport)
        return transport, protocol

    @property
    def corruption(self) -> float:
        """How likely a batch is damaged on its way; in every fourth world, while faults happen."""
        return 0.02 if self.scenario.seed % 4 == 0 and not self.is_over else 0.0

    def offsets_told(self, name: str, response: OffsetFetchResponse) -> None:
        for client in self.started:
            if client.name == name:
                client.offsets_told(response)

    # --- life ------------------------------------------------------------------------------------

    def _produce(self, nothing: None) -> None:
        super()._produce(nothing)
        self.front.produced()

    def new_consumer(self, settings: SimulatedConsumerSettings) -> Any:
        self.started.append(SimulatedClient(self, settings))
        return self.started[-1]

    def arrival_limit_ms(self) -> int:
        # Between two polls a user processes and commits, and a poll itself may wait.
        return super().arrival_limit_ms() + self.scenario.heartbeat_interval_ms + 2_000

    def _watch(self, _: None) -> None:
        for client in self.started:
            client.check_poll_interval()
        self.clock.after(WATCH_EVERY_MS, self._watch)
