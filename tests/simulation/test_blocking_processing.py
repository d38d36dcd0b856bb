"""``Consumer.process``, the blocking one, in virtual time: members come, stall, leave and die.

Whatever happens: every record is worked on, those of a key one after the other and in their order,
and no commit is ahead of the work.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

from shoal import AsyncAdmin, AsyncProducer, Consumer, TopicPartition
from shoal.testing.simulation.client_process import ClientProcess
from tests.simulation.cancelling import SERVERS, QuietScenario, Run
from tests.simulation.staged_threads import Stage, StagedThread

pytestmark = pytest.mark.slow

#: In the last two a partition comes back while a handler has a record of it from before.
SEEDS = (*range(6), 10, 14)
KEYS = 4
ENDS = {TopicPartition("t", number): 40 for number in range(3)}


class Ledger:
    """What was worked on and committed, and what happened meanwhile."""

    def __init__(self) -> None:
        self.done: dict[TopicPartition, list[int]] = defaultdict(list)
        self.committed: dict[TopicPartition, int] = {}
        self.events: Counter[str] = Counter()

    def finish(self, record: Any) -> None:
        tp = record.topic_partition
        self.events["repeated"] += record.offset in self.done[tp]
        self.done[tp].append(record.offset)

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            assert offset >= self.committed.get(tp, 0), f"{tp} goes back to {offset}"
            left = set(range(offset)).difference(self.done[tp])
            assert not left, f"{tp} is committed up to {offset} before {left} are done"
        self.committed = offsets

    @property
    def is_complete(self) -> bool:
        return self.committed == ENDS

    def check_order(self, order: str) -> None:
        """Whoever did it first: a record comes after those before it in its lane."""
        for tp, offsets in self.done.items():
            first = list(dict.fromkeys(offsets))
            for key in range(KEYS if order == "key" else 1):
                lane = [one for one in first if order != "key" or one % KEYS == key]
                assert lane == sorted(lane), f"{tp}, key {key}: {lane}"


class Member:
    """A process with a blocking consumer that processes."""

    def __init__(self, run: Run, stage: Stage, ledger: Ledger, story: Story) -> None:
        self.process = ClientProcess(run.world, "member")
        self._stage = stage
        self._ledger = ledger
        self._story = story
        self._busy: set[Any] = set()
        self._failed: set[Any] = set()
        self.consumer: Consumer | None = None
        self.thread: StagedThread = self.process.context.run(StagedThread, self._live)
        self.process.context.run(self.thread.start)

    def _live(self) -> None:
        with Consumer(
            bootstrap_servers=SERVERS,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            auto_commit_interval_ms=200,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_records=7,
            assignors=[self._story.assignor],
        ) as self.consumer:
            self.consumer.subscribe(["t"], self)
            self.consumer.process(
                self._handle, workers=3, order=self._story.order, retries=2, retry_delay=0.05
            )

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._ledger.events["revoked"] += 1

    def on_partitions_lost(self, partitions: Any) -> None:
        self._ledger.events["lost"] += 1

    def _handle(self, record: Any) -> None:
        tp = record.topic_partition
        lane = (tp, record.key) if self._story.order == "key" else tp
        assert lane not in self._busy, f"two at a time: {lane}"
        self._busy.add(lane)
        try:
            self._stage.sleep(self._stage.dice.choice((0, 0.01, 0.3, 0.3, 2)))
            what = (tp, record.offset)
            if self._stage.dice.random() < 0.15 and what not in self._failed:
                self._failed.add(what)
                self._ledger.events["failed"] += 1
                raise LookupError("a handler that fails at first")
            self._ledger.finish(record)
        finally:
            self._busy.discard(lane)

    @property
    def is_up(self) -> bool:
        return self.process.is_alive and self.thread.is_alive() and self.consumer is not None

    def leave(self) -> None:
        if self.is_up and self.consumer is not None:
            self.consumer.wakeup()


class Story(NamedTuple):
    seed: int
    order: str
    assignor: str

    async def tell(self, run: Run) -> Ledger:
        dice, ledger = random.Random(self.seed), Ledger()
        await fill()
        stage = Stage(asyncio.get_running_loop(), self.seed)
        members: list[Member] = []
        async with AsyncAdmin(bootstrap_servers=SERVERS) as onlooker:
            with stage.set_up():
                while not ledger.is_complete:
                    is_alone = not any(one.is_up for one in members)
                    if is_alone or (len(members) < 6 and dice.random() < 0.4):
                        members.append(Member(run, stage, ledger, self))
                    elif dice.random() < 0.4:
                        ledger.events[happen(members, dice)] += 1
                    await asyncio.sleep(dice.uniform(0.2, 2))
                    found = await onlooker.group_offsets("g")
                    ledger.commit({tp: one.offset for tp, one in found.items() if one is not None})
                    assert not stage.failures, stage.failures
                for one in members:
                    one.leave()
                ends = [one.thread.ended for one in members if one.process.is_alive]
                await asyncio.wait(ends, timeout=60)
                assert all(end.done() for end in ends), "a call of process() does not end"
                assert not stage.failures, stage.failures
        await asyncio.sleep(1)  # what the dead had begun is cleared away
        ledger.check_order(self.order)
        return ledger


def happen(members: list[Member], dice: random.Random) -> str:
    """One of the things that happen to processes; one is always left."""
    up = [one for one in members if one.is_up]
    if len(up) < 2:
        return "nothing"
    chosen = dice.choice(up)
    match dice.randrange(3):
        case 0:
            chosen.process.die()
            return "died"
        case 1:
            chosen.process.pause(dice.choice((500, 9_000, 15_000)))
            return "stalled"
        case _:
            chosen.leave()
            return "left"


async def fill() -> None:
    async with AsyncProducer(bootstrap_servers=SERVERS) as producer:
        for tp, end in ENDS.items():
            for offset in range(end):
                key = b"%d" % (offset % KEYS)
                await producer.enqueue("t", b"%d" % offset, key, partition=tp.partition)


def played(story: Story) -> Ledger:
    topics = {**QuietScenario().topics, "t": len(ENDS)}
    run = Run(10**9, "begins", QuietScenario(seed=story.seed, topics=topics))
    ledger: Ledger = run.play(story.tell)
    return ledger


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("order", ["key", "partition"])
def test_every_record_is_worked_on_in_order_and_no_commit_is_ahead_of_the_work(order, assignor):
    events: Counter[str] = Counter()
    for seed in SEEDS:
        story = Story(seed, order, assignor)
        try:
            events += played(story).events
        except BaseException as error:
            error.add_note(f"{story}")
            raise
    for what in ("died", "stalled", "left", "failed", "revoked", "lost", "repeated"):
        assert events[what], f"nobody {what}: {events}"


def test_a_story_is_the_same_each_time_it_is_told():
    first, second = (played(Story(3, "key", "cooperative-sticky")) for _ in range(2))
    assert first.done == second.done
    assert first.events == second.events
