"""What can be simulated: bare group members, or something with more around it.

Rule: a kind is told by its name, so that another process can make it too; whatever is slow to
import is imported when it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from shoal.testing.simulation import swarm
from shoal.testing.simulation.shrinking import Rerun
from shoal.testing.simulation.simulator import simulate


class Kind(NamedTuple):
    """What is simulated, in which world, and what goes wrong there."""

    name: str
    run: Rerun
    world: Callable[[int], object]
    faults: Callable[[int], Sequence[object]]


MEMBERS = Kind("", simulate, swarm.scenario, lambda seed: swarm.faults(swarm.scenario(seed)))


def clients() -> Kind:
    """Slow to import: a whole client, and a broker."""
    from shoal.testing.simulation import client_simulator

    _silence()
    return Kind(
        "clients",
        client_simulator.simulate_clients,
        client_simulator.worlds,
        client_simulator.planned_faults,
    )


def producers() -> Kind:
    from shoal.testing.simulation import producer_simulator, producer_swarm

    _silence()
    return Kind(
        "producers",
        producer_simulator.simulate_producers,
        producer_swarm.send_scenario,
        lambda seed: producer_swarm.send_faults(producer_swarm.send_scenario(seed)),
    )


def transactions() -> Kind:
    from shoal.testing.simulation import transaction_simulator, transaction_swarm

    _silence()
    return Kind(
        "transactions",
        transaction_simulator.simulate_transactions,
        transaction_swarm.transaction_scenario,
        lambda seed: transaction_swarm.transaction_faults(
            transaction_swarm.transaction_scenario(seed)
        ),
    )


def sinks() -> Kind:
    """Needs the extra ``arrow``: rows come to a sink in columns."""
    from shoal.testing.simulation import sink_simulator, sink_swarm

    _silence()
    return Kind(
        "sinks",
        sink_simulator.simulate_sinks,
        sink_swarm.sink_scenario,
        lambda seed: sink_swarm.sink_faults(sink_swarm.sink_scenario(seed)),
    )


def consumer_groups() -> Kind:
    from shoal.testing.simulation import consumer_group_simulator, consumer_group_swarm

    return Kind(
        "consumer-groups",
        consumer_group_simulator.simulate_consumer_groups,
        consumer_group_swarm.consumer_group_scenario,
        lambda seed: consumer_group_swarm.consumer_group_faults(
            consumer_group_swarm.consumer_group_scenario(seed)
        ),
    )


KINDS: Final[dict[str, Callable[[], Kind]]] = {
    "": lambda: MEMBERS,
    "clients": clients,
    "producers": producers,
    "transactions": transactions,
    "sinks": sinks,
    "consumer-groups": consumer_groups,
}


def _silence() -> None:
    """Clients and brokers complain about every fault, as they should."""
    logging.getLogger("shoal").setLevel(logging.CRITICAL + 1)
