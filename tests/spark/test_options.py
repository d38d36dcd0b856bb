"""Options: Spark's names are understood, wrong ones are refused by name."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.spark.options import LATEST, Bound, parse_sink, parse_source
from shoal.types import TopicPartition

BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "b, a,b"}


def test_the_defaults_are_those_of_sparks_own_source() -> None:
    batch = parse_source(BASE, "batch")
    assert batch.topics == ("a", "b")
    assert batch.properties == {"bootstrap.servers": "h:9092"}
    assert (batch.starting, batch.ending) == (Bound("earliest"), Bound("latest"))
    assert parse_source(BASE, "stream").starting == Bound("latest")
    assert batch.fail_on_data_loss
    assert not batch.include_headers


def test_names_are_understood_in_any_case() -> None:
    options = {**BASE, "STARTINGOFFSETS": "earliest", "maxoffsetspertrigger": "5"}
    parsed = parse_source(options, "stream")
    assert parsed.starting == Bound("earliest")
    assert parsed.rows_max == 5


def test_offsets_and_timestamps_per_partition() -> None:
    options = {**BASE, "startingOffsets": '{"a":{"0":7,"1":-1}}'}
    assert parse_source(options, "stream").starting.offsets == {
        TopicPartition("a", 0): 7,
        TopicPartition("a", 1): LATEST,
    }
    options = {**BASE, "endingOffsetsByTimestamp": '{"a":{"0":1700000000000}}'}
    ending = parse_source(options, "batch").ending
    assert ending.kind == "timestamp"
    assert ending.offsets == {TopicPartition("a", 0): 1700000000000}
    options = {**BASE, "startingTimestamp": "1700000000000"}
    assert parse_source(options, "batch").starting.timestamp_ms == 1700000000000


def test_assign_takes_partitions() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "assign": '{"t":[1,0]}'}
    assert parse_source(options, "batch").assign == (TopicPartition("t", 0), TopicPartition("t", 1))


@pytest.mark.parametrize(
    ("extra", "mode", "named"),
    [
        ({"subscrib": "x"}, "batch", "did you mean subscribe?"),
        ({"assign": '{"t":[0]}'}, "batch", "subscribe and assign"),
        ({"startingOffsets": "{nonsense"}, "batch", "startingOffsets is not JSON"),
        ({"startingOffsets": '{"a":{"0":"x"}}'}, "batch", "startingOffsets must look like"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "batch", "-3 for a-0"),
        ({"startingOffsets": '{"a":[1]}'}, "batch", "startingOffsets must look like"),
        ({"startingOffsets": "latest"}, "batch", "cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "batch", "cannot be latest (-1) for a-0"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "batch", "cannot be earliest (-2) for a-0"),
        ({"endingOffsets": "earliest"}, "batch", "cannot be earliest"),
        ({"endingOffsets": "latest"}, "stream", "for a batch read only"),
        ({"maxOffsetsPerTrigger": "10"}, "batch", "for a stream only"),
        ({"maxOffsetsPerTrigger": "0"}, "stream", "at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "stream", "whole number"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "stream", "larger than"),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "6"}, "stream", "contradict"),
        ({"startingOffsets": "group"}, "stream", "needs option groupId"),
        ({"failOnDataLoss": "maybe"}, "batch", "must be true or false"),
        ({"maxTriggerDelay": "soon"}, "stream", "must be a duration"),
        ({"subscribe": " , "}, "batch", "names no topic"),
        ({"subscribe": ""}, "batch", "is empty"),
        ({"logDir": "/data"}, "batch", "logDir and kafka.*"),
        ({"kafka.sasl.jaas.config": "password=x"}, "batch", "kafka.sasl.password"),
        ({"valueFormat": "json"}, "batch", "valueSchema go together"),
        ({"valueFormat": "avro"}, "batch", "must be one of"),
        ({"deadLetterTopic": "d"}, "batch", "needs option valueFormat"),
        ({"mode": "PERMISSIVE"}, "batch", "mode needs option valueFormat=json"),
        (
            {
                "valueFormat": "json",
                "valueSchema": "a int",
                "mode": "PERMISSIVE",
                "deadLetterTopic": "d",
            },
            "batch",
            "mode and deadLetterTopic contradict",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(extra: dict[str, str], mode: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_source({**BASE, **extra}, mode)  # type: ignore[arg-type]  # also modes that are wrong
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_pattern_must_be_one() -> None:
    with pytest.raises(ConfigError, match="not a pattern"):
        parse_source({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, "batch")


def test_a_source_and_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_source({"subscribe": "t"}, "batch")
    with pytest.raises(ConfigError, match="one of the options subscribe"):
        parse_source({"kafka.bootstrap.servers": "h:1"}, "batch")


def test_an_error_never_shows_a_password() -> None:
    secret = "c4n4ry"
    with pytest.raises(ConfigError) as caught:
        parse_source({**BASE, "kafka.sasl.jaas.config": f'password="{secret}"'}, "batch")
    assert secret not in str(caught.value)


def test_a_sink_knows_its_own_options() -> None:
    sparks_own = {"checkpointLocation": "c", "queryName": "q"}
    sink = parse_sink({"kafka.bootstrap.servers": "h:1", "topic": "t", **sparks_own})
    assert (sink.topic, sink.idempotent) == ("t", True)
    with pytest.raises(ConfigError, match="did you mean topic"):
        parse_sink({"kafka.bootstrap.servers": "h:1", "topik": "t"})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        parse_sink({"topic": "t"})


def test_of_several_starts_the_first_counts_as_in_sparks_own_source() -> None:
    starts = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "startingTimestamp": "5",
    }
    assert parse_source({**BASE, **starts}, "batch").starting.timestamp_ms == 5
    del starts["startingTimestamp"]
    assert parse_source({**BASE, **starts}, "batch").starting.offsets == {TopicPartition("a", 0): 7}
    ends = {"endingOffsets": "latest", "endingTimestamp": "9"}
    assert parse_source({**BASE, **ends}, "batch").ending.timestamp_ms == 9
