"""Draws panels of the Grafana dashboard for the page about monitoring, from a measured run.

    python -m docs.generate_monitoring_pictures          # from the numbers that are kept
    python -m docs.generate_monitoring_pictures --run    # runs it again: three minutes, Prometheus

The run is a broker with a producer and two groups, scraped every second by a real Prometheus. One
member is killed, one comes, one leaves. Prometheus is then asked the dashboard's own queries, and
its answers are kept in ``docs/monitoring/example-run.json``: nothing in the pictures is made up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import floor, isnan, log10
from pathlib import Path
from typing import Any, Final

from docs.generate_monitoring import ROWS, TARGET, Panel
from shoal import Producer
from shoal.drawing import FAINT, INK, Canvas, color_of
from shoal.testing.broker import Broker

KEPT: Final = TARGET / "example-run.json"
PICTURES: Final = Path(__file__).resolve().parent / "pictures"
TITLES: Final = {
    "monitor-groups.svg": (
        "How far behind, in seconds",
        "How far behind, in records",
        "Rebalances in ten minutes, by cause",
        "Members",
    ),
    "monitor-broker.svg": (
        "Connections, waiting fetches, open transactions",
        "Slowest answers of the last minute or two",
        "From produce to on the disk",
        "Lag of the event loop",
    ),
}
"""The panels of each picture, by their titles on the dashboard."""
WARM_UP_S, LENGTH_S, STEP_S = 15, 165, 3
KILLED_S, JOINS_S, LEAVES_S = 30, 105, 135
RECORDS_PER_S, PARTITIONS = 300, 6
EVENTS: Final = {
    KILLED_S: "a member of billing is killed",
    JOINS_S: "a new one joins",
    LEAVES_S: "one leaves in order",
}


def panels() -> dict[str, Panel]:
    """The dashboard's, by title."""
    return {panel.title: panel for row in ROWS.values() for panel in row}


# The run.


