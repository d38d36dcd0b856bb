"""Transactions as clients of both flows see them, request by request, on a broker that serves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shoal.broker.broker import Broker as LiveBroker
from shoal.broker.config import BrokerConfig, TransactionSettings
from shoal.errors import ErrorCode
from shoal.records.batch import iter_headers, read_header
from shoal.testing.broker import Broker
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_transactions import DescribeTransactionsRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from shoal.wire.frames import encode_request
from shoal.wire.schema import ZERO_UUID
from tests.broker.asking import fetch_request, produce
from tests.broker.raw_client import RawClient, batch, values_of
from tests.broker.transactional import (
    NEW,
    OLD,
    Transactional,
    committed_offset,
    end_offset,
    now_ms,
    read,
)
from tests.patience import PATIENCE_S

NONE = ErrorCode.NONE


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.002)


FLOWS = pytest.mark.parametrize("flow", [OLD, NEW], ids=["old", "new"])


@pytest.fixture
def name(topic: str) -> str:
    """A transactional id of this test's own."""
    return f"id of {topic}"


def producer(raw: RawClient, name: str, flow: int = OLD) -> Transactional:
    made = Transactional(raw, name, flow)
    assert made.init() is NONE
    return made


# --- The path ------------------------------------------------------------------------------------


@FLOWS
def test_a_commit_shows_records_and_an_abort_never_does(raw, topic, name, flow) -> None:
    one = producer(raw, name, flow)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True), (b"d", False)):
        one.write(topic, value)
        assert one.end(commit=commit) is NONE
    assert _settled(raw, topic, 8) == [b"a", b"c"]
    assert read(raw, topic, committed=False) == [b"a", b"b", b"c", b"d"]


def _settled(raw: RawClient, topic: str, end: int) -> list[bytes | None]:
    """What is read when the last marker is there."""
    until(lambda: end_offset(raw, topic, committed=True) >= end, "the last marker")
    return read(raw, topic)


def _stable(raw: RawClient, group: str, topic: str) -> tuple[int, ErrorCode]:
    """A committed offset when no transaction may change it any more."""
    until(lambda: not committed_offset(raw, group, topic, require_stable=True)[1], "an end")
    return committed_offset(raw, group, topic)


@FLOWS
def test_nobody_sees_an_open_transaction(raw, topic, name, flow) -> None:
    one = producer(raw, name, flow)
    one.write(topic, b"a")
    assert produce(raw, topic, batch(b"plain", timestamp_ms=now_ms())).error_code == 0
    assert read(raw, topic) == []
    assert (end_offset(raw, topic, committed=True), end_offset(raw, topic, committed=False)) == (
        0,
        2,
    )
    one.commit()
    assert _settled(raw, topic, 3) == [b"a", b"plain"]


def test_the_epoch_stays_in_the_old_flow_and_grows_in_the_new_one(raw, topic, name) -> None:
    one = producer(raw, name)
    one.write(topic, b"a")
    one.commit()
    assert one.epoch == 0
    one.flow = NEW
    one.write(topic, b"b")
    one.commit()
    assert one.epoch == 1
    one.flow = OLD
    one.write(topic, b"c")
    one.commit()
    assert one.epoch == 1
    assert _settled(raw, topic, 6) == [b"a", b"b", b"c"]


def test_a_marker_carries_the_next_epoch_in_the_new_flow(raw, shared_broker, topic, name) -> None:
    one = producer(raw, name, NEW)
    one.write(topic, b"a")
    one.commit()
    _settled(raw, topic, 2)
    path = next(shared_broker.data_dir.glob(f"{topic}-0/*.log"))
    headers = [header for _, header in iter_headers(path.read_bytes())]
    assert [(h.producer_epoch, h.is_transactional, h.is_control) for h in headers] == [
        (0, True, False),
        (1, True, True),
    ]


