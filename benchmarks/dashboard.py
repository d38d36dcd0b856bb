"""The dashboard: what it costs its server, and how fast it is in a browser.

Server: ``shoal ui`` as a process of its own on a real broker with 1,000 groups, half of which
commit again all the time; ten browsers are connections that read the event stream to its end.
Browser: a real Chromium on 5,000 groups. Drawn is the frame after the first row is there; the clock
starts with the request for the page, nothing is cached, and logging in is part of it. Beside other
work that clock says little, so CPU of all processes until then is told, too.
An update is what a look brings: 100 groups changed. All CPU time of the page's main thread while
looks come in is divided by their number; its clocks, which tick every second, stand still.

    python -m benchmarks dashboard [--groups 1000] [--seconds 60] [--rounds 5] [--part browser]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin, Producer
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from tests.browser.chromium import Browser

PARTITIONS = 4
TOPICS = {"orders": PARTITIONS}
BROWSERS = 10
MANY, CHANGED = 5_000, 100
MOVING = "moving"
UPDATES, PATIENCE_S = 4, 240
STARTED_S = 3.0
# The frame after the one in which the first row is there.
DRAWN = """
new MutationObserver((_, me) => {
  if (!document.querySelector("a.name")) return;
  me.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.drawn = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# As installed with the extras web and arrow alone: where pandas is, pyarrow loads it (45 MiB).
NO_PANDAS = "raise ImportError"


def fill(admin: Admin, groups: int) -> None:
    for number in range(groups):
        offsets = {TopicPartition("orders", part): 0 for part in range(PARTITIONS)}
        admin.alter_group_offsets(f"group-{number:05d}", offsets)


def started(servers: str, every_s: float, directory: str) -> tuple[subprocess.Popen[str], int, str]:
    (Path(directory) / "pandas.py").write_text(NO_PANDAS, encoding="utf-8")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "shoal", "ui", "--no-browser", "--port", "0"),
            *("--bootstrap", servers, "--every", str(every_s)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": directory},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r":(\d+)/#token=(\S+)", line):
            return process, int(found[1]), found[2]
    raise RuntimeError("the dashboard did not start")


def cookie_of(port: int, token: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {
        "Origin": f"http://127.0.0.1:{port}",
        "X-Shoal": "1",
        "Content-Type": "application/json",
    }
    connection.request("POST", "/api/session", json.dumps({"secret": token}), headers)
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.headers["set-cookie"].partition(";")[0]


def listen(port: int, cookie: str, seen: list[int], ready: threading.Semaphore) -> None:
    """One browser: reads until the server is gone."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/api/stream", headers={"Cookie": cookie})
    answer = connection.getresponse()
    is_ready = False
    try:
        while line := answer.readline():
            seen.append(len(line))
            if not is_ready and line.startswith(b"data: ") and b'"swept_ms"' in line:
                is_ready = True
                ready.release()
    except (OSError, http.client.HTTPException):
        pass  # the end of the measurement


def commit(admin: Admin, groups: int, stop: threading.Event) -> None:
    """Every second of the groups goes on, all the time."""
    number = 0
    while not stop.wait(0.02):
        number = (number + 2) % groups
        admin.alter_group_offsets(f"group-{number:05d}", {TopicPartition("orders", 0): 0})


def measure_server(report: Report, groups: int, seconds: float, every_s: float) -> None:
    with tempfile.TemporaryDirectory() as directory, Broker(topics=TOPICS) as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            fill(admin, groups)
            process, port, token = started(servers, every_s, directory)
            stop = threading.Event()
            seen: list[list[int]] = [[] for _ in range(BROWSERS)]
            ready = threading.Semaphore(0)
            try:
                cookie = cookie_of(port, token)
                for one in seen:
                    arguments = (port, cookie, one, ready)
                    threading.Thread(target=listen, args=arguments, daemon=True).start()
                for _ in seen:
                    ready.acquire()
                busy = threading.Thread(target=commit, args=(admin, groups, stop))
                busy.start()
                first = [sum(one) for one in seen]
                server = psutil.Process(process.pid)
                before, began = sum(server.cpu_times()[:2]), time.monotonic()
                time.sleep(seconds)
                spent = sum(server.cpu_times()[:2]) - before
                took = time.monotonic() - began
                memory = server.memory_info().rss
                later = sum(sum(one) for one in seen) - sum(first)
            finally:
                stop.set()
                process.terminate()
                process.wait(30)
            busy.join()
    whose = f"{groups:,} groups, {BROWSERS} browsers"
    for what, unit, value, goal in (
        ("server, resident", "MB", memory / 1e6, "<= 150"),
        ("server, of a core", "%", 100 * spent / took, "<= 5"),
        ("everything, once a browser", "KiB", sum(first) / BROWSERS / 1024, ""),
        ("what changed, a browser", "KiB a second", later / BROWSERS / took / 1024, ""),
    ):
        report.add(Row(f"{whose}: {what}", unit, value, goal=goal, higher_is_better=False))


def measure_browser(report: Report, rounds: int) -> None:
    from tests.browser.chromium import browser

    topics = {"orders": PARTITIONS, MOVING: 1}
    with tempfile.TemporaryDirectory() as directory, Broker(topics=topics) as broker:
        servers = broker.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            producer.send(MOVING, b"x")
        with Admin(bootstrap_servers=servers) as admin:
            fill(admin, MANY)
            for number in range(CHANGED):
                # Behind by a record that nobody reads: so many seconds more with every look.
                admin.alter_group_offsets(f"group-{number:05d}", {TopicPartition(MOVING, 0): 0})
        process, port, token = started(servers, 2.0, directory)
        try:
            _wait_for_a_look(port, token)
            firsts, everybody, busy, again, updates = [], [], [], [], []
            for _ in range(rounds):
                with browser() as one:
                    script = {"source": DRAWN}
                    one.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
                    clock = {"timeDomain": "threadTicks"}
                    one.driver.execute_cdp_cmd("Performance.enable", clock)
                    one.open(f"http://127.0.0.1:{port}/static/icon.svg")
                    time.sleep(STARTED_S)
                    spent = _cpu_s(process.pid, one)
                    one.open(f"http://127.0.0.1:{port}/#token={token}")
                    firsts.append(_drawn(one))
                    everybody.append(_cpu_s(process.pid, one) - spent)
                    busy.append(_busy_s(one))
                    one.open(f"http://127.0.0.1:{port}/")
                    again.append(_drawn(one))
                    updates.append(_an_update(one))
        finally:
            process.terminate()
            process.wait(30)
    for what, unit, values, goal in (
        ("first page drawn after its request", "s", firsts, "<= 1"),
        ("CPU for that, browser and server together", "s", everybody, ""),
        ("CPU for that, the page's main thread", "s", busy, ""),
        ("drawn again, logged in", "s", again, "<= 1"),
        (f"main thread for an update of {CHANGED}", "ms", updates, "<= 100"),
    ):
        value = statistics.median(values)
        name = f"{MANY:,} groups: {what} ({min(values):.3g} to {max(values):.3g} in {rounds})"
        report.add(Row(name, unit, value, goal=goal, higher_is_better=False))


def _wait_for_a_look(port: int, token: str) -> None:
    ready = threading.Semaphore(0)
    arguments = (port, cookie_of(port, token), [], ready)
    threading.Thread(target=listen, args=arguments, daemon=True).start()
    assert ready.acquire(timeout=120), "the dashboard does not look"


def _drawn(one: Browser) -> float:
    """Seconds from the request to the frame with the first rows; they are of all groups."""
    shown = f"{MANY:,} groups"
    one.wait_for(shown)
    return float(one.wait(lambda: one.run("return window.drawn"))) / 1000


def _an_update(one: Browser) -> float:
    """Milliseconds of the main thread for each look that came in."""
    count = "return performance.getEntriesByName('fleet-update').length"
    one.run("for (let one = 1; one < 1000; one++) clearInterval(one)")  # seconds that tick
    before, looks = _busy_s(one), int(one.run(count))
    deadline = time.monotonic() + PATIENCE_S
    while one.run(count) < looks + UPDATES:
        assert time.monotonic() < deadline, "no looks come in"
        time.sleep(2)
    return 1000 * (_busy_s(one) - before) / (one.run(count) - looks)


def _cpu_s(server: int, one: Browser) -> float:
    """CPU of the server and of every process of the browser."""
    driver = psutil.Process(one.driver.service.process.pid)
    found = 0.0
    for process in (psutil.Process(server), *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += sum(process.cpu_times()[:2])
    return found


def _busy_s(one: Browser) -> float:
    found = one.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=["server", "browser", "both"], default="both")
    given, _ = parser.parse_known_args(arguments)
    report = Report("dashboard", ["selenium", "starlette", "uvicorn"])
    if given.part != "browser":
        measure_server(report, given.groups, given.seconds, given.every)
    if given.part != "server":
        measure_browser(report, given.rounds)
    print(f"  load {psutil.getloadavg()[0]:.0f}")
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
