"""What a job brings along from Spark's own connector."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.spark.options import parse_sink, parse_source

BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a", "topic": "a"}


def properties(**settings: str) -> dict[str, str]:
    options = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    read = dict(parse_source({**BASE, **options}, "batch").properties)
    assert read == parse_sink({**BASE, **options}).properties
    del read["bootstrap.servers"]
    return read


def test_settings_of_javas_insides_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert properties(receive_buffer_bytes="65536", client_dns_lookup="use_all_dns_ips") == {}
        assert properties(group_id="g") == {}
    assert "kafka.receive.buffer.bytes has no effect" in caplog.text
    assert "use option groupId" in caplog.text


def test_host_names_are_checked_as_java_would_check_them() -> None:
    assert properties(ssl_endpoint_identification_algorithm="") == {"ssl.check.hostname": "false"}
    assert properties(ssl_endpoint_identification_algorithm="https") == {
        "ssl.check.hostname": "true"
    }


def test_pem_files_are_read_and_javas_key_stores_refused_with_the_command(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----", encoding="ascii")
    assert properties(ssl_truststore_location=str(pem)) == {"ssl.cafile": str(pem)}
    given = {"ssl_keystore_location": str(pem), "ssl_keystore_type": "PEM"}
    assert properties(**given) == {"ssl.certfile": str(pem)}
    with pytest.raises(ConfigError, match=r"keytool -importkeystore -srckeystore /etc/trust\.jks"):
        properties(ssl_truststore_location="/etc/trust.jks", ssl_truststore_password="x")
    unnamed = tmp_path / "store"
    unnamed.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError, match=r"\(JKS\); convert its certificate and key once"):
        properties(ssl_keystore_location=str(unnamed))
    with pytest.raises(ConfigError, match=r"openssl pkcs12 -in /etc/me.p12 -nodes -out me.pem"):
        properties(ssl_keystore_location="/etc/me.p12")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("auto_offset_reset", "startingOffsets"),
        ("enable_auto_commit", "groupId"),
        ("value_deserializer", "valueFormat"),
        ("interceptor_classes", "no Java"),
    ],
)
def test_what_would_change_the_rows_is_refused_as_by_the_connector(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name.replace('_', '.')} is not .*{advice}"):
        properties(**{name: "x"})
