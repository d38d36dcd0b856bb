"""``shoal exporter`` over 10,000 groups of 10 partitions each: a look, a scrape, its memory.

The groups have committed in every partition and have no members. The cluster is our broker, and
Apache Kafka after it where that can be had; the exporter is a process of its own. If there is
a ``kafka_exporter`` on the path it is asked the same, and ours is asked once more for all the
series that it shows: those of each partition too, which we leave out of so many groups by default.
It asks the cluster during a scrape; so what is compared is CPU of a look and a scrape together.
Goals: a look at the cluster in at most 10 s, a scrape from memory in at most 200 ms, at most 200 MB
resident.

    python -m benchmarks exporter
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from benchmarks.broker_setting import (
    Target,
    apache_kafka,
    ask,
    create_topic,
    has_peer,
    produce_frame,
    shoal_broker,
)
from benchmarks.measuring import Report, Row, json_argument
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.frames import decode_response, encode_request

GROUPS = 10_000
PARTITIONS = 10
IN_FLIGHT = 50
LOOKS = 3
SCRAPES = 15
EVERY_S = 20


def commit_frame(group: str) -> bytes:
    topic = OffsetCommitRequest.Topic(
        name="t",
        partitions=[
            OffsetCommitRequest.Partition(
                partition_index=number, committed_offset=number, committed_metadata=""
            )
            for number in range(PARTITIONS)
        ],
    )
    return b"".join(
        encode_request(
            8, 8, 1, "bench", OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
        )
    )


def fill(target: Target) -> None:
    """Make the groups. The coordinator of each is this broker."""
    create_topic(target.address, "t", PARTITIONS)
    with socket.create_connection(target.address, timeout=60) as sock:
        for number in range(PARTITIONS):
            sock.sendall(produce_frame("t", number, 16 << 10, acks=1))
            _reply(sock)
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while ask(target.address, found, 4).coordinators[0].error_code:
        time.sleep(0.2)
    left = [f"group-{number:05}" for number in range(GROUPS)]
    with socket.create_connection(target.address, timeout=60) as sock:
        while left:
            now, left = left[:IN_FLIGHT], left[IN_FLIGHT:]
            sock.sendall(b"".join(map(commit_frame, now)))
            for group in now:
                answer = decode_response(_reply(sock), 8, 8)[1]
                if any(one.error_code for topic in answer.topics for one in topic.partitions):
                    left.append(group)  # its coordinator is loading


def _reply(sock: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return bytes(data)


class Watched:
    """What was measured of our exporter."""

    def __init__(self, target: Target, *flags: str) -> None:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "shoal", "exporter", "--listen", "127.0.0.1:0"),
                *("--every", str(EVERY_S), "--bootstrap", target.servers, *flags),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            where = process.stderr.readline().split("//")[1].split("/")[0]
            self.look_s, self.look_cpu_s = self._look(where, process.pid)
            taken = []
            for _ in range(SCRAPES):
                began = time.perf_counter()
                text = _page(f"http://{where}/metrics")
                taken.append(time.perf_counter() - began)
            self.scrape_ms = statistics.median(taken) * 1e3
            self.series = _series(text)
            self.peak_mb = _peak_mb(process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=60)

    def _look(self, where: str, pid: int) -> tuple[float, float]:
        """Seconds of a look, and of the exporter's CPU in it: the median of some."""
        seconds: list[float] = []
        failures = 0
        cpu: list[float] = []
        before = _cpu_s(pid)
        deadline = time.monotonic() + 240 * LOOKS
        while len(seconds) < LOOKS:
            assert time.monotonic() < deadline, "the exporter does not look"
            time.sleep(2)  # a scrape costs CPU too
            text = _page(f"http://{where}/metrics")
            found = dict(
                line.split(" ") for line in text.splitlines() if line.startswith("shoal_exporter_")
            )
            failures = int(found["shoal_exporter_sweep_failures_total"])
            assert not failures, "a look at the cluster failed; is this machine busy?"
            took = found.get("shoal_exporter_sweep_seconds")
            if took is not None and float(took) not in seconds:
                seconds.append(float(took))
                cpu.append(_cpu_s(pid) - before)
                before = _cpu_s(pid)
        return statistics.median(seconds), statistics.median(cpu)


class WatchedPeer:
    """What was measured of kafka_exporter: it looks at the cluster when it is scraped."""

    def __init__(self, program: str, target: Target) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            where = f"127.0.0.1:{free.getsockname()[1]}"
        process = subprocess.Popen(
            [program, f"--kafka.server={target.servers}", f"--web.listen-address={where}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait(where, process)
            taken, cpu = [], []
            for _ in range(LOOKS):
                before, began = _cpu_s(process.pid), time.perf_counter()
                text = _page(f"http://{where}/metrics")
                taken.append(time.perf_counter() - began)
                cpu.append(_cpu_s(process.pid) - before)
            self.scrape_s, self.cpu_s = statistics.median(taken), statistics.median(cpu)
            self.series = _series(text)
            self.peak_mb = _peak_mb(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)

    def _wait(self, where: str, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, "kafka_exporter ended"
            assert time.monotonic() < deadline, "kafka_exporter does not listen"
            try:
                _page(f"http://{where}/")
            except OSError:
                time.sleep(0.2)
            else:
                return


def _series(text: str) -> int:
    """How many series of groups a scrape shows: its own ones are not compared."""
    return sum(1 for line in text.splitlines() if line.startswith(("kafka_", "shoal_group")))


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (one for one in status.splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=600) as answer:
        return str(answer.read().decode())


def alone(report: Report, target: Target, whose: str) -> None:
    """Ours, as it is by default: group by topic."""
    found = Watched(target)

    def row(what: str, unit: str, value: float, goal: str) -> Row:
        return Row(f"{whose}: {what}", unit, value, goal=goal, higher_is_better=False)

    report.add(row("a look", "s", found.look_s, "<= 10"))
    report.add(row("of CPU, of the exporter", "s", found.look_cpu_s, "<= 10"))
    report.add(row(f"a scrape of {found.series:,} series", "ms", found.scrape_ms, "<= 200"))
    report.add(row("resident at most", "MB", found.peak_mb, "<= 200"))


def beside(report: Report, target: Target, whose: str, program: str) -> None:
    """Both, with every series that kafka_exporter has: each partition too."""
    peer = WatchedPeer(program, target)
    ours = Watched(target, "--series-max", "10000000")

    def row(what: str, unit: str, value: float, of_peer: float) -> Row:
        return Row(
            *(f"{whose}, all partitions: {what}", unit, value, of_peer, "kafka_exporter"),
            goal=">= 1x",
            higher_is_better=False,
        )

    print(f"  series: ours {ours.series:,}, kafka_exporter {peer.series:,}")
    report.add(row("CPU of a look and a scrape", "s", ours.look_cpu_s, peer.cpu_s))
    report.add(row("a scrape", "ms", ours.scrape_ms, peer.scrape_s * 1e3))
    report.add(row("resident at most", "MB", ours.peak_mb, peer.peak_mb))


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("exporter")
    program = shutil.which("kafka_exporter")
    if program is None:
        print("  no kafka_exporter on the path: ours alone")
    for make in (shoal_broker, apache_kafka)[: 1 + has_peer()]:
        with make() as target:
            fill(target)
            whose = f"{GROUPS:,} groups x {PARTITIONS} of {target.name}"
            alone(report, target, whose)
            if program is not None:
                beside(report, target, whose, program)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
