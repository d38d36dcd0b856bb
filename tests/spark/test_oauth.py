"""Spark at a listener that wants tokens: drivers and tasks log in, and nobody reads the secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal import Admin, Producer
from shoal.broker.config import BrokerConfig, Listener, OAuthSettings
from shoal.testing.broker import Broker
from tests.peers.identity_provider import AUDIENCE, ISSUER, IdentityProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECRET = "client-s3cret-do-not-show"
PATIENCE_S = 150.0


class RememberingProvider(IdentityProvider):
    """Keeps the tokens it has granted, so that they can be looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets = {"app": SECRET}
        self.granted: list[str] = []

    def grant(self) -> dict[str, Any]:
        granted = super().grant()
        self.granted.append(granted["access_token"])
        return granted


@pytest.fixture
def provider() -> Iterator[RememberingProvider]:
    with RememberingProvider() as provider:
        yield provider


@pytest.fixture
def guarded(provider: RememberingProvider) -> Iterator[Broker]:
    """A broker that takes tokens and nothing else."""
    oauth = OAuthSettings(jwks=provider.jwks_url, issuer=ISSUER, audience=(AUDIENCE,))
    listener = Listener(port=0, sasl=("OAUTHBEARER",))
    with Broker(
        config=BrokerConfig(oauth=oauth), listeners=(listener,), topics={"in": 3, "out": 1}
    ) as broker:
        yield broker


@pytest.fixture
def settings(guarded: Broker, provider: RememberingProvider) -> dict[str, Any]:
    """The client's names; Spark's are the same with ``kafka.`` and dots."""
    return {
        "bootstrap_servers": guarded.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": provider.token_url,
        "sasl_oauthbearer_client_id": "app",
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_oauthbearer_scope": "kafka",
    }


def spark_options(settings: dict[str, Any]) -> dict[str, str]:
    return {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}


def test_source_and_sink_log_in_by_the_client_credentials_grant_and_show_no_secret(
    spark: SparkSession,
    guarded: Broker,
    provider: RememberingProvider,
    settings: dict[str, Any],
    event_log: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # Of py4j, which at this level logs each word between Python and Java, nothing can be asked.
    caplog.set_level(logging.DEBUG, "shoal")
    with Producer(**settings) as producer:
        producer.send_many("in", [b"%d" % number for number in range(30)])
    options = spark_options(settings)
    source = {**options, "subscribe": "in", "startingOffsets": "earliest"}
    stream = spark.readStream.format("shoal").options(**source, groupId="copying").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("shoal")
        .options(**options, topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S), "the stream did not end"
    copied = spark.read.format("shoal").options(**{**source, "subscribe": "out"}).load()
    values = sorted(int(row.value) for row in copied.select("value").collect())
    assert values == list(range(30))
    with Admin(**settings) as admin:
        committed = admin.group_offsets("copying")
    assert sum(one.offset for one in committed.values() if one is not None) == 30
    assert {tp.topic for tp in committed} == {"in"}
    assert len(provider.granted) > 2, "driver and tasks have tokens of their own"
    assert '"User:ann"' in (guarded.data_dir / "access.log").read_text()

    shown = [
        copied._jdf.queryExecution().toString(),
        query._jsq.explainInternal(True),  # type: ignore[attr-defined]  # Java's side is not typed
        str(query.lastProgress),
        caplog.text,
        *capfd.readouterr(),
    ]
    files = [one for one in [*event_log.rglob("*"), *tmp_path.rglob("*")] if one.is_file()]
    shown += [one.read_bytes().decode("utf-8", "replace") for one in files]
    assert len(files) > 3
    for secret in (SECRET, *provider.granted):
        assert not [text for text in shown if secret in text]


def test_a_job_whose_secret_is_wrong_is_told_so_without_showing_it(
    spark: SparkSession, settings: dict[str, Any]
) -> None:
    wrong = spark_options(settings | {"sasl_oauthbearer_client_secret": "wr0ng-do-not-show"})
    with pytest.raises(Exception, match="invalid_client") as caught:
        spark.read.format("shoal").options(**wrong, subscribe="in").load().count()
    assert "wr0ng" not in str(caught.value)
