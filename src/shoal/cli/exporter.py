"""``shoal exporter``: metrics of any Kafka cluster, for Prometheus, without touching it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Annotated, Final

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import warn
from shoal.errors import ConfigError
from shoal.fleet.exporter import Exporter
from shoal.metrics.cluster import SERIES_MAX
from shoal.metrics.server import MetricsPages, MetricsServer

PATIENCE_S: Final = 2.0

app = typer.Typer(rich_markup_mode=None)


@app.command("exporter")
@for_cluster
def exporter(
    target: ClusterTarget,
    listen: Annotated[
        str, typer.Option(help="host:port to answer scrapes on; port 0 takes a free one.")
    ] = "127.0.0.1:9308",
    every: Annotated[
        float, typer.Option(min=1, max=86_400, help="Seconds between looks at the cluster.")
    ] = 60.0,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only these; * and ? are patterns.")
    ] = None,
    isolation_level: Annotated[
        str,
        typer.Option(help="read_committed: lag counts up to the first open transaction."),
    ] = "read_uncommitted",
    series_max: Annotated[
        int, typer.Option(min=100, help="At most this many series; the finest are left out first.")
    ] = SERIES_MAX,
    token_file: Annotated[
        Path | None, typer.Option(help="Scrapes must bring the token in this file.")
    ] = None,
) -> None:
    """Lag, members, states and rebalances of all groups as Prometheus metrics; until Ctrl-C.

    Asks the cluster in the background, answers scrapes from memory, changes nothing.
    """
    host, port = _address(listen)
    token = _token(token_file)
    with _without_pandas(), target.admin() as admin:
        found = Exporter(
            admin,
            target.settings,
            every_s=every,
            groups=tuple(group or ("*",)),
            isolation_level=isolation_level,
            series_max=series_max,
        )
        server = MetricsServer(host, port, MetricsPages(found.scrape, found.not_ready), token=token)
        sweeping = threading.Thread(target=found.run, name="exporter-sweeps", daemon=True)
        asyncio.run(_serve(server, sweeping))
        found.stop()
        sweeping.join(PATIENCE_S)  # one that waits for an answer is not waited for


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep pyarrow from loading pandas, which this process never needs: it would take 42 MB.

    pyarrow does without where pandas is not found. Loaded already, it stays.
    """
    hides = _HidesPandas()
    sys.meta_path.insert(0, hides)
    try:
        yield
    finally:
        sys.meta_path.remove(hides)


class _HidesPandas(MetaPathFinder):
    """Looks for modules before all others, and says of pandas that it is not there."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the exporter does without pandas", name=fullname)


async def _serve(server: MetricsServer, sweeping: threading.Thread) -> None:
    """Answer scrapes until somebody wants an end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    where = await server.start()
    warn(f"metrics at http://{where}/metrics")
    sweeping.start()
    await ended.wait()
    await server.close()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f"--listen {text}: give host:port, such as 127.0.0.1:9308")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - refused without a token


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path} cannot be read: {error}") from None
    if not token:
        raise ConfigError(f"--token-file {path} is empty; write a token into it")
    return token
