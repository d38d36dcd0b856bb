"""A part of `make oracle` in every run, where Java and Kafka's jars can be had."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.assign.oracle import Oracle, compare
from tests.peers.cache import need


@pytest.mark.kafka
@pytest.mark.slow
def test_two_thousand_random_groups_are_assigned_as_kafka_does() -> None:
    counts: Counter[str] = Counter()
    with need(Oracle) as oracle:
        found = {seed: texts for seed in range(2000) if (texts := compare(oracle, seed, counts))}
    assert not found
    # The groups must have been messy enough to mean something.
    assert counts["Kafka's answer is unsound"] > 20
    assert counts["Kafka fails"] > 5
