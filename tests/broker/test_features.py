"""Levels of features: changed by UpdateFeatures, published, kept; as Apache Kafka does it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from shoal import Consumer, Producer, TopicPartition
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.update_features import UpdateFeaturesRequest
from tests.broker.raw_client import RawClient
from tests.peers import need
from tests.peers.jars import kafka_jars

TRANSACTIONS = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


class Features:
    """One broker's features, asked for as clients and tools do."""

    def __init__(self, servers: str) -> None:
        self._raw = RawClient(int(servers.rsplit(":", 1)[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.sock.close()

    def shown(self) -> tuple[dict[str, int], int]:
        hello = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = self._raw.ask(hello, 4)
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        return levels, answer.finalized_features_epoch

    def level(self) -> int:
        return self.shown()[0].get(TRANSACTIONS, 0)

    def update(self, level: int, how: int = UPGRADE, *, only_check: bool = False) -> int:
        key = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=TRANSACTIONS, max_version_level=level, upgrade_type=how
        )
        request = UpdateFeaturesRequest(feature_updates=[key], validate_only=only_check)
        code: int = self._raw.ask(request, 1).error_code
        return code


def walk(features: Features, settled: Callable[[int], None]) -> list[tuple[Any, ...]]:
    """What each of these steps is answered, and the level after it."""
    steps = [
        *((1, UPGRADE), (1, SAFE), (2, SAFE), (2, UPGRADE), (3, UPGRADE), (-1, UNSAFE)),
        *((2, SAFE), (0, UNSAFE), (1, UPGRADE), (0, SAFE), (2, UPGRADE)),
    ]
    seen = []
    for level, how in steps:
        checked = features.update(level, how, only_check=True)
        code = features.update(level, how)
        assert checked == code, "to try says what doing would"
        if not code:
            settled(level)
        seen.append((level, how, code, features.level()))
    return seen


def test_levels_go_up_and_down_by_the_right_word_and_are_published() -> None:
    refused = ErrorCode.INVALID_UPDATE_VERSION
    with Broker() as broker, Features(broker.bootstrap_servers) as features:
        assert features.shown() == (
            {"metadata.version": 30, "group.version": 1, TRANSACTIONS: 2},
            0,
        )
        assert walk(features, lambda level: None) == [
            (1, UPGRADE, refused, 2),
            (1, SAFE, 0, 1),
            (2, SAFE, refused, 1),
            (2, UPGRADE, 0, 2),
            (3, UPGRADE, refused, 2),
            (-1, UNSAFE, refused, 2),
            (2, SAFE, 0, 2),
            (0, UNSAFE, 0, 0),
            (1, UPGRADE, 0, 1),
            (0, SAFE, 0, 0),
            (2, UPGRADE, 0, 2),
        ]
        assert features.shown()[1] == 6, "clients believe the highest epoch"


@pytest.mark.kafka
@pytest.mark.slow
def test_apache_kafka_answers_the_same() -> None:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)

    def settled(level: int) -> None:
        while theirs.level() != level:
            pass

    with (
        ApacheKafka(heap="512m") as kafka,
        Broker() as broker,
        Features(kafka.bootstrap_servers) as theirs,
        Features(broker.bootstrap_servers) as ours,
    ):
        assert walk(theirs, settled) == walk(ours, lambda level: None)


def test_clients_follow_the_flow_of_the_level_and_a_restart_keeps_it(tmp_path: Path) -> None:
    def commit(broker: Broker, value: bytes) -> bool:
        """Whether it was done in the flow of level 2."""
        name = f"id-{uuid.uuid4()}"
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as one:
            one.init_transactions()
            one.begin_transaction()
            one.send("t", value)
            prepared = one.prepare_transaction()
            one.commit_transaction()
        assert prepared is not None
        return prepared.is_v2

    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)
        assert commit(broker, b"two")
        with Features(broker.bootstrap_servers) as features:
            assert features.update(1, SAFE) == 0
        assert not commit(broker, b"one")
        for _ in range(2):  # the second time from a journal that was written anew
            broker.restart()
            with Features(broker.bootstrap_servers) as features:
                assert features.shown()[1] == 1
        assert not commit(broker, b"one again")
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes | None] = []
            while len(found) < 3:
                found += [record.value for record in consumer.poll(1)]
        assert found == [b"two", b"one", b"one again"]