def test_finding_the_coordinator_makes_the_topic_that_holds_its_state(raw) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
    (found,) = raw.ask(request, 6).coordinators
    assert (found.error_code, found.node_id) == (0, 1)
    wanted = MetadataRequest(topics=[MetadataRequest.Topic(name="__transaction_state")])
    (state,) = raw.ask(wanted).topics
    assert (state.is_internal, len(state.partitions)) == (True, 50)


# --- Fencing -------------------------------------------------------------------------------------


@FLOWS
def test_a_successor_fences_whoever_had_the_id_and_aborts_its_transaction(
    raw, topic, name, flow
) -> None:
    zombie = producer(raw, name, flow)
    zombie.write(topic, b"zombie")
    successor = producer(raw, name, flow)
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch
    assert zombie.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.add((topic, 0)) == [ErrorCode.PRODUCER_FENCED]
    assert zombie.add((topic, 0), version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert zombie.end(commit=True) is ErrorCode.PRODUCER_FENCED
    successor.write(topic, b"mine")
    successor.commit()
    assert _settled(raw, topic, 4) == [b"mine"]


def test_a_batch_of_a_fenced_producer_is_refused_where_it_never_wrote(
    raw, shared_broker, topic, name
) -> None:
    """The partition knows nothing of the new epoch: the coordinator does."""
    shared_broker.create_topic(f"{topic}.other")
    zombie = producer(raw, name, NEW)
    producer(raw, name, NEW)
    assert zombie.produce(f"{topic}.other", b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(raw, f"{topic}.other", committed=False) == 0


def test_a_batch_of_the_epoch_before_does_not_join_the_next_transaction(raw, topic, name) -> None:
    """KAFKA-17754, the reason for the new flow."""
    one = producer(raw, name, NEW)
    one.write(topic, b"a")
    late = one.request(topic, b"late")
    one.commit()
    one.write(topic, b"b")
    code = raw.ask(late, 12).responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    one.commit()
    assert _settled(raw, topic, 4) == [b"a", b"b"]


# --- What a produce request may hold -------------------------------------------------------------


def test_a_transactional_batch_needs_a_transactional_id(raw, topic, name) -> None:
    one = producer(raw, name)
    one.add((topic, 0))
    assert one.produce(topic, b"x", name=None) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_offset(raw, topic, committed=False) == 0


def test_two_producers_in_one_request_are_refused(raw, topic, name) -> None:
    one, other = producer(raw, name), producer(raw, f"{name}.other")
    request = one.request(topic, b"x")
    request.topic_data[0].partition_data.append(
        other.request(topic, b"y", partition=1).topic_data[0].partition_data[0]
    )
    answers = raw.ask(request, 11).responses[0].partition_responses
    assert {each.error_code for each in answers} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert end_offset(raw, topic, committed=False) == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.NONE),
    ],
)
def test_what_was_not_added_is_refused_up_to_v11_and_added_from_v12(
    raw, topic, name, version, code
) -> None:
    one = producer(raw, name)
    assert one.produce(topic, b"x", version=version) is code
    assert end_offset(raw, topic, committed=False) == (1 if code is NONE else 0)


