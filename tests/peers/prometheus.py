"""A real Prometheus that scrapes what a test runs."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.peers.cache import once, program

START_S = 60.0


@once
def prometheus() -> str:
    """The path of the program."""
    return program("prometheus", "Debian: apt-get install prometheus")


class Prometheus:
    """Scrapes ``targets`` (job → host:port) every second, answers queries, evaluates ``rules``."""

    def __init__(
        self, directory: Path, targets: Mapping[str, str], rules: Sequence[Path] = ()
    ) -> None:
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [where]}]}
            for job, where in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": jobs,
            "rule_files": [str(path) for path in rules],
        }
        path = directory / "prometheus.yml"
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        self._log = (directory / "prometheus.log").open("wb")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._where = f"127.0.0.1:{free.getsockname()[1]}"
        self._process = subprocess.Popen(
            [
                prometheus(),
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self._where}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        """What an instant query finds: labels and value of every series."""
        found = self._ask(f"query?{urllib.parse.urlencode({'query': text})}")
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def query_range(
        self, text: str, start: float, end: float, step_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """What a query finds between two times: labels of every series, and (time, value)."""
        asked = {"query": text, "start": start, "end": end, "step": step_s}
        found = self._ask(f"query_range?{urllib.parse.urlencode(asked)}")
        return [
            (one["metric"], [(float(at), float(value)) for at, value in one["values"]])
            for one in found["result"]
        ]

    def rules(self) -> dict[str, tuple[str, str]]:
        """Alert → how its evaluation went (``ok``), and its state."""
        return {
            one["name"]: (one["health"], one["state"])
            for group in self._ask("rules")["groups"]
            for one in group["rules"]
        }

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://{self._where}/api/v1/{what}", timeout=30) as answer:
            return json.load(answer)["data"]

    def wait_for(self, text: str) -> list[tuple[dict[str, str], float]]:
        """The same, as soon as there is an answer."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                if found := self.query(text):
                    return found
            except OSError:
                assert self._process.poll() is None, "Prometheus ended"
            assert time.monotonic() < deadline, f"nothing found in {START_S:g} s: {text}"
            time.sleep(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
