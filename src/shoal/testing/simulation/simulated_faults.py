"""What each kind of fault does to a simulation.

Rule: a fault only pushes; it never looks at the outcome. ``pick`` stands in for every decision it
has to make, so that it does the same thing when other faults are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shoal.testing.simulation.swarm import Fault, FaultKind

if TYPE_CHECKING:
    from shoal.testing.simulation.simulated_consumer import SimulatedConsumer
    from shoal.testing.simulation.simulator import Simulation


def go_wrong(world: Simulation, fault: Fault) -> None:
    # Whatever lasts ends with the first phase.
    amount_ms = min(fault.amount_ms, world.remaining_ms())
    if fault.kind in _OF_THE_WORLD:
        _OF_THE_WORLD[fault.kind](world, fault.pick, amount_ms)
        return
    alive = world.alive
    if alive:
        consumer = alive[fault.pick % len(alive)]
        _OF_A_CONSUMER[fault.kind](world, consumer, fault.pick, amount_ms)


# --- the world -----------------------------------------------------------------------------------


def _slow_network(world: Simulation, _: int, amount_ms: int) -> None:
    world.network.delay_ms_max = 2_000
    world.clock.after(amount_ms, world.restore_network)


def _crash(world: Simulation, pick: int, amount_ms: int) -> None:
    world.cluster.crash(kept=pick % 3, down_ms=amount_ms, moves=pick % 2 == 0)


def _fail_over(world: Simulation, _: int, amount_ms: int) -> None:
    world.cluster.fail_over(down_ms=amount_ms)


def _fail_sync(world: Simulation, _pick: int, _amount_ms: int) -> None:
    world.cluster.next_sync_fails = True


def _fill_disk(world: Simulation, _: int, amount_ms: int) -> None:
    world.cluster.disk_is_full = True
    world.clock.after(amount_ms, world.restore_disk)


def _slow_disk(world: Simulation, _: int, amount_ms: int) -> None:
    world.cluster.disk_delay_ms = 2_000
    world.clock.after(amount_ms, world.restore_disk)


def _compact(world: Simulation, pick: int, _: int) -> None:
    world.cluster.journal.compact(drop_tombstones=pick % 2 == 0)


def _pause_broker(world: Simulation, _: int, amount_ms: int) -> None:
    world.cluster.pause(amount_ms)


def _jump(world: Simulation, pick: int, _: int) -> None:
    # As far as ten days, which is more than offsets are kept; in half of all worlds only forward.
    jump_ms = pick % 864_000_000
    is_forward = pick % 2 == 0 or world.scenario.seed % 2 == 0
    world.cluster.jump(jump_ms if is_forward else -jump_ms)


def _break_assignor(world: Simulation, _pick: int, _amount_ms: int) -> None:
    world.assignor_errors += 1


def _arrive(world: Simulation, _pick: int, _amount_ms: int) -> None:
    world.start_consumer()


def _add_partitions(world: Simulation, pick: int, _: int) -> None:
    topics = list(world.topics.counts)
    if topics:
        topic = topics[pick % len(topics)]
        world.topics.grow(topic, world.topics.counts[topic] + 1)


def _recreate(world: Simulation, pick: int, amount_ms: int) -> None:
    topics = list(world.topics.counts)
    if topics:
        topic = topics[pick % len(topics)]
        world.cluster.delete_topic(topic)
        world.clock.after(amount_ms, world.create_topic, topic)


_OF_THE_WORLD: Final[dict[FaultKind, Callable[[Simulation, int, int], None]]] = {
    FaultKind.SLOW_NETWORK: _slow_network,
    FaultKind.CRASH: _crash,
    FaultKind.FAILOVER: _fail_over,
    FaultKind.SYNC_ERROR: _fail_sync,
    FaultKind.DISK_FULL: _fill_disk,
    FaultKind.SLOW_DISK: _slow_disk,
    FaultKind.COMPACTION: _compact,
    FaultKind.BROKER_PAUSE: _pause_broker,
    FaultKind.CLOCK_JUMP: _jump,
    FaultKind.ASSIGNOR_ERROR: _break_assignor,
    FaultKind.ARRIVAL: _arrive,
    FaultKind.PARTITIONS: _add_partitions,
    FaultKind.RECREATION: _recreate,
}


# --- one consumer --------------------------------------------------------------------------------


def _cut(_: Simulation, consumer: SimulatedConsumer, pick: int, amount_ms: int) -> None:
    consumer.engine.cut(
        survivors=pick % 4,
        late_ms=amount_ms if pick % 3 == 0 else 0,
        # Most breaks are noticed at once, some only when patience runs out.
        notice_ms=amount_ms if pick % 5 == 0 else 1 + pick % 20,
        at_next_send=pick % 7 < 4,
    )


def _pause(_: Simulation, consumer: SimulatedConsumer, _pick: int, amount_ms: int) -> None:
    consumer.pause(amount_ms)


def _stall(world: Simulation, consumer: SimulatedConsumer, _: int, amount_ms: int) -> None:
    consumer.stalled_until_ms = world.clock.now_ms + amount_ms


def _slow_callback(_: Simulation, consumer: SimulatedConsumer, _pick: int, amount_ms: int) -> None:
    consumer.next_callback_ms = amount_ms


def _raise_in_callback(_: Simulation, consumer: SimulatedConsumer, _pick: int, _ms: int) -> None:
    consumer.next_callback_raises = True


def _wake_callback(_: Simulation, consumer: SimulatedConsumer, _pick: int, _ms: int) -> None:
    consumer.next_callback_is_woken = True


def _die(world: Simulation, consumer: SimulatedConsumer, _: int, amount_ms: int) -> None:
    consumer.engine.die()
    world.clock.after(amount_ms, world.start_consumer)


def _leave(world: Simulation, consumer: SimulatedConsumer, _: int, amount_ms: int) -> None:
    consumer.do(consumer.close)
    world.clock.after(amount_ms, world.start_consumer)


def _restart(world: Simulation, consumer: SimulatedConsumer, _: int, amount_ms: int) -> None:
    consumer.engine.die()
    instance_id = consumer.settings.config.group_instance_id
    world.clock.after(amount_ms, world.start_consumer, instance_id)


def _clone(world: Simulation, consumer: SimulatedConsumer, _: int, _ms: int) -> None:
    if consumer.settings.config.group_instance_id is not None:
        world.start_consumer(consumer.settings.config.group_instance_id)


def _resubscribe(world: Simulation, consumer: SimulatedConsumer, pick: int, _: int) -> None:
    topics = list(world.scenario.topics)
    chosen = topics[: 1 + pick % len(topics)]
    consumer.do(lambda: consumer.subscribe(chosen))
    # In the end everybody wants everything, so that everything must be read.
    back_ms = max(world.remaining_ms() - 5_000, 0)
    world.clock.after(back_ms, lambda _: consumer.do(lambda: consumer.subscribe(topics)))


def _unsubscribe(world: Simulation, consumer: SimulatedConsumer, _: int, amount_ms: int) -> None:
    topics = list(world.scenario.topics)
    consumer.do(consumer.unsubscribe)
    world.clock.after(amount_ms, lambda _: consumer.do(lambda: consumer.subscribe(topics)))


def _enforce(_: Simulation, consumer: SimulatedConsumer, _pick: int, _ms: int) -> None:
    consumer.do(lambda: consumer.member.enforce_rebalance("simulated"))


def _stray(_: Simulation, consumer: SimulatedConsumer, pick: int, _ms: int) -> None:
    consumer.stray = pick


_OF_A_CONSUMER: Final[
    dict[FaultKind, Callable[[Simulation, SimulatedConsumer, int, int], None]]
] = {
    FaultKind.CUT: _cut,
    FaultKind.PAUSE: _pause,
    FaultKind.STALL: _stall,
    FaultKind.SLOW_CALLBACK: _slow_callback,
    FaultKind.CALLBACK_ERROR: _raise_in_callback,
    FaultKind.WAKEUP: _wake_callback,
    FaultKind.DEATH: _die,
    FaultKind.LEAVE: _leave,
    FaultKind.RESTART: _restart,
    FaultKind.CLONE: _clone,
    FaultKind.RESUBSCRIBE: _resubscribe,
    FaultKind.UNSUBSCRIBE: _unsubscribe,
    FaultKind.ENFORCE: _enforce,
    FaultKind.STRAY: _stray,
}

assert _OF_THE_WORLD.keys() | _OF_A_CONSUMER.keys() == set(FaultKind), "every kind does something"
