"""A Kafka inside your test: embedded broker, pytest fixture, faults, virtual time, simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # Imported when asked for: the simulator needs no broker, and the plugin loads everywhere.
    if name == "Broker":
        from shoal.testing.broker import Broker

        return Broker
    raise AttributeError(f"module 'shoal.testing' has no attribute {name!r}")
