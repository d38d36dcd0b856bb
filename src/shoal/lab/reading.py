"""The user of one process: takes records of what it holds, processes them, comes back for more.

All schemes have this same user, so what differs between them is the scheme. A batch is one event
however many records it has; when something happens in the middle of it, ``_settle`` counts what
was done by then.

Rule: a reader does not know about groups. It holds what it is given, and the ledger hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.lab.world import World
from shoal.types import TopicPartition


class Reader:
    """Polls, processes, polls again."""

    def __init__(self, world: World, name: str, on_poll: Callable[[], bool]) -> None:
        """``on_poll`` runs whenever the user comes back; it says whether records may be taken."""
        self._world = world
        self._clock = world.clock
        self._work = world.scenario.work
        self.name = name
        self._on_poll = on_poll
        self.positions: dict[TopicPartition, int | None] = {}
        """The next offset to take; ``None`` until it is known."""
        self.is_alive = True
        self.leaving: frozenset[TopicPartition] = frozenset()
        """About to be given up: nothing more is read of these."""
        self._batch: list[tuple[TopicPartition, int, int]] = []
        self._batch_ms = 0
        """When the first record of what is left of the batch was begun."""
        self._frozen_until_ms = 0
        self._is_waiting = False
        self._is_polling = False
        self._step = 0
        self._turn = 0
        self._again(world.random.randrange(self._work.poll_interval_ms))

    @property
    def is_frozen(self) -> bool:
        return self._clock.now_ms < self._frozen_until_ms

    @property
    def frozen_until_ms(self) -> int:
        return self._frozen_until_ms

    @property
    def records_in_hand(self) -> int:
        return sum([end - start for _, start, end in self._batch])

    # --- what it holds -------------------------------------------------------------------------

    def hold(self, tp: TopicPartition, position: int | None) -> None:
        self.positions[tp] = position
        self._world.ledger.hold(self.name, tp)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions; of a batch in hand only the record being processed is finished."""
        gone = set(partitions)
        if self._batch:
            self._settle()
            self._drop(gone)
        for tp in gone:
            self.positions.pop(tp, None)
        self._world.ledger.release(self.name, sorted(gone))

    def _drop(self, gone: set[TopicPartition]) -> None:
        if not self._batch:
            return
        tp, start, _ = self._batch[0]
        if tp in gone:
            self._world.processed(tp, start, start + 1)
        self._batch = [entry for entry in self._batch if entry[0] not in gone]
        self._finish_later()

    def consumed(self, *, with_record_in_hand: bool) -> dict[TopicPartition, int]:
        """Where to go on after a commit now.

        ``with_record_in_hand``: as if the record being processed were done. The high-level
        consumer committed so, by a timer: what is handed out counts as consumed.
        """
        self._settle()
        offsets = {tp: at for tp, at in self.positions.items() if at is not None}
        for index, (tp, start, _) in enumerate(self._batch):
            if tp in offsets:
                is_in_hand = index == 0 and with_record_in_hand
                offsets[tp] = min(offsets[tp], start + is_in_hand)
        return offsets

    # --- the loop ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something happened that a user who waits in poll should see."""
        if self._is_waiting and not self._is_polling:
            self._again(0)

    def _again(self, wait_ms: int) -> None:
        self._is_waiting = True
        self._step += 1
        self._clock.after(wait_ms, self._poll, self._step)

    def _is_off(self, step: int) -> bool:
        """Out of date, or dead; a frozen user comes back later."""
        if step != self._step or not self.is_alive:
            return True
        if self._clock.now_ms < self._frozen_until_ms:
            action = self._poll if self._is_waiting else self._finish
            self._clock.at(self._frozen_until_ms, action, step)
            return True
        return False

    def _poll(self, step: int) -> None:
        if self._is_off(step):
            return
        self._is_polling = True
        may_read = self._on_poll()
        self._is_polling = False
        if step != self._step or not self.is_alive:
            return
        if may_read:
            self._take_records()
        if self._batch:
            self._is_waiting = False
            self._batch_ms = self._clock.now_ms
            self._finish_later()
        else:
            self._again(self._work.poll_interval_ms)

    def _take_records(self) -> None:
        held = list(self.positions.items())
        if not held:
            return
        # Another partition is the first each time, or one with a backlog would starve the rest.
        self._turn = (self._turn + 1) % len(held)
        held = held[self._turn :] + held[: self._turn]
        room, leaving = self._work.batch_max, self.leaving
        end_of, leaderless = self._world.topics.ends.get, self._world.brokers.leaderless
        for tp, position in held:
            if position is None or tp in leaving or tp in leaderless:
                continue
            count = end_of(tp, 0) - position
            if count > room:
                count = room
            if count > 0:
                self._batch.append((tp, position, position + count))
                self.positions[tp] = position + count
                room -= count

    def _finish_later(self) -> None:
        self._step += 1
        done_ms = self._batch_ms + self.records_in_hand * self._work.processing_ms
        self._clock.at(done_ms, self._finish, self._step)

    def _finish(self, step: int) -> None:
        if self._is_off(step):
            return
        for tp, start, end in self._batch:
            self._world.processed(tp, start, end)
        self._batch.clear()
        # Whoever was busy asks for more at once.
        self._is_waiting = True
        self._poll(self._step)

    def _settle(self) -> None:
        """Count what was done of the batch in hand."""
        if not self._batch:
            return
        processing_ms = max(self._work.processing_ms, 1)
        count = max(0, self._clock.now_ms - self._batch_ms) // processing_ms
        # The last one is counted when the batch ends.
        count = min(count, self.records_in_hand - 1)
        self._batch_ms += count * processing_ms
        left = []
        for tp, start, end in self._batch:
            done = min(count, end - start)
            count -= done
            self._world.processed(tp, start, start + done)
            if start + done < end:
                left.append((tp, start + done, end))
        self._batch = left

    def finish_record(self) -> None:
        """The run is over: the record in hand would have been done in a moment."""
        self._settle()
        if self._batch:
            tp, start, _ = self._batch[0]
            self._world.processed(tp, start, start + 1)

    # --- going wrong ---------------------------------------------------------------------------

    def freeze(self, for_ms: int) -> None:
        """Stand still."""
        self._settle()
        until_ms = self._clock.now_ms + for_ms
        self._frozen_until_ms = max(self._frozen_until_ms, until_ms)
        self._world.ledger.set_idle(self.name, is_idle=True)
        self._clock.at(until_ms, self._thaw)
        if self._batch:
            self._batch_ms = self._frozen_until_ms
            self._finish_later()

    def _thaw(self, _: None) -> None:
        if self.is_alive and not self.is_frozen:
            self._world.ledger.set_idle(self.name, is_idle=False)

    def stop(self) -> None:
        """The process ends, whatever it was doing."""
        self._settle()
        self.is_alive = False
        self._batch.clear()
        self._world.ledger.gone(self.name)
