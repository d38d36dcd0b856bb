"""The demo's Spark pipeline, seen from the demo: a process that starts while the group plays its
act, says when it is done, and can be ended at any moment.

Rule: Spark runs in a process group of its own. A JVM that is starting hears nothing: whoever
interrupts the demo kills that group instead of waiting for it.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from shoal.client.admin import Admin
from shoal.errors import RequestTimeoutError, ShoalError

CLOSE_S: Final = 60.0


class Pipeline:
    """Revenue per shop and window to a topic and to Parquet, until nothing is left to read.

    A context: leaves properly at the end of the block and after an error, at once after Ctrl-C.
    """

    def __init__(
        self, bootstrap_servers: str, *, topic: str, results: str, group_id: str, closed_ms: int
    ) -> None:
        self._servers = bootstrap_servers
        self._group_id = group_id
        self._scratch = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-m",
                "shoal.cli.demo_spark",
                bootstrap_servers,
                topic,
                results,
                group_id,
                str(self._scratch),
                str(closed_ms),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        self._listener = threading.Thread(target=self._listen, name="demo-spark", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._told.put(json.loads(line))
        self._told.put({"failed": f"its process ended ({self._process.wait()})"})

    def finish(self, timeout_s: float) -> dict[str, Any]:
        """Wait until the last window is closed and written; what was done."""
        try:
            told = self._told.get(timeout=timeout_s)
        except queue.Empty:
            raise RequestTimeoutError(
                f"the Spark pipeline did not finish within {timeout_s:g} s; is the machine busy?"
            ) from None
        if "failed" in told:
            raise ShoalError(f"the Spark pipeline failed: {told['failed']}")
        return told

    def lag(self) -> int:
        """How far the pipeline's group is behind."""
        with Admin(bootstrap_servers=self._servers) as admin:
            return sum(one.lag or 0 for one in admin.group_lag(self._group_id).values())

    def keep(self, directory: Path) -> None:
        """Stop Spark and put the Parquet files into ``directory``."""
        self._stop()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self._scratch / "revenue.parquet", directory)

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # ended meanwhile
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self._stop()
        finally:
            self._kill()
            self._listener.join()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
