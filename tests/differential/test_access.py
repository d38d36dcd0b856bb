"""Whoever asks is answered as by Apache Kafka with its own authorizer."""

from __future__ import annotations

import pytest

from shoal import Consumer
from shoal.errors import BrokerError, ErrorCode
from tests.differential.accepted import accepted_by
from tests.differential.access import RULES, USERS, both, compared
from tests.differential.place import Place
from tests.peers.cache import need
from tests.peers.jars import kafka_jars


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.long), 4])
def test_users_with_all_kinds_of_rights_are_answered_as_by_apache_kafka(share: int) -> None:
    report = need(lambda: compared(share=share))
    unknown = [str(finding) for finding in report.findings if accepted_by(finding) is None]
    assert not unknown, f"{len(unknown)}:\n" + "\n".join(unknown[:40])
    assert report.cases > 500 / share


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_patterns_match_what_users_may_see_as_in_apache_kafka() -> None:
    def told(place: Place, user: str) -> set[str] | ErrorCode:
        with Consumer(
            bootstrap_servers=f"127.0.0.1:{place.guarded_port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=user,
            sasl_password=USERS[user],
            group_id=f"patterns-of-{user}",
            group_protocol="consumer",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(pattern="seen|compacted|stamped|unseen")
            try:
                for _ in range(300):
                    consumer.poll(0.1)
                    if consumer.assignment():
                        break
            except BrokerError as error:
                return error.code
            return {tp.topic for tp in consumer.assignment()}

    need(kafka_jars)
    with both() as places:
        answers = [{user: told(place, user) for user in RULES} for place in places]
    theirs, ours = answers
    assert ours == theirs
    assert theirs["all"] == {"seen", "compacted", "stamped"}
    assert theirs["outcast"] == {"compacted", "stamped"}
    assert theirs["consumer"] is ErrorCode.GROUP_AUTHORIZATION_FAILED
