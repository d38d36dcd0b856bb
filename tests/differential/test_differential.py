"""A tenth of `make differential` in every run, where Java and Kafka's jars can be had."""

from __future__ import annotations

import pytest

from tests.differential.accepted import ACCEPTED, accepted_by
from tests.differential.runner import compared
from tests.peers.cache import need


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_tenth_of_all_requests_is_answered_as_apache_kafka_answers() -> None:
    report = need(lambda: compared(seed=1, share=10))
    unknown = [str(finding) for finding in report.findings if accepted_by(finding) is None]
    assert not unknown, "\n".join(unknown[:20])
    # It must have been enough to mean something.
    assert report.cases > 500
    assert len(report.questions) > 40
    assert any(accepted_by(finding) in ACCEPTED for finding in report.findings)
