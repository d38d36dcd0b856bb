"""A request that a client sends again is not decoded again, and is answered as if it were."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shoal.testing.broker import Broker
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.frames import encode_request
from tests.broker.raw_client import RawClient
from tests.broker.transactional import Transactional

NAMES = ("one", "two", "nobody")


def add(name: str, producer_id: int, partition: int) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnRequest.Topic(name="t", partitions=[partition])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def end(name: str, producer_id: int, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=0, committed=committed
    )


def begin(broker: Broker) -> dict[str, int]:
    """Two producers; which ids they have."""
    with RawClient(broker.port) as raw:
        producers = [Transactional(raw, name) for name in NAMES[:2]]
        for each in producers:
            each.init()
        return {each.name: each.producer_id for each in producers}


def frames(seed: int, ids: dict[str, int]) -> list[bytes]:
    """Some requests in some versions, most of them several times; all of them made anew."""
    chosen = random.Random(seed)
    made = []
    for correlation_id in range(200):
        name = chosen.choice(NAMES)
        producer_id = ids.get(name, 7)
        request: Any = chosen.choice(
            [
                add(name, producer_id, chosen.choice([0, 0, 0, 1, 9])),
                end(name, producer_id, chosen.choice([True, True, False])),
            ]
        )
        version = chosen.choice([0, 1, 3])
        client_id = chosen.choice(["a", "a", "b"])
        # As clients count: the sign is not theirs.
        parts = encode_request(request.API_KEY, version, correlation_id - 100, client_id, request)
        made.append(b"".join(parts))
    return made


@pytest.mark.parametrize("seed", range(3))
def test_answers_to_repeated_requests_are_those_to_new_ones(seed: int) -> None:
    with Broker(topics={"t": 2}) as one, Broker(topics={"t": 2}) as other:
        ids = begin(one)
        assert begin(other) == ids
        sent = frames(seed, ids)
        with RawClient(one.port) as raw:
            again = []
            for frame in sent:
                raw.sock.sendall(frame)
                again.append(raw.receive_frame())
        new = []
        for frame in sent:
            with RawClient(other.port) as raw:
                raw.sock.sendall(frame)
                new.append(raw.receive_frame())
        assert again == new


def test_a_request_is_kept_if_clients_repeat_it_and_it_is_small() -> None:
    def kept(live: Any) -> list[int]:
        (connection,) = live.server.connections
        return [key[1] for key in connection.decoded]

    with Broker(topics={"t": 2}) as broker:
        ids = begin(broker)
        with RawClient(broker.port) as raw:
            long = add("one", ids["one"], 0)
            long.v3_and_below_topics[0].partitions = [0] * 200
            raw.ask(long, 0)
            Transactional(raw, "one").init()
            assert broker.on_loop(kept) == []
            for _ in range(3):
                raw.ask(add("one", ids["one"], 0), 0)
                raw.ask(end("one", ids["one"], True), 1)
            assert broker.on_loop(kept) == [
                AddPartitionsToTxnRequest.API_KEY,
                EndTxnRequest.API_KEY,
            ]
