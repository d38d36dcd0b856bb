"""Where a consumer stands: what moves a position by force, and what brokers say of offsets."""

from __future__ import annotations

from typing import Any

from shoal import Admin, TopicPartition
from shoal.client.positions import EARLIEST, Positions
from shoal.wire.apis.list_offsets import ListOffsetsResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.scripted import RECORDS, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_was_fetched_of_a_partition_that_is_given_up_is_of_an_earlier_lap() -> None:
    positions = Positions()
    positions.own([T0, T1])
    given_up, kept = positions[T0], positions[T1]
    before = given_up.lap, kept.lap
    positions.forget([T0])
    assert given_up.lap > before[0]
    assert kept.lap == before[1]
    assert positions.partitions() == {T1}


def test_a_position_that_is_reset_is_looked_for_at_the_leader() -> None:
    positions = Positions()
    positions.own([T0])
    state = positions[T0]
    state.seek(7)
    state.read_from = 2
    state.reset(EARLIEST)
    assert (state.position, state.reset_to) == (None, EARLIEST)
    assert not state.read_from


class Forgetful(ScriptedBroker):
    """Its first answers about offsets are empty."""

    empty = 2

    def _message(self, key: ApiKey, request: Any, code: int) -> Any:
        if key is ApiKey.LIST_OFFSETS and self.empty:
            self.empty -= 1
            return ListOffsetsResponse(topics=[])
        return super()._message(key, request, code)


def test_a_partition_that_is_left_out_of_an_answer_is_asked_for_again() -> None:
    with (
        Forgetful() as broker,
        Admin(bootstrap_servers=broker.servers, retry_backoff_ms=5) as admin,
    ):
        found = admin.list_offsets({T0: "latest"})[T0]
    assert found is not None
    assert found.offset == RECORDS
    assert broker.empty == 0
