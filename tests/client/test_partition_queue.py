"""Order and numbers of one partition's batches: what a producer's promises rest on.

What the simulated producers found first:

* a record whose answer was lost went again under another producer id, and was stored twice
* a batch that was given up arrived late, behind what had been sent after it
* batches made in the same moment went again in the order of their failures
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.client.deadlines import RetryBackoff
from shoal.client.partition_queue import PartitionQueue
from shoal.client.producer_batch import NO_SEQUENCE, Builder, ProducerBatch
from shoal.types import TopicPartition

TP = TopicPartition("t", 0)


def queue_of(*counts: int, producer: tuple[int, int] | None = (7, 0)) -> PartitionQueue:
    """Batches with so many records, all under way."""
    queue = PartitionQueue(RetryBackoff(1, 1))
    queue.producer = producer
    for number, count in enumerate(counts):
        batch = ProducerBatch(TP, 0.0, number)
        batch.builder = Builder(1_000)
        for _ in range(count):
            batch.builder.append(None, b"v", (), 0)
        batch.record_count = count
        queue.number(batch)
        queue.in_flight.append(batch)
    return queue


def fail(queue: PartitionQueue, *places: int, copies: int = 0) -> None:
    chosen = [queue.in_flight[place] for place in places]
    for batch in chosen:
        queue.in_flight.remove(batch)
        batch.copies = copies
        queue.failed.append(batch)
    queue.is_recovering = True


def sequences(queue: PartitionQueue) -> list[int]:
    return [batch.base_sequence for batch in queue.waiting]


def test_a_retry_keeps_its_sequence() -> None:
    queue = queue_of(3, 2, 4)
    fail(queue, 0, 1, 2)
    assert queue.recover() == []
    for batch in queue.waiting:
        queue.number(batch)
    assert sequences(queue) == [0, 3, 5]
    assert queue.next_sequence == 9


@given(st.permutations(range(5)))
def test_failed_batches_go_again_in_the_order_they_were_made(order: list[int]) -> None:
    queue = queue_of(1, 1, 1, 1, 1)
    assert len({batch.created_at for batch in queue.in_flight}) == 1
    fail(queue, *order)
    queue.in_flight.clear()
    queue.recover()
    assert sequences(queue) == [0, 1, 2, 3, 4]


def test_after_a_gap_the_next_epoch_counts_from_the_beginning() -> None:
    queue = queue_of(3, 2)
    fail(queue, 0, 1)
    queue.sequence_is_broken = queue.is_known = True
    assert queue.recover() == []
    assert queue.producer == (7, 1)
    assert sequences(queue) == [NO_SEQUENCE, NO_SEQUENCE]
    assert (queue.next_sequence, queue.is_known, queue.sequence_is_broken) == (0, False, False)


def test_what_may_be_in_the_log_is_never_numbered_anew() -> None:
    queue = queue_of(3, 2, 1)
    first, second, third = queue.in_flight
    fail(queue, 0)
    fail(queue, 0, copies=1)
    fail(queue, 0)
    queue.sequence_is_broken = True
    assert queue.recover() == [second]
    assert list(queue.waiting) == [first, third]
    assert second.base_sequence == 3


def test_behind_the_last_epoch_comes_another_producer_id() -> None:
    queue = queue_of(1, producer=(7, 2**15 - 1))
    fail(queue, 0)
    queue.sequence_is_broken = True
    queue.recover()
    assert (queue.producer, queue.spent_id) == (None, 7)


@given(st.integers(2, 9), st.integers(0, 2**31 - 1))
def test_the_halves_of_a_batch_share_its_sequence(count: int, start: int) -> None:
    queue = PartitionQueue(RetryBackoff(1, 1))
    queue.producer, queue.next_sequence = (7, 0), start
    (batch,) = queue_of(count, producer=None).in_flight
    queue.number(batch)
    queue.in_flight.append(batch)
    first, second = queue.split(batch)
    assert first.base_sequence == start
    assert second.base_sequence == (start + first.record_count) % 2**31
    assert (second.base_sequence + second.record_count) % 2**31 == queue.next_sequence
    assert queue.failed == [first, second]
    assert not queue.in_flight


def test_behind_the_last_sequence_comes_the_first() -> None:
    queue = PartitionQueue(RetryBackoff(1, 1))
    queue.producer, queue.next_sequence = (7, 0), 2**31 - 2
    for batch in queue_of(3, 2, producer=None).in_flight:
        queue.number(batch)
        queue.in_flight.append(batch)
    assert [batch.base_sequence for batch in queue.in_flight] == [2**31 - 2, 1]
    assert queue.next_sequence == 3


def test_without_idempotence_there_are_no_numbers() -> None:
    queue = queue_of(3, producer=None)
    (batch,) = queue.in_flight
    assert batch.base_sequence == NO_SEQUENCE
    assert {part.base_sequence for part in queue.split(batch)} == {NO_SEQUENCE}


def test_a_queue_that_has_nothing_left_has_recovered() -> None:
    queue = queue_of(1)
    queue.is_recovering = True
    queue.in_flight.clear()
    assert queue.recover() == []
    assert not queue.is_recovering