@contextmanager
def member(broker: Broker, group: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads for a group until it is told to stop."""
    words = ["consume", "payments", "-g", group, "--follow", "-b", broker.bootstrap_servers]
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *words],
        stdout=subprocess.DEVNULL,
        preexec_fn=_hear_interrupts,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(30)


def _hear_interrupts() -> None:
    """Whoever runs this in the background has told its children to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _produce(broker: Broker, done: threading.Event) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        number = 0
        while not done.wait(0.1):
            for _ in range(RECORDS_PER_S // 10):
                number += 1
                producer.send("payments", b"x" * 200, key=b"%d" % number)


def _until(begin: float, second: float) -> None:
    time.sleep(max(0.0, begin + second - time.time()))


def run() -> dict[str, Any]:
    """Three minutes of a cluster; returns what Prometheus answers afterwards."""
    from tests.peers.prometheus import Prometheus

    done = threading.Event()
    with (
        tempfile.TemporaryDirectory() as directory,
        Broker(
            topics={"payments": PARTITIONS},
            metrics=True,
            data_dir=Path(directory, "data"),
            durability="group",
        ) as broker,
        Prometheus(Path(directory), {"shoal": broker.metrics_url.split("/")[2]}) as server,
        member(broker, "audit"),
        member(broker, "billing"),
        member(broker, "billing") as leaving,
        member(broker, "billing") as killed,
    ):
        writing = threading.Thread(target=_produce, args=(broker, done))
        writing.start()
        try:
            server.wait_for('kafka_consumergroup_members{consumergroup="billing"} == 3')
            begin = time.time() + WARM_UP_S
            _until(begin, KILLED_S)
            killed.kill()
            _until(begin, JOINS_S)
            with member(broker, "billing"):
                _until(begin, LEAVES_S)
                leaving.send_signal(signal.SIGINT)
                _until(begin, LENGTH_S)
                series = {
                    title: _series(server, panels()[title], begin)
                    for titles in TITLES.values()
                    for title in titles
                }
        finally:
            done.set()
            writing.join(30)
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    return {"machine": machine, "step_s": STEP_S, "panels": series}


def _series(server: Any, panel: Panel, begin: float) -> dict[str, list[float | None]]:
    """Legend → a value every few seconds, as Grafana would draw it."""
    found: dict[str, list[float | None]] = {}
    for query, legend in panel.queries.items():
        text = query.replace("$job", ".*").replace("$group", ".*")
        for labels, points in server.query_range(text, begin, begin + LENGTH_S, STEP_S):
            name = legend
            for label, value in labels.items():
                name = name.replace(f"{{{{{label}}}}}", value)
            values: list[float | None] = [None] * (LENGTH_S // STEP_S + 1)
            for at, value in points:
                # A quantile of no requests is no number.
                values[round((at - begin) / STEP_S)] = None if isnan(value) else value
            found[name] = values
    return found


def rounded(measured: Any) -> Any:
    """Four digits are more than a picture shows."""
    if isinstance(measured, dict):
        return {key: rounded(value) for key, value in measured.items()}
    if isinstance(measured, list):
        return [rounded(value) for value in measured]
    return float(f"{measured:.4g}") if isinstance(measured, float) else measured


# The pictures.

WIDTH, LEFT, TOP, ACROSS, DOWN = 860, 58, 66, 350, 150
SHOWN_MAX = 5


def picture(name: str, kept: dict[str, Any]) -> str:
    """Four panels, two beside each other, with the same events marked in each."""
    canvas = Canvas(WIDTH, TOP + 2 * (DOWN + 86) + 30)
    canvas.text(20, 26, "What the dashboard's panels showed in one run", size=16)
    for number, title in enumerate(TITLES[name]):
        x, y = LEFT + number % 2 * (ACROSS + 70), TOP + number // 2 * (DOWN + 86)
        _panel(canvas, x, y, panels()[title], kept["panels"][title], kept["step_s"])
    told = "; ".join(f"{number}: {what}" for number, what in enumerate(EVENTS.values(), 1))
    canvas.text(20, canvas.height - 14, f"{told}. Measured on {kept['machine']}.", size=12)
    return canvas.to_svg()


def _panel(
    canvas: Canvas,
    x: float,
    y: float,
    panel: Panel,
    series: dict[str, list[float | None]],
    step_s: float,
) -> None:
    drawn = _largest(series)
    top = _ceiling(max((value for line in drawn.values() for value in line if value), default=1.0))
    canvas.text(x, y - 12, panel.title, size=13)
    for share in (0.0, 0.5, 1.0):
        level = y + DOWN * (1 - share)
        canvas.line([(x, level), (x + ACROSS, level)], FAINT)
        canvas.text(x - 6, level + 4, _shown(top * share, panel.unit), size=11, anchor="end")
    for second in range(0, LENGTH_S + 1, 30):
        place = x + ACROSS * second / LENGTH_S
        canvas.text(place, y + DOWN + 16, f"{second} s", size=11, anchor="middle")
    for number, second in enumerate(EVENTS, 1):
        place = x + ACROSS * second / LENGTH_S
        canvas.line([(place, y), (place, y + DOWN)], INK, dashed=True)
        canvas.text(place + 4, y + 10, str(number), size=11)
    for number, (name, line) in enumerate(drawn.items()):
        color = color_of(_APART[number])
        for points in _pieces(line):
            canvas.line(
                [
                    (x + ACROSS * index * step_s / LENGTH_S, y + DOWN * (1 - value / top))
                    for index, value in points
                ],
                color,
                width=2,
            )
        column, row = x + number % 3 * 118, y + DOWN + 36 + number // 3 * 18
        canvas.rectangle(column, row - 9, 10, 10, color)
        canvas.text(column + 15, row, name, size=12)


_APART: Final = (0, 5, 2, 3, 7)  # colours that can be told apart as thin lines on white


def _largest(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    """As many lines as a small panel holds: those that reach highest."""
    by_height = sorted(series, key=lambda name: -max(value or 0.0 for value in series[name]))
    return {name: series[name] for name in by_height[:SHOWN_MAX]}


def _pieces(line: list[float | None]) -> list[list[tuple[int, float]]]:
    """The parts of a line without gaps."""
    pieces: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(line):
        if value is not None:
            pieces[-1].append((index, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if len(piece) > 1]


def _ceiling(value: float) -> float:
    """The next of 1, 2, 4, 5, 6, 8 and 10 in its power of ten."""
    power = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 6, 8, 10) if step * power >= value * 0.9999)


def _shown(value: float, unit: str) -> str:
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:g} ms"
    return f"{value:,.10g}{' s' if unit == 's' else ''}"


def main() -> None:
    """Run if asked to, and draw."""
    parser = argparse.ArgumentParser(description="Pictures of the dashboard's panels.")
    parser.add_argument("--run", action="store_true", help="measure again, instead of what is kept")
    if parser.parse_args().run:
        KEPT.write_text(json.dumps(rounded(run()), separators=(",", ":")) + "\n")
    kept = json.loads(KEPT.read_text())
    for name in TITLES:
        (PICTURES / name).write_text(picture(name, kept))


if __name__ == "__main__":
    main()
