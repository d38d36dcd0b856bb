"""Histories of transactions, told to a broker request by request: what it answers to each.

A history is a function that speaks and notes what it heard. The same history is told to Apache
Kafka and to our broker. An id that is just being completed is asked again: how long that takes is
nobody's promise (Kafka says CONCURRENT_TRANSACTIONS where we let the client wait).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from shoal.errors import ErrorCode
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.describe_transactions import DescribeTransactionsRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from tests.broker.raw_client import RawClient
from tests.broker.transactional import NEW, OLD, Transactional, committed_offset, end_offset, read

T = TypeVar("T")
_PATIENCE_S: Final = 10.0
_MOMENTARY: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def patiently(ask: Callable[[], T]) -> T:
    """Ask until the answer is not one of a moment."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        answer = ask()
        codes = answer if isinstance(answer, list) else [answer]
        if not _MOMENTARY.intersection(codes) or time.monotonic() > until:
            return answer
        time.sleep(0.02)


class Teller(Transactional):
    """A producer that notes every answer."""

    def __init__(self, stage: Stage, name: str, flow: int = OLD) -> None:
        super().__init__(stage.raw, name, flow)
        self._heard = stage.heard

    def _note(self, what: str, answer: Any) -> Any:
        shown = [each.name for each in answer] if isinstance(answer, list) else answer.name
        self._heard.append((what, shown))
        return answer

    def init(self, **said: Any) -> ErrorCode:
        before = self.producer_id
        code = patiently(lambda: super(Teller, self).init(**said))
        self._note("init", code)
        if code is ErrorCode.NONE:
            self._heard.append(("same id", self.producer_id == before))
            self._heard.append(("epoch", self.epoch))
        return code

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        answer = patiently(lambda: super(Teller, self).add(*partitions, version=version))
        self._note(f"add v{version}", answer)
        return answer

    def produce(self, topic: str, *values: bytes, version: int | None = None, **said: Any) -> Any:
        call = super().produce
        answer = patiently(lambda: call(topic, *values, version=version, **said))
        return self._note(f"produce v{version}", answer)

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        call = super().end
        code = patiently(lambda: call(commit=commit, version=version))
        self._note("commit" if commit else "abort", code)
        self._heard.append(("epoch", self.epoch))
        return code

    def add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        call = super().add_offsets
        code: ErrorCode = self._note("add offsets", patiently(lambda: call(group, version)))
        return code

    def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], **said: Any
    ) -> list[ErrorCode]:
        call = super().commit_offsets
        codes: list[ErrorCode] = self._note(
            f"offsets v{said.get('version')} of {said.get('member')}",
            patiently(lambda: call(group, offsets, **said)),
        )
        return codes

    def as_of(self, producer_id: int, epoch: int) -> None:
        """Speak as if this were who one is."""
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences = {}


class Stage:
    """A broker, a topic of this history's own, and what was heard."""

    def __init__(self, raw: RawClient, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self.heard: list[tuple[str, Any]] = []
        self._create(topic)

    def _create(self, name: str) -> None:
        made = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        code = self.raw.ask(CreateTopicsRequest(topics=[made]), 7).topics[0].error_code
        assert code == 0, ErrorCode.of(code)
        for index in (0, 1):
            patiently(lambda index=index: _leads(self.raw, name, index))  # type: ignore[misc]

    def producer(self, flow: int = OLD, *, suffix: str = "") -> Teller:
        return Teller(self, f"id-of-{self.topic}{suffix}", flow)

    def begun(self, flow: int = OLD, *, suffix: str = "") -> Teller:
        """With an open transaction."""
        one = self.producer(flow, suffix=suffix)
        one.init()
        one.write(self.topic, b"x")
        return one

    def note(self, what: str, value: Any) -> None:
        self.heard.append((what, value))

    def settle(self, name: str) -> str:
        """The state of an id when it does not change by itself any more."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            (found,) = self.raw.ask(
                DescribeTransactionsRequest(transactional_ids=[name]), 0
            ).transaction_states
            if "Prepare" not in found.transaction_state or time.monotonic() > until:
                return found.transaction_state or ErrorCode.of(found.error_code).name
            time.sleep(0.02)


@contextmanager
def stage(port: int, topic: str) -> Iterator[Stage]:
    with RawClient(port, timeout=30) as raw:
        for kind in (0, 1):
            patiently(lambda kind=kind: _coordinator(raw, kind))  # type: ignore[misc]
        yield Stage(raw, topic)


def _leads(raw: RawClient, topic: str, index: int) -> ErrorCode:
    """Kafka's topics are made before they can be used."""
    wanted = ListOffsetsRequest.Partition(partition_index=index, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[wanted])]
    )
    return ErrorCode.of(raw.ask(request, 7).topics[0].partitions[0].error_code)


