"""The brokers of a simulation: topics, and two nodes of which one coordinates the group.

The coordinator is the real one; what surrounds it does what a broker has to do (see the docstring
of ``group/coordinator/coordinator.py``): append and replay at once, send replies in order when
everything before them is durable, and start over when a sync fails.

Rule: a reply that leaves is a promise. The watcher hears of it at that moment, not earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.cluster_image import ClusterImage, ImageTopic
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator, Phase
from shoal.group.coordinator.decision import GroupDecision
from shoal.group.coordinator.refusals import refusal, refuse
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller, Reply
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import Moment, Watcher
from shoal.testing.simulation.network import SimulatedConnection
from shoal.testing.simulation.simulated_journal import SimulatedJournal
from shoal.types import TopicPartition

EPOCH_MS = 1_700_000_000_000
"""What the coordinator's wall clock shows when a simulation starts."""


class SimulatedTopics:
    """Logs without content: of a record only its offset matters."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts: dict[str, int] = {}
        self.most: dict[str, int] = {}
        """The largest number of partitions a topic ever had."""
        self.ends: dict[TopicPartition, int] = {}
        self.recreated: set[str] = set()
        self.ids: dict[str, bytes] = {}
        self.image = ClusterImage()
        """The same, as coordinators are told of it."""
        self.on_change: Callable[[str], None] | None = None
        self._made = count(1)
        for topic, partitions in counts.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        self.counts[topic] = 0
        self.ids[topic] = next(self._made).to_bytes(16, "big")
        self.grow(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        for number in range(self.counts[topic], partitions):
            self.ends[TopicPartition(topic, number)] = 0
        self.counts[topic] = partitions
        self.most[topic] = max(partitions, self.most.get(topic, 0))
        self.image.put(ImageTopic(topic, self.ids[topic], partitions))
        self._changed(topic)

    def delete(self, topic: str) -> None:
        for number in range(self.counts.pop(topic)):
            del self.ends[TopicPartition(topic, number)]
        self.recreated.add(topic)
        del self.ids[topic]
        self.image.remove(topic)
        self._changed(topic)

    def _changed(self, topic: str) -> None:
        if self.on_change is not None:
            self.on_change(topic)

    def produce(self, random: Random) -> None:
        if self.ends:
            tp = random.choice(list(self.ends))
            self.ends[tp] += random.randrange(1, 5)


class SimulatedNode:
    """One broker, as a server of connections."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.connections: list[SimulatedConnection] = []

    def asked(self, connection: SimulatedConnection, message: Any) -> None:
        self._cluster.asked(self, connection, message)

    def drop_connections(self, *, notice_ms: int) -> None:
        for connection in self.connections:
            connection.cut(survivors=0, late_ms=0, notice_ms=notice_ms)
        self.connections.clear()


