"""Settings of Java's clients among the ``kafka.*`` options of a job that moves over.

Each is one of four: it means the same here (and stays); it has another name here (and gets it);
it is about Java's insides and changes no row (and is left out, with a warning); or it would change
what is read, as Spark's own connector sees it too (and is refused, with the option to use instead).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shoal.errors import ConfigError

logger = logging.getLogger(__name__)

HARMLESS: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "security.providers",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        # Of a consumer in a group; a read joins none.
        "group.id",
        "group.protocol",
        "group.remote.assignor",
        "partition.assignment.strategy",
        # Of a producer.
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
    }
)
_BY_SPARK: Final = "keys and values are bytes; cast them in Spark, or use option valueFormat"
REFUSED: Final = {
    "auto.offset.reset": "use option startingOffsets to say where a query starts",
    "enable.auto.commit": "a query commits what it has finished; use option groupId for that",
    "interceptor.classes": "there is no Java here to run them",
    "key.deserializer": _BY_SPARK,
    "value.deserializer": _BY_SPARK,
    "key.serializer": "a key is binary or a string; make it so in Spark",
    "value.serializer": "a value is binary or a string; make it so in Spark",
}
_STORES: Final = {
    "ssl.truststore": ("ssl.cafile", "authorities", "-nokeys"),
    "ssl.keystore": ("ssl.certfile", "certificate and key", "-nodes"),
}
_JAVA_ENDINGS: Final = (".jks", ".p12", ".pfx", ".pkcs12", ".bcfks")


def from_java(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings as our client knows them.

    Raises:
        ConfigError: a setting, or the key store it names, cannot be used; says what to do.
    """
    kept: dict[str, str] = {}
    for name, value in properties.items():
        if name in REFUSED:
            raise ConfigError(f"option kafka.{name} is not supported: {REFUSED[name]}")
        if name in HARMLESS:
            advice = " (to commit progress, use option groupId)" if name == "group.id" else ""
            logger.warning("option kafka.%s has no effect here and is left out%s", name, advice)
        elif name == "ssl.endpoint.identification.algorithm":
            kept["ssl.check.hostname"] = "true" if value.strip() else "false"
        elif not name.startswith(tuple(_STORES)):
            kept[name] = value
    for store in _STORES:
        kept |= _store(properties, store)
    return kept


def _store(properties: Mapping[str, str], store: str) -> dict[str, str]:
    """A file of certificates: PEM is read, Java's own formats are not."""
    ours, holds, option = _STORES[store]
    for part in ("certificates", "certificate.chain", "key"):
        if f"{store}.{part}" in properties:
            raise ConfigError(
                f"option kafka.{store}.{part} is not supported: write it to a PEM file and name "
                f"that in kafka.{ours}"
            )
    path = properties.get(f"{store}.location")
    if path is None:
        return {}
    kind = properties.get(f"{store}.type", "").upper() or _kind_of(path)
    if kind != "PEM":
        is_jks = kind == "JKS"
        pem = Path(path).with_suffix(".pem").name
        first = (
            f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
            "-deststoretype PKCS12 && "
            if is_jks
            else ""
        )
        raise ConfigError(
            f"kafka.{store}.location={path} is a key store of Java's ({kind}); convert its {holds} "
            f"once: {first}openssl pkcs12 -in {'store.p12' if is_jks else path} {option} -out {pem}"
            f", and set kafka.{ours}={pem}"
        )
    return {ours: path}


def _kind_of(path: str) -> str:
    """By its name and, where it can be read, by how it begins."""
    lowered = path.lower()
    if lowered.endswith(_JAVA_ENDINGS):
        return "JKS" if lowered.endswith(".jks") else "PKCS12"
    try:
        with open(path, "rb") as file:
            begins = file.read(4)
    except OSError:
        return "PEM"
    if begins in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):
        return "JKS"
    return "PKCS12" if begins[:1] == b"\x30" else "PEM"
