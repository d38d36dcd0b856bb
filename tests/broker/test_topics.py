"""The catalogue: what may be created, and that replaying its journal gives it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.catalogue import INTERNAL_TOPICS, Catalogue
from shoal.broker.journal import Journal
from shoal.broker.topic_configs import TOPIC_CONFIGS, check_value
from shoal.errors import ConfigError, CorruptDataError, ErrorCode


def catalogue(topics_max: int = 100, partitions_max: int = 1000) -> Catalogue:
    return Catalogue({}, topics_max=topics_max, partitions_max=partitions_max)


def create(where: Catalogue, name: str, partitions: int = 1, **configs: str):
    number = len(where) + 1
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    decided = where.decide_create(name, number.to_bytes(16), partitions, dotted)
    if isinstance(decided, dict):
        where.replay(decided)
        return ErrorCode.NONE
    return decided[0]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\0b", "é", "a b", "x" * 250, "../../etc/passwd"]
)
def test_names_that_could_leave_the_directory_or_confuse_tools_are_refused(name):
    assert create(catalogue(), name) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "x" * 249, "...", "Con"])
def test_kafkas_names_are_accepted(name):
    assert create(catalogue(), name) is ErrorCode.NONE


def test_a_name_that_differs_only_by_dot_and_underscore_is_refused():
    topics = catalogue()
    assert create(topics, "a.b") is ErrorCode.NONE
    assert create(topics, "a_b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create(topics, "a.b") is ErrorCode.TOPIC_ALREADY_EXISTS


def test_counts_and_configurations_are_checked():
    topics = catalogue(topics_max=2, partitions_max=10)
    assert create(topics, "a", 0) is ErrorCode.INVALID_PARTITIONS
    assert create(topics, "a", 11) is ErrorCode.POLICY_VIOLATION
    assert create(topics, "a", retention_ms="soon") is ErrorCode.INVALID_CONFIG
    assert create(topics, "a", retention_mss="1") is ErrorCode.INVALID_CONFIG
    assert create(topics, "a", 5) is ErrorCode.NONE
    assert create(topics, "b", 5) is ErrorCode.NONE
    assert create(topics, "c") is ErrorCode.POLICY_VIOLATION


def test_what_was_deleted_counts_against_no_limit():
    topics = catalogue(topics_max=1, partitions_max=10)
    for _ in range(3):
        assert create(topics, "a", 10) is ErrorCode.NONE
        entry = topics.decide_delete("a")
        assert isinstance(entry, dict)
        topics.replay(entry)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_neither_deleted_nor_enlarged(name):
    topics = catalogue()
    assert create(topics, name, 5) is ErrorCode.NONE
    for decided in (topics.decide_delete(name), topics.decide_partitions(name, 6)):
        assert isinstance(decided, tuple)
        assert decided[0] is ErrorCode.INVALID_REQUEST


def test_partitions_only_grow():
    topics = catalogue()
    create(topics, "a", 3)
    for count in (1, 3):
        assert topics.decide_partitions("a", count)[0] is ErrorCode.INVALID_PARTITIONS  # type: ignore[index]  # a refusal, which is a tuple
    entry = topics.decide_partitions("a", 5)
    assert isinstance(entry, dict)
    topics.replay(entry)
    topic = topics.get("a")
    assert topic is not None
    assert topic.partition_count == 5


def test_a_topic_configuration_wins_over_the_broker_and_the_broker_over_the_default():
    topics = catalogue()
    create(topics, "a", retention_ms="5")
    create(topics, "b")
    a, b = topics.get("a"), topics.get("b")
    assert a is not None
    assert b is not None
    topics.replay({"kind": "broker_configs", "configs": {"log.retention.ms": "7"}})
    assert topics.config(a, "retention.ms") == "5"
    assert topics.config(b, "retention.ms") == "7"
    assert topics.config(b, "segment.bytes") == "1073741824"


_NAMES = st.sampled_from(["a", "b", "c.d", "e"])
_STEPS = st.one_of(
    st.tuples(st.just("create"), _NAMES, st.integers(1, 4)),
    st.tuples(st.just("delete"), _NAMES, st.just(0)),
    st.tuples(st.just("grow"), _NAMES, st.integers(1, 8)),
    st.tuples(st.just("configure"), _NAMES, st.integers(1, 9)),
)


@given(st.lists(_STEPS, max_size=30), st.integers(0, 60))
def test_replaying_the_journal_cut_anywhere_gives_the_catalogue_of_that_moment(
    tmp_path_factory, steps, cut
):
    path = tmp_path_factory.mktemp("journal") / "catalogue.journal"
    journal = Journal(path)
    journal.rewrite([])
    live = catalogue()
    states = [list(live.entries())]
    for number, (verb, name, count) in enumerate(steps):
        if verb == "create":
            decided = live.decide_create(name, number.to_bytes(16), count, {})
        elif verb == "delete":
            decided = live.decide_delete(name)
        elif verb == "grow":
            decided = live.decide_partitions(name, count)
        else:
            decided = live.decide_configs(name, {"retention.ms": str(count)})
        if isinstance(decided, dict):
            journal.append([decided])
            live.replay(decided)
            states.append([dict(e) for e in live.entries()])
    journal.close()
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    again = catalogue()
    entries = Journal(path).load()
    for entry in entries:
        again.replay(entry)
    assert list(again.entries()) == states[len(entries)]


@pytest.mark.parametrize("position", [2, 12, 15], ids=["checksum", "letter", "quotation mark"])
def test_damage_in_the_middle_of_the_journal_is_reported_not_skipped(tmp_path, position):
    path = tmp_path / "catalogue.journal"
    journal = Journal(path)
    journal.rewrite([])
    for number in range(3):
        journal.append([{"kind": "producer_ids", "next": number}])
    journal.close()
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError):
        Journal(path).load()


def test_every_default_is_allowed_by_its_own_rule():
    for name, entry in TOPIC_CONFIGS.items():
        check_value(name, entry.default)


def test_an_unknown_configuration_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'retention\.ms'"):
        check_value("retention.mss", "1")