class SimulatedCluster:
    """Two nodes, one coordinator, one journal."""

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        topics: SimulatedTopics,
        watcher: Watcher,
        config: GroupConfig,
        group_id: str,
        note: Callable[[str, str], None] | None,
    ) -> None:
        """``note`` hears what the coordinator does, if anybody wants to."""
        self._clock = clock
        self._random = random
        self._watcher = watcher
        self._config = config
        self._group_id = group_id
        self._note = note
        self.topics = topics
        self.journal = SimulatedJournal()
        self.disk_delay_ms = 0
        self.disk_is_full = False
        self.next_sync_fails = False
        self.nodes = (SimulatedNode(self), SimulatedNode(self))
        self.leader = self.nodes[0]
        self.is_up = True
        self._ids = count(1)
        self._shift_ms = 0
        self._paused_until_ms = 0
        self._not_alive_ms = 0
        self._pauses = 0
        self._was_set_back = False
        self._state: GroupState | None = None  # of the group, before the last request
        self._life = 0
        self._is_syncing = False
        self._queue: deque[tuple[int, Reply]] = deque()
        self._wake_ms: int | None = None
        self.coordinator = self._new_coordinator()
        topics.on_change = self._topic_changed
        self._load()

    # --- what consumers see --------------------------------------------------------------------

    def find(self) -> SimulatedNode | None:
        """The node to talk to about the group, as any broker would say."""
        return self.leader if self.is_up else None

    def asked(self, node: SimulatedNode, connection: SimulatedConnection, message: Any) -> None:
        if self._clock.now_ms < self._paused_until_ms:
            again = (node, connection, message)
            self._clock.at(self._paused_until_ms, self._asked_again, again)
            return
        ticket, version, client_id, request = message
        if node is not self.leader or not self.is_up:
            answer = refusal(request, ErrorCode.NOT_COORDINATOR, version)
            connection.answer((ticket, answer))
            return
        if self.coordinator.phase is not Phase.ACTIVE:
            # While it loads it answers whatever keeps members patient; none of it is a promise.
            answer = refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
            connection.answer((ticket, answer))
            return
        full_ticket = (connection, ticket)
        now = self.moment()
        self._watcher.asked(request, full_ticket, now)
        group = self.coordinator.group(self._group_id)
        comes_back = self._watcher.comes_back(group, request) and not self.disk_is_full
        generation = self._watcher.model.generation
        self._state = group.state if isinstance(group, ClassicGroup) else None
        decision = self.coordinator.handle(
            request, Caller(version, client_id or "", "/simulated", full_ticket), self._now_ms()
        )
        self._settle(decision, request, full_ticket, now)
        if comes_back:
            self._watcher.came_back(self.coordinator.group(self._group_id), generation)

    def _asked_again(self, message: tuple[SimulatedNode, SimulatedConnection, Any]) -> None:
        self.asked(*message)

    # --- what the broker does around its coordinator -------------------------------------------

    def _settle(
        self,
        decision: GroupDecision,
        request: Any = None,
        ticket: Any = None,
        now: Moment | None = None,
    ) -> None:
        now = now or self.moment()
        if decision.journal and self.disk_is_full:
            code = self._random.choice((ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT))
            decision = self.coordinator.append_failed(decision, code, self._now_ms())
            self._watcher.append_failed(self.coordinator.group(self._group_id), now)
        elif decision.journal:
            offset = self.journal.append(decision.journal)
            self.coordinator.replay_all(decision.journal, offset)
            self._watcher.appended(decision.journal, offset, request, ticket, now, self._state)
            self._sync()
        self._watcher.decided(request, decision, now)
        if self._note is not None and (decision.journal or decision.replies):
            what = f"{type(request).__name__} {len(decision.journal)} {len(decision.replies)}"
            self._note("coordinator", what)
        if decision.replies:
            needed = self.journal.appended
            self._queue.extend([(needed, reply) for reply in decision.replies])
        self._release()
        self._schedule_tick()

    def _release(self) -> None:
        queue = self._queue
        synced = self.journal.synced
        while queue and queue[0][0] <= synced:
            _, reply = queue.popleft()
            connection, number = reply.ticket
            self._watcher.sent(reply.ticket, reply.response)
            connection.answer((number, reply.response))

    def _sync(self) -> None:
        if not self._is_syncing:
            self._is_syncing = True
            delay_ms = int(self._random.random() * self.disk_delay_ms)
            self._clock.after(delay_ms, self._synced, (self._life, self.journal.appended))

    def _synced(self, sync: tuple[int, int]) -> None:
        life, appended = sync
        if life != self._life:
            return
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._synced, sync)
            return
        self._is_syncing = False
        if self.next_sync_fails:
            self.next_sync_fails = False
            self._sync_failed()
            return
        self.journal.synced = appended
        self._release()
        if self.journal.appended > appended:
            self._sync()

    def _schedule_tick(self) -> None:
        deadline = self.coordinator.next_deadline()
        if deadline is None or self.coordinator.phase is not Phase.ACTIVE:
            return
        deadline -= EPOCH_MS + self._shift_ms
        if self._wake_ms is None or deadline < self._wake_ms:
            self._wake_ms = deadline
            self._clock.at(deadline, self._tick, (self._life, deadline))

    def _tick(self, wake: tuple[int, int]) -> None:
        life, wake_ms = wake
        if life != self._life or wake_ms != self._wake_ms:
            return
        if self._is_paused():
            self._clock.at(self._paused_until_ms, self._tick, wake)
            return
        self._wake_ms = None
        # Once in any case: if the clock was set back, the deadline is on the old time.
        self._settle(self.coordinator.tick(self._now_ms()))
        while life == self._life and (self.coordinator.next_deadline() or 0) <= self._now_ms():
            self._settle(self.coordinator.tick(self._now_ms()))
        if life == self._life:
            self._schedule_tick()
            self._watcher.check(self.coordinator.group(self._group_id), self.moment())

    def _now_ms(self) -> int:
        return EPOCH_MS + self._clock.now_ms + self._shift_ms

    def moment(self) -> Moment:
        alive_ms = self._clock.now_ms - self._not_alive_ms
        return Moment(alive_ms, self._pauses, self._shift_ms != 0, self._was_set_back)

    # --- what can go wrong ---------------------------------------------------------------------

    def crash(self, *, kept: int, down_ms: int, moves: bool) -> None:
        """The coordinator dies; ``kept`` unsynced batches are on disk all the same."""
        if not self.is_up:
            return
        self._end_pause()
        self._stop(kept)
        self.is_up = False
        self.leader.drop_connections(notice_ms=1 + down_ms % 100)
        self._start_after(down_ms, moves=moves)

    def fail_over(self, *, down_ms: int) -> None:
        """Another node takes over, in order: nothing is lost."""
        if not self._is_serving() or self._is_paused():
            return
        self.journal.synced = self.journal.appended
        self._release()
        self._unload(ErrorCode.NOT_COORDINATOR)
        self._stop(kept=0)
        self._start_after(down_ms, moves=True)

    def _sync_failed(self) -> None:
        """What was queued must not be promised, and what is in memory is ahead of the disk."""
        self._watcher.refused(reply.ticket for _, reply in self._queue)
        for _, reply in self._queue:
            connection, number = reply.ticket
            connection.answer((number, refuse(reply.response, ErrorCode.NOT_COORDINATOR)))
        self._queue.clear()
        self._unload(ErrorCode.NOT_COORDINATOR)
        self._stop(kept=self._random.randrange(2))
        self._start_after(0, moves=False)

    def _unload(self, code: ErrorCode) -> None:
        for reply in self.coordinator.unload(self._now_ms(), code).replies:
            connection, number = reply.ticket
            connection.answer((number, reply.response))

    def _stop(self, kept: int) -> None:
        self._life += 1
        self._queue.clear()
        self._wake_ms = None
        self._is_syncing = False
        self.journal.crash(kept)

    def _start_after(self, down_ms: int, *, moves: bool) -> None:
        if moves:
            self.leader = self.nodes[1] if self.leader is self.nodes[0] else self.nodes[0]
        self.coordinator = self._new_coordinator()
        self._clock.after(down_ms, self._start, self._life)

    def _start(self, life: int) -> None:
        """The process is there; loading takes a while."""
        if life == self._life:
            self.is_up = True
            self._clock.after(self._random.randrange(200), self._loaded, life)

    def _loaded(self, life: int) -> None:
        if life == self._life:
            self._load()

    def _load(self) -> None:
        entries = list(self.journal.read())
        self._watcher.loaded(entries, self.moment())
        self._settle(self.coordinator.load(entries, self._now_ms()))

    def _new_coordinator(self) -> Coordinator:
        return Coordinator(self._config, new_id=self._new_id, image=self.topics.image)

    def _new_id(self) -> str:
        return f"{next(self._ids):04d}"

    def pause(self, pause_ms: int) -> None:
        if not self._is_paused() and self._is_serving():
            due_ms = self.coordinator.next_deadline()
            noticed_ms = self._now_ms() + self._config.coordinator_pulse_interval_ms
            if due_ms is None or due_ms > noticed_ms:
                self._watcher.paused_unnoticed(self.moment())
            self._paused_until_ms = self._clock.now_ms + pause_ms
            self._not_alive_ms += pause_ms
            self._pauses += 1

    def _is_serving(self) -> bool:
        return self.is_up and self.coordinator.phase is Phase.ACTIVE

    def _is_paused(self) -> bool:
        return self._clock.now_ms < self._paused_until_ms

    def jump(self, jump_ms: int) -> None:
        """The wall clock jumps; the next tick is at its old time on the real clock."""
        self._shift_ms += jump_ms
        self._was_set_back |= jump_ms < 0
        self._pauses += 1

    def _topic_changed(self, topic: str) -> None:
        self.coordinator.topics_changed([topic])

    def delete_topic(self, topic: str) -> None:
        self.topics.delete(topic)
        if self._is_serving() and not self._is_paused() and not self.disk_is_full:
            self._settle(self.coordinator.topics_deleted([topic], self._now_ms()))

    def verify(self) -> None:
        """A coordinator rebuilt from the journal must equal the living one."""
        if self._is_serving():
            rebuilt = self._new_coordinator()
            for offset, record in self.journal.read():
                rebuilt.replay(record, offset)
            self._watcher.compared(self.coordinator, rebuilt)

    def heal(self) -> None:
        self.next_sync_fails = False
        self._end_pause()

    def _end_pause(self) -> None:
        self._not_alive_ms -= max(self._paused_until_ms - self._clock.now_ms, 0)
        self._paused_until_ms = min(self._paused_until_ms, self._clock.now_ms)
