"""The broker's port for Prometheus: ``/metrics``, ``/healthz`` and ``/readyz``.

Rule: one look at the broker at a time, however many scrape; who comes meanwhile gets the same text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.broker.client_telemetry import PushedTelemetry
from shoal.broker.config import MetricsSettings, metrics_address
from shoal.broker.metrics_families import BrokerFamilies, look_at
from shoal.broker.timings import RequestTimings
from shoal.errors import ConfigError
from shoal.metrics.exposition import render_pieces
from shoal.metrics.server import MetricsPages, MetricsServer

if TYPE_CHECKING:
    from shoal.broker.broker import Broker


class MetricsPort:
    """Started before the broker listens, closed when it has ended."""

    def __init__(
        self, broker: Broker, settings: MetricsSettings, not_ready: Callable[[], str]
    ) -> None:
        self._broker = broker
        self._families = BrokerFamilies(
            series_max=settings.series_max, jmx_names=settings.jmx_names
        )
        self.telemetry = PushedTelemetry(broker.catalogue.client_metrics)
        self._scrapes: dict[bool, asyncio.Task[list[bytes]]] = {}
        host, port = metrics_address(settings.address)
        self._server = MetricsServer(
            host, port, MetricsPages(self.scrape, not_ready), token=_token(settings.token_file)
        )
        self.address = ""
        broker.server.timings = RequestTimings(is_durable=broker.syncer.durability.waits)

    async def start(self) -> None:
        self.address = await self._server.start()

    async def close(self) -> None:
        await self._server.close()
        scrapes = self._end_scrapes()
        await asyncio.gather(*scrapes, return_exceptions=True)

    def abort(self) -> None:
        """Stop at once; nobody is waited for."""
        self._server.abort()
        self._end_scrapes()

    def _end_scrapes(self) -> list[asyncio.Task[list[bytes]]]:
        running = list(self._scrapes.values())
        for task in running:
            task.cancel()
        return running

    async def scrape(self, openmetrics: bool) -> list[bytes]:
        """The text of now, or of the look that is under way."""
        running = self._scrapes.get(openmetrics)
        if running is None:
            running = self._broker.loop.create_task(self._scrape(openmetrics))
            self._scrapes[openmetrics] = running
            running.add_done_callback(lambda _: self._scrapes.pop(openmetrics))
        return await asyncio.shield(running)

    async def _scrape(self, openmetrics: bool) -> list[bytes]:
        look = await look_at(self._broker)
        self.telemetry.expire(self._broker.now_ms())
        received = self.telemetry.received.families()

        def text() -> list[bytes]:
            return render_pieces(self._families.families(look, received), openmetrics=openmetrics)

        return await self._broker.loop.run_in_executor(None, text)


def _token(path: str | None) -> str:
    if path is None:
        return ""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the metrics token file {path} cannot be read: {error}") from None
    if not token:
        raise ConfigError(f"the metrics token file {path} is empty; write a token into it")
    return token
