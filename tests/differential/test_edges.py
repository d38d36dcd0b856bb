"""The odd requests that are made of a good one."""

from __future__ import annotations

import pytest

from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.registry import API, ApiKey
from tests.differential.catalogue import SUBJECTS
from tests.differential.edges import NULL, edges, with_nulls
from tests.differential.place import Place
from tests.differential.runner import subject_cases

_EVERY_VERSION = {int(spec.key): (spec.min_version, spec.max_version) for spec in API.values()}
# Other tests and other issues: conversations, and what our broker does not serve.
_ELSEWHERE = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}


def test_every_api_has_a_subject() -> None:
    keys = {subject.build(Place("names"), 99).API_KEY for subject in SUBJECTS}
    assert keys | _ELSEWHERE == set(API)


def test_every_case_has_a_name_of_its_own_and_the_same_one_each_time() -> None:
    names = [case.name for case in subject_cases(_EVERY_VERSION)]
    assert len(names) == len(set(names))
    assert names == [case.name for case in subject_cases(_EVERY_VERSION)]
    assert len(names) > 5000


def test_one_field_is_changed_and_the_good_request_stays_good() -> None:
    good = MetadataRequest(topics=[MetadataRequest.Topic(name="a")])
    changed = dict(edges(good, 9, {}))
    assert good == MetadataRequest(topics=[MetadataRequest.Topic(name="a")])
    assert changed["topics is null"].topics is None
    assert changed["topics[0].name = ''"].topics[0].name == ""
    assert [t.name for t in changed["topics has its first element twice"].topics] == ["a", "a"]
    assert changed["allow_auto_topic_creation = False"].allow_auto_topic_creation is False


def test_a_hint_adds_values_and_one_with_a_mark_gives_them_all() -> None:
    good = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    labels = [label for label, _ in edges(good, 0, {"group_id": ["h"], "generation_id!": (5,)})]
    assert "group_id = 'h'" in labels
    assert "group_id = ''" in labels
    assert [label for label in labels if label.startswith("generation_id")] == ["generation_id = 5"]


@pytest.mark.parametrize("version", [0, 4])
def test_a_null_can_stand_where_none_is_allowed(version: int) -> None:
    flexible = version == 4
    body = HeartbeatRequest(group_id=NULL, generation_id=1, member_id="m").encode(version)
    null = b"\0" if flexible else b"\xff\xff"
    assert with_nulls(body, flexible=flexible).startswith(null + b"\0\0\0\1")