def test_an_unknown_id_writes_nothing(raw, topic, name) -> None:
    stranger = Transactional(raw, name, NEW)
    stranger.producer_id, stranger.epoch = 123_456, 0
    for version in (11, 12):
        code = stranger.produce(topic, b"x", version=version)
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.add((topic, 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert stranger.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end_offset(raw, topic, committed=False) == 0


def test_a_transactional_batch_does_not_take_the_quick_way(raw, topic, name) -> None:
    """The connection has learnt how plain requests look; this one looks the same."""
    one = producer(raw, name)
    for number in range(3):
        plain = one.request(
            topic,
            b"%d" % number,
            name=None,
            producer_id=-1,
            epoch=-1,
            sequence=-1,
            is_transactional=False,
        )
        assert raw.ask(plain, 11).responses[0].partition_responses[0].error_code == 0
    sly = one.request(topic, b"x", name=None, sequence=0)
    (answer,) = raw.ask(sly, 11).responses[0].partition_responses
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_offset(raw, topic, committed=False) == 3


def test_a_batch_is_refused_after_the_end_on_the_quick_way_too(raw, topic, name) -> None:
    """The connection has learnt how its requests look; these look the same."""
    one = producer(raw, name)
    one.write(topic, b"a")
    assert one.produce(topic, b"b") is NONE
    one.commit()
    assert one.produce(topic, b"late") is ErrorCode.TRANSACTION_ABORTABLE
    one.write(topic, b"c")
    producer(raw, name)
    assert one.produce(topic, b"fenced") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert _settled(raw, topic, 5) == [b"a", b"b"]


def test_batches_of_a_transaction_that_come_together_are_stored_one_by_one(
    raw, topic, name
) -> None:
    one = producer(raw, name)
    one.write(topic, b"a")
    sent = [one.request(topic, b"%d" % number) for number in range(5)]
    frames = [
        b"".join(encode_request(0, 11, number, "raw", each)) for number, each in enumerate(sent)
    ]
    raw.sock.sendall(b"".join([*frames, frames[-1]]))
    answers = [raw.receive(0, 11).responses[0].partition_responses[0] for _ in range(6)]
    assert [each.error_code for each in answers] == [0] * 6
    # The last one came twice.
    assert [each.base_offset for each in answers] == [1, 2, 3, 4, 5, 5]
    one.commit()
    assert _settled(raw, topic, 7) == [b"a", b"0", b"1", b"2", b"3", b"4"]


def test_a_plain_batch_does_not_get_into_an_open_transaction(raw, topic, name) -> None:
    one = producer(raw, name)
    one.write(topic, b"a")
    code = one.produce(topic, b"plain", is_transactional=False)
    assert code is ErrorCode.INVALID_TXN_STATE
    assert end_offset(raw, topic, committed=False) == 1


# --- Adding --------------------------------------------------------------------------------------


def test_one_partition_that_is_not_there_keeps_the_others_out(raw, topic, name) -> None:
    one = producer(raw, name)
    assert one.add((topic, 0), (topic, 7)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert one.produce(topic, b"x") is ErrorCode.TRANSACTION_ABORTABLE
    assert one.end(commit=True) is ErrorCode.INVALID_TXN_STATE


def test_brokers_ask_about_many_transactions_at_once(raw, topic, name) -> None:
    one, other = producer(raw, name), producer(raw, f"{name}.other")
    one.add((topic, 0))
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.Transaction(
                transactional_id=each.name,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnRequest.Topic(name=topic, partitions=[0])],
            )
            for each in (one, other)
        ]
    )
    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in raw.ask(request, 5).results_by_transaction
    ]
    assert codes == [NONE, ErrorCode.TRANSACTION_ABORTABLE]


# --- Time, deleted topics ------------------------------------------------------------------------


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(topics=["t", "u"]) as broker:
        yield broker


@FLOWS
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    own_broker, flow
) -> None:
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "slow", flow)
        one.write("t", b"x")
        own_broker.advance(61)
        assert _settled(raw, "t", 2) == []
        assert one.end(commit=True) is ErrorCode.PRODUCER_FENCED
        assert one.produce("t", b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        # KIP-588: it may go on, for nobody else has its id.
        assert one.init(expected=(one.producer_id, one.epoch)) is NONE
        one.write("t", b"again")
        one.commit()
        assert _settled(raw, "t", 4) == [b"again"]


def test_a_deleted_topic_does_not_keep_its_transaction_open(own_broker) -> None:
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "deleting")
        one.write("t", b"x")
        one.write("u", b"y")
        wanted = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="u", topic_id=ZERO_UUID)],
            timeout_ms=5_000,
        )
        assert raw.ask(wanted, 6).responses[0].error_code == 0
        one.commit()
        one.write("t", b"z")
        one.commit()
        assert _settled(raw, "t", 4) == [b"x", b"z"]


