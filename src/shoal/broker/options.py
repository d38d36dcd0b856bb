"""Flags of ``shoal serve`` over a configuration file: one function for every front end.

Rule: flags win over the file; whatever is left unsaid keeps its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.broker.config import BrokerConfig, Listener, from_toml, parse_address
from shoal.errors import ConfigError


def build_config(
    *,
    config_file: str | None = None,
    listen: Sequence[str] = (),
    advertise: str | None = None,
    data_dir: str | None = None,
    durability: str | None = None,
    sasl: Sequence[str] = (),
    certificate_file: str | None = None,
    key_file: str | None = None,
    client_ca_file: str | None = None,
    insecure_public: bool = False,
    partitions: int | None = None,
    no_auto_create: bool = False,
) -> BrokerConfig:
    """The checked configuration for these flags."""
    config = BrokerConfig()
    if config_file is not None:
        path = Path(config_file)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not UTF-8 text (at byte {error.start})") from None
        config = from_toml(text, source=str(path))
    if listen:
        config = config._replace(listeners=tuple(_listener(address) for address in listen))
    config = config._replace(
        listeners=tuple(
            listener._replace(
                advertised=parse_address(advertise, default_port=0)
                if advertise
                else listener.advertised,
                sasl=tuple(sasl) or listener.sasl,
                certificate_file=certificate_file or listener.certificate_file,
                key_file=key_file or listener.key_file,
                client_ca_file=client_ca_file or listener.client_ca_file,
            )
            for listener in config.listeners
        ),
        data_dir=data_dir or config.data_dir or "shoal-data",
        durability=durability or config.durability,
        insecure_public=insecure_public or config.insecure_public,
        topics=config.topics._replace(
            partitions=partitions if partitions is not None else config.topics.partitions,
            auto_create=config.topics.auto_create and not no_auto_create,
        ),
    )
    return config.checked()


def _listener(address: str) -> Listener:
    host, port = parse_address(address, default_port=9092)
    return Listener(host=host, port=port)
