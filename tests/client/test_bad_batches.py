"""What a broker serves from a damaged log: what is good is read, what is not is named."""

from __future__ import annotations

import pytest

from shoal import Consumer, TopicPartition
from shoal.client.ranges import RangeReader
from shoal.errors import CorruptDataError
from shoal.records.batch import encode_batch
from shoal.wire.apis.fetch import FetchResponse
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.patience import PATIENCE_S

T0 = TopicPartition("t", 0)
LENGTH_AT, MAGIC_AT = 8, 16
STEP = 5


class Damaged(ScriptedBroker):
    """Ten records in two batches; ``batches`` may be changed."""

    def __init__(self):
        super().__init__()
        self.batches = [
            bytearray(encode_batch([(None, b"v", (), 0)] * STEP, base_offset=first))
            for first in range(0, RECORDS, STEP)
        ]

    def _fetch(self, request, code):
        wanted = request.topics[0].partitions[0].fetch_offset if request.topics else RECORDS
        data = b"".join(self.batches[wanted // STEP :])
        part = FetchResponse.PartitionData(
            partition_index=0, error_code=code, high_watermark=RECORDS, records=data
        )
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])]
        )


@pytest.fixture
def broker():
    with Damaged() as broker:
        yield broker


@pytest.fixture
def one(broker):
    with Consumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        yield consumer


@pytest.mark.slow
@pytest.mark.parametrize(("place", "value"), [(MAGIC_AT, 77), (LENGTH_AT, 0x80), (LENGTH_AT, 0x70)])
def test_what_lies_before_a_damaged_header_is_read_and_then_its_place_is_named(
    broker, one, place, value
):
    broker.batches[1][place] = value
    assert [record.offset for record in take(one, STEP)] == [*range(STEP)]
    with pytest.raises(CorruptDataError, match="t-0 at offset 5; seek past it"):
        take(one, 1)
    assert one.position(T0) == STEP
    # It is asked for again once in a while, not all the time.
    assert broker.asked["Fetch"] < 20
    one.seek(T0, 0)
    assert len(take(one, STEP)) == STEP


@pytest.mark.slow
def test_an_unread_record_before_the_damage_comes_first(broker, one):
    broker.batches[1][MAGIC_AT] = 77
    seen = [record.offset for _ in range(STEP) for record in take(one, 1)]
    assert seen == [*range(STEP)]
    with pytest.raises(CorruptDataError, match="t-0 at offset 5"):
        take(one, 1)


def test_a_range_with_an_impossible_length_in_it_is_refused_at_once(broker):
    broker.batches[1][LENGTH_AT] = 0x70
    with RangeReader(bootstrap_servers=broker.servers) as reader:
        with pytest.raises(CorruptDataError, match="t-0 at offset 5"):
            list(reader.read({T0: (0, RECORDS)}, timeout=PATIENCE_S))
        assert sum(part.num_rows for part in reader.read({T0: (0, STEP)})) == STEP