def test_an_unused_id_is_forgotten_and_its_producer_asks_anew() -> None:
    settings = TransactionSettings(id_expiration_ms=1_000, remove_expired_interval_ms=500)
    with (
        Broker(topics=["t"], config=BrokerConfig(transactions=settings)) as broker,
        RawClient(broker.port) as raw,
    ):
        one = producer(raw, "expiring")
        broker.advance(3)
        assert one.add(("t", 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        before = one.producer_id
        assert one.init() is NONE
        assert (one.producer_id != before, one.epoch) == (True, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(raw, name, timeout_ms) -> None:
    one = Transactional(raw, name)
    assert one.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("name", "expected"), [("", (-1, -1)), ("x", (5, -1)), ("x", (-1, 5))])
def test_an_init_that_cannot_be_is_refused(raw, name, expected) -> None:
    assert Transactional(raw, name).init(expected=expected) is ErrorCode.INVALID_REQUEST


# --- Looking, and the administrator --------------------------------------------------------------


def described(raw: RawClient, name: str):
    (found,) = raw.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    return found


def test_an_open_transaction_is_described_and_listed(raw, topic, name) -> None:
    one = producer(raw, name)
    one.write(topic, b"x")
    found = described(raw, name)
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (one.producer_id, one.epoch)
    assert abs(found.transaction_start_time_ms - now_ms()) < 60_000
    assert [(each.topic, list(each.partitions)) for each in found.topics] == [(topic, [0])]
    one.commit()
    _settled(raw, topic, 2)
    until(lambda: described(raw, name).transaction_state != "PrepareCommit", "the end")
    found = described(raw, name)
    assert (found.transaction_state, list(found.topics)) == ("CompleteCommit", [])


def test_what_is_not_known_is_not_described(raw) -> None:
    assert described(raw, "").error_code == ErrorCode.INVALID_REQUEST
    assert described(raw, "no such id").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_transactions_are_listed_by_state_producer_age_and_pattern(raw, topic, name) -> None:
    one = producer(raw, name)
    one.write(topic, b"x")

    def listed(**filters) -> set[str]:
        request = ListTransactionsRequest(
            state_filters=filters.pop("states", []),
            producer_id_filters=filters.pop("producers", []),
            **filters,
        )
        answer = raw.ask(request)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    assert name in listed()
    assert name in listed(states=["Ongoing"])
    assert name not in listed(states=["Empty"])
    assert listed(producers=[one.producer_id]) == {name}
    assert name not in listed(states=["Ongoing"], duration_filter=3_600_000)
    assert listed(transactional_id_pattern=f"id of {topic}") == {name}
    assert listed(transactional_id_pattern="of") == set()
    bad = ListTransactionsRequest(state_filters=["Odd"], producer_id_filters=[])
    assert list(raw.ask(bad).unknown_state_filters) == ["Odd"]


@pytest.mark.parametrize("pattern", ["(", "(a+)+b", "(a|a)*b", "(?=a)", r"(a)\1", "a*a*a*a*a*b"])
def test_a_pattern_that_could_take_for_ever_is_refused(raw, pattern) -> None:
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )
    assert raw.ask(request, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def markers(producer_id: int, epoch: int, topic: str, *, commit: bool = False, index: int = 0):
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                        name=topic, partition_indexes=[index]
                    )
                ],
                coordinator_epoch=0,
            )
        ]
    )


