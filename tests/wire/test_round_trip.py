"""Every message in every version: what is encoded is decoded, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.wire.schema import Message
from tests.wire.values import ALL_PAIRS, PAIR_IDS, Builder

randoms = st.randoms(use_true_random=False)


@pytest.mark.parametrize(("kind", "version"), ALL_PAIRS, ids=PAIR_IDS)
def test_a_message_survives_the_trip(kind: type[Message], version: int):
    @settings(max_examples=10, database=None)
    @given(randoms)
    def survives(random):
        message = Builder(random, version).message(kind)
        data = message.encode(version)
        assert b"".join(message.encode_parts(version)) == data
        assert kind.decode(data, version) == message
        assert kind.decode(memoryview(data), version) == message

    survives()