def _coordinator(raw: RawClient, kind: int) -> ErrorCode:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
    return ErrorCode.of(raw.ask(request, 6).coordinators[0].error_code)


# --- Histories -----------------------------------------------------------------------------------


def inits(at: Stage) -> None:
    one = at.producer()
    for bad in ({"timeout_ms": 0}, {"timeout_ms": 900_001}, {"expected": (5, -1)}):
        one.init(**bad)
    one.init()
    one.init()
    producer_id, epoch = one.producer_id, one.epoch
    one.init(expected=(producer_id, epoch))
    one.init(expected=(producer_id, epoch))
    one.init(expected=(producer_id, epoch + 1))
    one.init(expected=(producer_id, epoch))
    one.init(expected=(producer_id + 1, epoch))
    one.init(expected=(producer_id + 1, epoch), version=3)
    one.init(version=0)
    at.producer(suffix="\u00e9").init()
    nameless = Teller(at, "")
    nameless.init()


def init_in_an_open_transaction(at: Stage) -> None:
    one = at.begun()
    two = at.producer()
    two.init()
    for version in (1, 3):
        one.add((at.topic, 0), version=version)
    one.produce(at.topic, b"late", version=11)
    one.end(commit=True, version=1)
    one.end(commit=True, version=4)
    one.end(commit=True, version=5)
    two.write(at.topic, b"y")
    two.end(commit=True)
    at.note("state", at.settle(one.name))
    at.note("read", read(at.raw, at.topic))


def ends_of_the_old_flow(at: Stage) -> None:
    for first in (True, False):
        for second in (True, False):
            one = at.producer(suffix=f"{first}{second}")
            one.init()
            one.end(commit=second)
            one.write(at.topic, b"x")
            one.end(commit=first)
            at.note("state", at.settle(one.name))
            one.end(commit=second)
            one.as_of(one.producer_id, one.epoch + 1)
            one.end(commit=first)
            one.as_of(one.producer_id + 1, one.epoch)
            one.end(commit=first)


def ends_of_the_new_flow(at: Stage) -> None:
    for first in (True, False):
        for second in (True, False):
            one = at.begun(NEW, suffix=f"{first}{second}")
            producer_id, epoch = one.producer_id, one.epoch
            one.end(commit=first)
            at.note("state", at.settle(one.name))
            one.as_of(producer_id, epoch)
            if (first, second) != (False, True):
                # Kafka 4.3 answers INVALID_TXN_STATE here; PRODUCER_FENCED since KAFKA-20785.
                one.end(commit=second)
            one.as_of(producer_id, epoch + 1)
            one.end(commit=second)
            at.note("state", at.settle(one.name))
            one.as_of(producer_id, epoch + 7)
            one.end(commit=second)


def ends_of_nothing_in_the_new_flow(at: Stage) -> None:
    for commit in (True, False):
        one = at.producer(NEW, suffix=str(commit))
        one.init()
        one.end(commit=commit)
        one.as_of(one.producer_id, max(0, one.epoch - 1))
        one.end(commit=commit)
        at.note("state", at.settle(one.name))


def ends_in_an_open_transaction(at: Stage) -> None:
    for commit in (True, False):
        one = at.begun(NEW, suffix=str(commit))
        producer_id, epoch = one.producer_id, one.epoch
        for wrong in (epoch - 1, epoch + 1):
            one.as_of(producer_id, wrong)
            one.end(commit=commit)
        one.as_of(producer_id, epoch)
        one.end(commit=commit)


def both_flows_on_one_id(at: Stage) -> None:
    one = at.producer()
    one.init()
    for flow in (OLD, NEW, NEW, OLD, NEW):
        one.flow = flow
        one.write(at.topic, b"%d" % flow)
        one.end(commit=True)
        # Kafka takes a batch that comes before the marker for one of the transaction before.
        at.note("state", at.settle(one.name))
    at.note("read", read(at.raw, at.topic))