def marker_code(raw: RawClient, request: WriteTxnMarkersRequest) -> ErrorCode:
    (answer,) = raw.ask(request).markers
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def test_an_administrator_aborts_a_transaction_everywhere(raw, shared_broker, topic, name) -> None:
    """KIP-664: a marker behind the coordinator's back would be followed by a commit elsewhere."""
    shared_broker.create_topic(f"{topic}.2")
    one = producer(raw, name)
    one.write(topic, b"x")
    one.write(f"{topic}.2", b"y")
    assert marker_code(raw, markers(one.producer_id, one.epoch, topic, commit=True)) is (
        ErrorCode.INVALID_TXN_STATE
    )
    assert marker_code(raw, markers(one.producer_id, one.epoch, topic)) is NONE
    assert _settled(raw, topic, 2) == []
    assert _settled(raw, f"{topic}.2", 2) == []
    assert one.end(commit=True) is ErrorCode.PRODUCER_FENCED


def test_markers_for_what_is_not_there_are_refused(raw, topic) -> None:
    assert marker_code(raw, markers(1, 0, "no such topic")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert marker_code(raw, markers(1, 0, topic, index=9)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_producer_without_a_transactional_id_is_new_each_time(raw) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first, second = raw.ask(request, 5), raw.ask(request, 5)
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.producer_id != second.producer_id


# --- Groups --------------------------------------------------------------------------------------


@FLOWS
def test_offsets_count_when_their_transaction_is_committed(raw, topic, name, flow) -> None:
    one = producer(raw, name, flow)
    one.write(topic, b"x")
    one.stage("g." + name, {(topic, 0): 7})
    assert committed_offset(raw, "g." + name, topic) == (-1, NONE)
    assert committed_offset(raw, "g." + name, topic, require_stable=True) == (
        -1,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    one.commit()
    assert _stable(raw, "g." + name, topic) == (7, NONE)
    one.stage("g." + name, {(topic, 0): 9})
    one.abort()
    assert _stable(raw, "g." + name, topic) == (7, NONE)


def test_offsets_are_refused_partition_by_partition_and_group_by_group(raw, topic, name) -> None:
    one = producer(raw, name, NEW)
    codes = one.commit_offsets("g." + name, {(topic, 0): 1, (topic, 9): 1, ("nope", 0): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [NONE, unknown, unknown]
    assert one.commit_offsets("", {(topic, 0): 1}) == [ErrorCode.INVALID_GROUP_ID]
    long = one.commit_offsets("g." + name, {(topic, 0): 1}, metadata="m" * 4_097)
    assert long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, NONE)],
)
def test_offsets_that_were_not_added_are_refused_up_to_v4_and_added_from_v5(
    raw, topic, name, version, code
) -> None:
    one = producer(raw, name)
    assert one.commit_offsets("g." + name, {(topic, 0): 1}, version=version) == [code]


def test_a_zombies_offsets_are_refused(raw, topic, name) -> None:
    zombie = producer(raw, name, NEW)
    producer(raw, name, NEW)
    for version in (3, 5):
        codes = zombie.commit_offsets("g." + name, {(topic, 0): 1}, version=version)
        assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_member_of_another_generation_is_refused(raw, topic, name) -> None:
    """KIP-447."""
    one = producer(raw, name, NEW)
    group = "g." + name
    codes = one.commit_offsets(group, {(topic, 0): 1}, member=("nobody", 3))
    assert codes == [ErrorCode.ILLEGAL_GENERATION]
    one.stage(group, {(topic, 0): 1})
    codes = one.commit_offsets(group, {(topic, 0): 1}, member=("nobody", 3))
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_staged_offsets_are_kafkas_bytes(raw, shared_broker, topic, name) -> None:
    one = producer(raw, name, NEW)
    group = "g." + name
    one.stage(group, {(topic, 0): 1})
    one.commit()
    number = shared_broker.on_loop(lambda live: live.groups.number_of(group))
    _stable(raw, group, topic)
    path = next(shared_broker.data_dir.glob(f"__consumer_offsets-{number}/*.log"))
    data = path.read_bytes()
    ours = [h for _, h in iter_headers(data) if h.producer_id == one.producer_id]
    assert [
        (h.producer_epoch, h.base_sequence, h.is_transactional, h.is_control) for h in ours
    ] == [
        (0, -1, True, False),
        (1, -1, True, True),
    ]


def test_the_journal_of_transactions_is_plain_batches(raw, shared_broker, topic, name) -> None:
    one = producer(raw, name)
    one.write(topic, b"x")
    number = shared_broker.on_loop(lambda live: live.transactions.number_of(name))
    path = next(shared_broker.data_dir.glob(f"__transaction_state-{number}/*.log"))
    header = read_header(path.read_bytes(), 0)
    assert (header.producer_id, header.is_transactional, header.codec) == (-1, False, 0)


# --- Between the decision and its end ------------------------------------------------------------


@contextmanager
def held_markers(broker: Broker) -> Iterator[Callable[[], None]]:
    """No marker is written until the function is called."""

    def hold(live: LiveBroker) -> None:
        live.markers._stopped = True

    def go_on(live: LiveBroker) -> None:
        writer = live.markers
        writer._stopped = False
        for pending in list(writer._orders.values()):
            for partition in list(pending.left):
                writer._write(pending, partition)

    broker.on_loop(hold)
    yield lambda: broker.on_loop(go_on)


@FLOWS
def test_who_waits_for_committed_records_is_woken_by_the_end_of_a_transaction(
    own_broker, flow
) -> None:
    with RawClient(own_broker.port) as raw, RawClient(own_broker.port) as reader:
        one = producer(raw, "slow", flow)
        one.write("t", b"a")
        wanted = fetch_request("t", 0, max_wait_ms=300_000, min_bytes=100, isolation_level=1)
        reader.send(wanted, 12)
        until(lambda: own_broker.counters()["fetches_waiting"] == 1, "it waits")
        one.write("t", b"b")
        assert own_broker.counters()["fetches_waiting"] == 1, "nothing is committed yet"
        one.commit()
        described(raw, "slow")  # whoever has enough is answered before this is looked at
        assert own_broker.counters()["fetches_waiting"] == 0
        answer = reader.receive(1, 12).responses[0].partitions[0]
        assert values_of(answer.records)[:2] == [b"a", b"b"]


def test_what_comes_before_the_markers_waits_and_keeps_its_order(own_broker) -> None:
    with RawClient(own_broker.port) as raw, held_markers(own_broker) as go_on:
        one = producer(raw, "quick", NEW)
        one.write("t", b"a")
        one.commit()
        found = described(raw, "quick")
        assert (found.transaction_state, len(found.topics)) == ("PrepareCommit", 1)
        for value in (b"b", b"c", b"d"):
            raw.send(one.request("t", value), 12)
        raw.send(MetadataRequest(topics=[]), 12)
        go_on()
        answers = [raw.receive(0, 12).responses[0].partition_responses[0] for _ in range(3)]
        assert [answer.error_code for answer in answers] == [0, 0, 0]
        assert [answer.base_offset for answer in answers] == [2, 3, 4]
        assert raw.receive(3, 12).brokers
        one.commit()
        assert _settled(raw, "t", 6) == [b"a", b"b", b"c", b"d"]


def test_who_has_waited_long_enough_is_told_to_ask_again(own_broker) -> None:
    with RawClient(own_broker.port) as raw, held_markers(own_broker):
        one = producer(raw, "patient", NEW)
        one.write("t", b"a")
        one.commit()
        one.raw.send(one.request("t", b"b"), 12)
        own_broker.advance(2)
        (answer,) = raw.receive(0, 12).responses[0].partition_responses
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        # The old flow verifies, and is told what it knows how to repeat.
        assert one.produce("t", b"b", version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert end_offset(raw, "t", committed=False) == 1


def test_a_batch_that_comes_late_does_not_get_in_before_the_marker(own_broker) -> None:
    """The partition still thinks that the transaction is open; the coordinator knows better."""
    with RawClient(own_broker.port) as raw, held_markers(own_broker) as go_on:
        one = producer(raw, "late", NEW)
        one.write("t", b"a")
        late = one.request("t", b"late")
        one.commit()
        answer = raw.ask(late, 12).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        go_on()
        assert _settled(raw, "t", 2) == [b"a"]


# --- Restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@FLOWS
def test_an_open_transaction_goes_on_after_a_restart(own_broker, flow, kill) -> None:
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "surviving", flow)
        one.write("t", b"a")
        one.stage("g", {("t", 0): 1})
    own_broker.restart(kill=kill)
    with RawClient(own_broker.port) as raw:
        assert end_offset(raw, "t", committed=True) == 0
        assert committed_offset(raw, "g", "t", require_stable=True)[1] is (
            ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        one.raw = raw
        one.write("t", b"b")
        one.commit()
        assert _settled(raw, "t", 3) == [b"a", b"b"]
        assert _stable(raw, "g", "t") == (1, NONE)


@FLOWS
def test_a_decision_is_carried_out_after_a_restart(own_broker, flow) -> None:
    with RawClient(own_broker.port) as raw, held_markers(own_broker):
        one = producer(raw, "decided", flow)
        one.write("t", b"a")
        one.write("u", b"b")
        one.stage("g", {("t", 0): 1})
        one.commit()
    own_broker.restart(kill=True)
    with RawClient(own_broker.port) as raw:
        assert _settled(raw, "t", 2) == [b"a"]
        assert _settled(raw, "u", 2) == [b"b"]
        assert _stable(raw, "g", "t") == (1, NONE)
        assert described(raw, "decided").transaction_state == "CompleteCommit"


def test_what_no_coordinator_knows_is_aborted_at_the_start(own_broker) -> None:
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "forgotten", NEW)
        one.write("t", b"a")
        one.stage("g", {("t", 0): 1})
        number = own_broker.on_loop(lambda live: live.transactions.number_of("forgotten"))
    directory = own_broker.data_dir / f"__transaction_state-{number}"
    own_broker.kill()
    shutil.rmtree(directory)
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        assert _settled(raw, "t", 2) == []
        assert _stable(raw, "g", "t") == (-1, NONE)


def test_what_was_aborted_as_unknown_is_not_taken_for_what_is_sent_again(
    own_broker, tmp_path
) -> None:
    # A power cut may keep a batch and take the record that its transaction began with it.
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "forgotten", NEW)
        number = own_broker.on_loop(lambda live: live.transactions.number_of("forgotten"))
        directory = own_broker.data_dir / f"__transaction_state-{number}"
        shutil.copytree(directory, tmp_path / "before")
        one.write("t", b"a")
    own_broker.kill()
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "before", directory)
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        assert _settled(raw, "t", 2) == []
        one.raw, one.sequences = raw, {}
        assert one.produce("t", b"a") is ErrorCode.INVALID_PRODUCER_EPOCH
        one.abort()
        one.write("t", b"b")
        one.commit()
        until(lambda: read(raw, "t") == [b"b"], "the next transaction")


# --- Faults on demand ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "act"),
    [
        ("InitProducerId", lambda one: one.init()),
        ("AddPartitionsToTxn", lambda one: one.add(("t", 0))[0]),
        ("AddOffsetsToTxn", lambda one: one.add_offsets("g")),
        ("TxnOffsetCommit", lambda one: one.commit_offsets("g", {("t", 0): 1}, version=5)[0]),
        ("EndTxn", lambda one: one.end(commit=True)),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_test_may_let_each_request_of_a_transaction_fail_once(own_broker, api, act) -> None:
    with RawClient(own_broker.port) as raw:
        one = producer(raw, "faulty", NEW)
        one.write("t", b"a")
        own_broker.fail(api, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert act(one) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert act(one) is NONE
