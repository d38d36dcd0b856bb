"""Plants bugs and runs their tests: a forked process and a copy of the package for each.

The process that forks has loaded pytest and every library of others that a child before needed,
but nothing of Shoal, so a bug costs its test and little more. The copy comes first on the path of
the child and of everything it starts, so that brokers and members in processes of their own have
the bug as well.

Rule: only a failed test counts. A copy that cannot be imported, a test that is not found and a
run that hangs are no proof that somebody looks. No timer runs inside the child: what is thrown
into a test from outside ends in the plugins of others, and looks like a failure or like none.
"""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import shlex
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pluggy import HookimplMarker

from tests.planted.bugs import ROOT, SOURCE, PlantedBug

if TYPE_CHECKING:
    import pytest

HANG_SECONDS = 120
"""A test that notices a bug takes a second or two, on a busy machine ten times that; one that
takes so long waits for ever."""
JOBS = (os.cpu_count() or 1) + 2
"""More than there are processors: a test that notices a bug often waits for what never comes."""
_TESTS_FAILED = 1
_DIED = 70


class Outcome(NamedTuple):
    """What became of one bug. ``problem`` is empty if its test failed, as it should.

    ``cpu_seconds`` tell a slow test from a busy machine; ``said`` is the end of what was printed.
    """

    bug: PlantedBug
    problem: str
    seconds: float
    cpu_seconds: float
    said: str


def run(
    bugs: Iterable[PlantedBug], *, jobs: int = JOBS, hang_seconds: float = HANG_SECONDS
) -> Iterator[Outcome]:
    """Plant each bug and run its test, some at a time; outcomes come as they end."""
    assert not any(name.partition(".")[0] == "shoal" for name in sys.modules), "too late"
    # Children write no bytecode; what they find compiled they need not compile.
    for directory in (SOURCE, ROOT / "tests"):
        compileall.compile_dir(directory, quiet=2)
    for library in ("pytest", "hypothesis", "numpy"):
        importlib.import_module(library)
    waiting = list(reversed(list(bugs)))
    running: dict[int, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                gc.freeze()
                child = _Child(waiting.pop())
                running[child.pid] = child
            for child in list(running.values()):
                outcome = child.outcome(hang_seconds)
                if outcome is not None:
                    del running[child.pid]
                    yield outcome
            time.sleep(0.005)
    finally:
        for child in running.values():
            child.kill()


class _Child:
    def __init__(self, bug: PlantedBug) -> None:
        self.bug = bug
        self._started = time.monotonic()
        self._directory = Path(tempfile.mkdtemp(prefix="planted-"))
        text = bug.planted()
        self.pid = os.fork()
        if self.pid == 0:
            code = _DIED
            try:
                os.setsid()
                code = _child(bug, text, self._directory)
                (self._directory / "loaded").write_text("\n".join(_libraries()))
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)

    def outcome(self, hang_seconds: float) -> Outcome | None:
        """``None`` while it runs."""
        ended, status, used = os.wait4(self.pid, os.WNOHANG)
        cpu_seconds = used.ru_utime + used.ru_stime
        seconds = time.monotonic() - self._started
        if not ended:
            if seconds < hang_seconds:
                return None
            said = self._said()
            self.kill()
            problem = f"its test hung for {seconds:.0f} s, and a test that notices fails"
            return Outcome(self.bug, problem, seconds, cpu_seconds, said)
        code = os.waitstatus_to_exitcode(status)
        problem = ""
        if code != _TESTS_FAILED:
            meaning = {0: "nobody noticed", 5: "there is no such test"}
            problem = meaning.get(code, f"pytest ended with {code}")
        said = self._said()
        self._load_what_it_loaded()
        self._clean_up()
        return Outcome(self.bug, problem, seconds, cpu_seconds, said)

    def _said(self) -> str:
        said = self._directory / "said"
        return said.read_text(errors="replace")[-2_000:] if said.exists() else ""

    def _load_what_it_loaded(self) -> None:
        """The next child finds these libraries in memory."""
        loaded = self._directory / "loaded"
        for name in loaded.read_text().split() if loaded.exists() else ():
            if name not in sys.modules:
                with suppress(Exception), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    importlib.import_module(name)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._clean_up()

    def _clean_up(self) -> None:
        # What a failed test left running ends with its session.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)


def _child(bug: PlantedBug, text: str, directory: Path) -> int:
    said = os.open(directory / "said", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    _copy(directory / "shoal", Path(bug.file), text)
    os.chdir(ROOT)
    sys.path[:0] = [str(directory), str(ROOT)]
    os.environ["PYTHONPATH"] = str(directory)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["SHOAL_TEST_PATIENCE_S"] = "3"
    sys.dont_write_bytecode = True
    import pytest
    from hypothesis import HealthCheck, Phase, settings

    found = find_spec("shoal")
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).is_relative_to(directory), "the copy is what is imported"
    options = ["-x", "-q", "--no-header", "--tb=native", "--assert=plain"]
    # Libraries that are loaded before the fork; their asserts are not the ones to be explained.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["-o", f"cache_dir={directory / 'cache'}", f"--basetemp={directory / 'temporary'}"]
    # The first example that fails is enough; a small one is for people.
    looking = [Phase.explicit, Phase.generate]
    settings.register_profile(
        "planted",
        phases=looking,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    options += ["--hypothesis-profile=planted"]
    noticed = _Noticed()
    try:
        return int(pytest.main([*options, *shlex.split(bug.test)], plugins=[noticed]))
    except BaseExceptionGroup:
        # A failed test left something open, and pytest complains of that when all is over.
        return _TESTS_FAILED if noticed.failed else _DIED


class _Noticed:
    """Whether a test failed, for runs that do not come to an exit code; and no timers."""

    failed = False

    @HookimplMarker("pytest")(tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item], config: pytest.Config
    ) -> None:
        # Before Hypothesis looks for its own: for those it reads every module that is loaded.
        from _pytest.mark import deselect_by_keyword

        deselect_by_keyword(items, config)

    def pytest_timeout_set_timer(self) -> bool:
        return True

    def pytest_timeout_cancel_timer(self) -> bool:
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def _libraries() -> list[str]:
    """The modules of others that are loaded, in the order in which they came."""
    places = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    return [
        name
        for name, module in sys.modules.items()
        if (getattr(module, "__file__", None) or "").startswith(places) and name != "__main__"
    ]


def _copy(package: Path, file: Path, text: str) -> None:
    """The package with another text in one file: links to everything but what leads there.

    Nobody in Shoal asks for the real place of its files, so nothing leaves the copy by a link.
    """
    compiled = file.parent / "__pycache__"
    real = {*file.parents}
    if (SOURCE / compiled).is_dir():  # not where there is nothing of Python
        real.add(compiled)
    for directory in sorted(real):
        (package / directory).mkdir()
        for entry in os.scandir(SOURCE / directory):
            path = directory / entry.name
            if path not in real and not (
                directory == compiled and path.name.startswith(f"{file.stem}.")
            ):
                os.symlink(entry, package / path)
    (package / file).unlink()
    (package / file).write_text(text, encoding="utf-8")
