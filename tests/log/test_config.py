"""Topic settings: Kafka's names outside, fields with units inside."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.log.config import Durability, LogConfig
from shoal.types import TimestampType


def test_properties_round_trip() -> None:
    properties = LogConfig().to_properties()
    assert properties["segment.bytes"] == "1073741824"
    assert properties["retention.bytes"] == "-1"
    assert properties["cleanup.policy"] == "delete"
    assert properties["message.timestamp.type"] == "CreateTime"
    assert LogConfig.from_properties(properties) == LogConfig()


def test_given_settings_change_the_base() -> None:
    base = LogConfig(segment_bytes=5000)
    config = LogConfig.from_properties(
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": "-1",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.1",
            "compression.type": "lz4",
        },
        base,
    )
    assert config.segment_bytes == 5000
    assert config.compacts
    assert config.deletes
    assert config.retention_ms is None
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.min_cleanable_dirty_ratio == 0.1


def test_an_empty_policy_neither_compacts_nor_deletes() -> None:
    config = LogConfig.from_properties({"cleanup.policy": ""})
    assert not config.compacts
    assert not config.deletes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "13"),
        ("segment.bytes", "many"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "shred"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("message.timestamp.type", "Whenever"),
        ("compression.type", "rar"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        LogConfig.from_properties({name: value})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'segment\.bytes'"):
        LogConfig.from_properties({"segment.byte": "1"})


def test_only_some_durabilities_wait() -> None:
    assert [durability.value for durability in Durability if durability.waits] == ["group", "each"]