def batches_without_a_transaction(at: Stage) -> None:
    for version in (9, 10, 11, 12):
        one = at.producer(suffix=str(version))
        one.init()
        one.produce(at.topic, b"x", version=version)
        one.produce(at.topic, b"x", version=version, name=None)
        one.as_of(one.producer_id + 1_000, one.epoch)
        one.produce(at.topic, b"x", version=version)
        one.produce(at.topic, b"x", version=version, name="nobody")


def batches_of_other_epochs(at: Stage) -> None:
    for version in (10, 11, 12):
        one = at.begun(NEW, suffix=str(version))
        producer_id, epoch = one.producer_id, one.epoch
        one.end(commit=True)
        at.settle(one.name)
        for wrong in (epoch, epoch + 2):
            one.as_of(producer_id, wrong)
            one.produce(at.topic, b"x", version=version, partition=1)


def batches_after_the_end(at: Stage) -> None:
    one = at.begun()
    one.end(commit=True)
    at.settle(one.name)
    for version in (10, 11):
        one.produce(at.topic, b"late", version=version)
    one.write(at.topic, b"y")
    one.produce(at.topic, b"plain", is_transactional=False, version=11)
    one.end(commit=False)
    at.settle(one.name)
    at.note("read", read(at.raw, at.topic))


def sequences_of_the_new_flow(at: Stage) -> None:
    one = at.producer(NEW)
    one.init()
    one.produce(at.topic, b"x", version=12, sequence=5)
    one.produce(at.topic, b"x", version=12, sequence=0)
    one.produce(at.topic, b"x", version=12, sequence=0)
    one.end(commit=True)
    one.produce(at.topic, b"x", version=12, sequence=1)
    one.produce(at.topic, b"x", version=12, sequence=0)
    one.end(commit=True)
    at.settle(one.name)
    at.note("end", end_offset(at.raw, at.topic, committed=True))


def partitions(at: Stage) -> None:
    one = at.producer()
    one.add((at.topic, 0))
    one.init()
    one.add((at.topic, 0), (at.topic, 9))
    one.add(("nope", 0))
    one.add(("__consumer_offsets", 0))
    one.add((at.topic, 0))
    one.add((at.topic, 0), (at.topic, 1))
    one.as_of(one.producer_id, one.epoch + 1)
    for version in (0, 1, 2, 3):
        one.add((at.topic, 0), version=version)
    one.as_of(one.producer_id + 1_000, one.epoch)
    one.add((at.topic, 0))


def partitions_as_brokers_ask(at: Stage) -> None:
    one = at.begun()
    quiet = at.producer(suffix="quiet")
    quiet.init()
    for version in (4, 5):
        for verify in (True, False):
            for each, name in ((one, at.topic), (quiet, at.topic), (one, "nope")):
                wanted = AddPartitionsToTxnRequest.Transaction(
                    transactional_id=each.name,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    verify_only=verify,
                    topics=[AddPartitionsToTxnRequest.Topic(name=name, partitions=[0, 1])],
                )
                answer = at.raw.ask(AddPartitionsToTxnRequest(transactions=[wanted]), version)
                at.note(
                    f"v{version} verify={verify}",
                    sorted(
                        (result.partition_index, ErrorCode.of(result.partition_error_code).name)
                        for topic in answer.results_by_transaction[0].topic_results
                        for result in topic.results_by_partition
                    ),
                )


def offsets(at: Stage) -> None:
    group, here = "group-of-" + at.topic, (at.topic, 0)
    for version in (2, 3, 4, 5):
        one = at.producer(suffix=str(version))
        one.init()
        one.commit_offsets(group, {here: 1}, version=version)
        one.as_of(one.producer_id, one.epoch + 1)
        one.commit_offsets(group, {here: 1}, version=version)
        one.as_of(one.producer_id + 1_000, one.epoch)
        one.commit_offsets(group, {here: 1}, version=version)
    for flow in (OLD, NEW):
        one = at.producer(flow, suffix=f"flow {flow}")
        one.init()
        one.stage(group, {here: 5 + flow})
        one.commit_offsets(group, {(at.topic, 7): 1, here: 9, ("nope", 0): 1})
        one.commit_offsets(group, {here: 9}, metadata="m" * 5_000)
        one.commit_offsets(group, {here: 9}, member=("m", 3))
        one.commit_offsets(group, {here: 9}, member=("m", -1))
        one.commit_offsets(group, {here: 9}, instance="i")
        one.commit_offsets(f"new {group}", {here: 9}, member=("m", 3))
        one.commit_offsets("", {here: 9})
        stable = committed_offset(at.raw, group, at.topic, require_stable=True)
        at.note("stable", stable[1].name)
        one.end(commit=flow == OLD)
        at.settle(one.name)
        at.note("committed", committed_offset(at.raw, group, at.topic))


def added_offsets(at: Stage) -> None:
    one = at.producer()
    one.add_offsets("g")
    one.init()
    one.add_offsets("g")
    one.add_offsets("")
    one.as_of(one.producer_id, one.epoch + 1)
    for version in (0, 1, 2, 4):
        one.add_offsets("g", version)


def markers_of_strangers(at: Stage) -> None:
    def write(producer_id: int, epoch: int, name: str, index: int, version: int) -> None:
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[index])
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=0,
        )
        answer = at.raw.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        codes = [
            ErrorCode.of(each.error_code).name
            for topic in answer.markers[0].topics
            for each in topic.partitions
        ]
        at.note(f"marker v{version}", codes)

    for version in (1, 2):
        write(999_999, 3, at.topic, 1, version)
        write(999_999, 2, at.topic, 1, version)
        write(999_999, 3, at.topic, 9, version)
        write(999_999, 3, "nope", 0, version)


def descriptions(at: Stage) -> None:
    one = at.begun()

    def note(name: str) -> None:
        (found,) = at.raw.ask(
            DescribeTransactionsRequest(transactional_ids=[name]), 0
        ).transaction_states
        at.note(
            "described",
            (
                found.error_code,
                found.transaction_state,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms > 0,
                found.producer_epoch,
                [(each.topic, sorted(each.partitions)) for each in found.topics],
            ),
        )

    note(one.name)
    note("")
    note("nobody")
    one.end(commit=True)
    at.settle(one.name)
    note(one.name)
    fresh = at.producer(suffix="fresh")
    fresh.init()
    note(fresh.name)
    for filters in (
        {"transactional_id_pattern": f"id-of-{at.topic}.*"},
        {"transactional_id_pattern": f"of-{at.topic}"},
        {"state_filters": ["Empty", "Nonsense"], "transactional_id_pattern": f".*{at.topic}.*"},
        {"transactional_id_pattern": f".*{at.topic}.*", "duration_filter": 3_600_000},
        {"transactional_id_pattern": "("},
    ):
        said: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = at.raw.ask(ListTransactionsRequest(**said), 2)
        at.note(
            "listed",
            (
                ErrorCode.of(answer.error_code).name,
                sorted(
                    (each.transactional_id, each.transaction_state)
                    for each in answer.transaction_states
                ),
                list(answer.unknown_state_filters),
            ),
        )


def time_out(at: Stage) -> None:
    """The broker of this history looks for transactions that take too long every 200 ms."""
    for flow in (OLD, NEW):
        one = at.producer(flow, suffix=str(flow))
        one.init(timeout_ms=300)
        one.write(at.topic, b"x")
        while at.settle(one.name) == "Ongoing":
            time.sleep(0.05)
        at.note("state", at.settle(one.name))
        one.produce(at.topic, b"late")
        one.add((at.topic, 0))
        one.end(commit=False, version=4)
        if flow == NEW:
            one.end(commit=False, version=5)
            one.as_of(one.producer_id, one.epoch - 1)
        one.init(expected=(one.producer_id, one.epoch))
        one.init()
        one.write(at.topic, b"y")
        one.end(commit=True)


HISTORIES: Final[tuple[Callable[[Stage], None], ...]] = (
    inits,
    init_in_an_open_transaction,
    ends_of_the_old_flow,
    ends_of_the_new_flow,
    ends_of_nothing_in_the_new_flow,
    ends_in_an_open_transaction,
    both_flows_on_one_id,
    batches_without_a_transaction,
    batches_of_other_epochs,
    batches_after_the_end,
    sequences_of_the_new_flow,
    partitions,
    partitions_as_brokers_ask,
    offsets,
    added_offsets,
    markers_of_strangers,
    descriptions,
    time_out,
)
