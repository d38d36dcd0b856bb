"""``make test-pythons``: the fast tests on every supported Python that this machine has.

Supported is what the classifiers say. A Python is looked for on PATH, among pyenv's and where
``.ci/fetch-python`` puts one. Each has a virtual environment of its own in ``.venv/pythons`` with
the pinned packages; those without a wheel for it are left out and named. What is tested is the
wheel, installed, as users have it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.packaging.distribution import ROOT, build

FAST = "not slow and not long and not kafka and not spark and not root"
SECOND = ["records", "wire", "client", "group", "log"]
"""What continuous integration runs on a second Python: where the version of Python matters most."""

_LOCK = ROOT / "requirements.lock"
_ENVIRONMENTS = Path(sys.prefix) / "pythons"
_WHO = "import sys; print('%d.%d' % sys.version_info[:2], sys.version.split()[0])"
_MISSING = re.compile(r"No matching distribution found for ([\w.-]+)")


class Interpreter(NamedTuple):
    minor: str
    """``3.14``"""
    full: str
    program: str


class NoEnvironmentError(Exception):
    """A virtual environment could not be made; the text says why."""


# --- which there are ----------------------------------------------------------------------------


def supported() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    prefix = "Programming Language :: Python :: 3."
    return [each.rsplit(" ", 1)[1] for each in classifiers if each.startswith(prefix)]


def find(minor: str) -> Interpreter | None:
    return next((found for each in _candidates(minor) if (found := _ask(each, minor))), None)


def _candidates(minor: str) -> Iterator[str]:
    name = f"python{minor}"
    if sys.version_info[:2] == tuple(map(int, minor.split("."))):
        yield sys.executable
    on_path = shutil.which(name)
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(pyenv.glob(f"{minor}.*/bin/{name}"), reverse=True))
    # Beside the one that runs, wherever pyenv is if nobody says so and HOME is another.
    beside = Path(sys.base_prefix).parent
    yield from map(str, sorted(beside.glob(f"{minor}.*/bin/{name}"), reverse=True))
    cache = os.environ.get("SHOAL_PYTHONS_CACHE") or Path.home() / ".cache" / "shoal" / "pythons"
    yield str(Path(cache) / "bin" / name)


def _ask(program: str, minor: str) -> Interpreter | None:
    """A program of the right name may still be another version, or none (pyenv's shims)."""
    try:
        run = subprocess.run([program, "-c", _WHO], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = run.stdout.split()
    return (
        Interpreter(minor, said[1], program) if run.returncode == 0 and said[0] == minor else None
    )


# --- their environments -------------------------------------------------------------------------


def environment(interpreter: Interpreter) -> tuple[str, list[str]]:
    """The Python of a virtual environment with the pinned packages, and the packages it lacks."""
    if interpreter.program == sys.executable:
        return sys.executable, []
    directory = _ENVIRONMENTS / interpreter.minor
    python = str(directory / "bin" / "python")
    stamp = directory / ".packages"
    state = hashlib.sha256(_LOCK.read_bytes() + repr(interpreter).encode()).hexdigest()
    if stamp.exists():
        made_of, *lacking = stamp.read_text(encoding="utf-8").split()
        if made_of == state:
            return python, lacking
    shutil.rmtree(directory, ignore_errors=True)
    _run([interpreter.program, "-m", "venv", str(directory)])
    lacking = _install_pinned(python)
    stamp.write_text(" ".join([state, *lacking]), encoding="utf-8")
    return python, lacking


def _install_pinned(python: str) -> list[str]:
    """Everything in the lock that has a wheel; gives the names of what has none."""
    blocks = re.split(r"\n(?=\S)", _LOCK.read_text(encoding="utf-8"))
    lacking: list[str] = []
    with tempfile.TemporaryDirectory(prefix="shoal-lock-") as scratch:
        lock = Path(scratch) / "requirements.lock"
        while True:
            kept = [each for each in blocks if each.split("==")[0] not in lacking]
            lock.write_text("\n".join(kept), encoding="utf-8")
            options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(lock)]
            run = _pip(python, "install", *options)
            if run.returncode == 0:
                return lacking
            missing = _MISSING.search(run.stderr)
            if missing is None or missing[1] in lacking:
                raise NoEnvironmentError(run.stderr[-2000:])
            lacking.append(missing[1])


def install_wheel(python: str, wheel: Path) -> None:
    run = _pip(python, "install", "--no-deps", "--force-reinstall", str(wheel))
    if run.returncode:
        raise NoEnvironmentError(run.stderr[-2000:])


def _pip(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1_800)


def _run(command: Sequence[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if run.returncode:
        raise NoEnvironmentError((run.stdout + run.stderr)[-2000:])


# --- the tests ----------------------------------------------------------------------------------


def run_tests(python: str, arguments: Sequence[str]) -> int:
    cache = Path(_ENVIRONMENTS, "cache", hashlib.sha256(python.encode()).hexdigest()[:8])
    command = [python, "-m", "pytest", "-q", "-m", FAST, "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, cwd=ROOT).returncode


def second(found: Sequence[Interpreter]) -> list[Interpreter]:
    """The newest one that is not the one this runs on."""
    return [each for each in found if each.program != sys.executable][-1:]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="3.x", help="this version alone")
    parser.add_argument(
        "--second", action="store_true", help="one more Python, fewer tests: for CI"
    )
    options, pytest_arguments = parser.parse_known_args(arguments)
    wanted = [options.only] if options.only else supported()
    found = [each for minor in wanted if (each := find(minor))]
    for minor in sorted(set(wanted) - {each.minor for each in found}):
        print(f"Python {minor}: not found (.ci/fetch-python may fetch it)", flush=True)
    if options.second:
        found = second(found)
        pytest_arguments = [*(f"tests/{each}" for each in SECOND), *pytest_arguments]
        if not found:
            print("no second Python on this machine: only one was tested")
    failed = [each.full for each in found if not _try(each, pytest_arguments)]
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    elif found:
        print(f"passed on Python {', '.join(each.full for each in found)}")
    return 1 if failed or (options.only and not found) else 0


def _try(interpreter: Interpreter, arguments: Sequence[str]) -> bool:
    started = time.monotonic()
    try:
        python, lacking = environment(interpreter)
        if python != sys.executable:
            with tempfile.TemporaryDirectory(prefix="shoal-wheel-") as scratch:
                install_wheel(python, build(Path(scratch)).wheel)
    except NoEnvironmentError as error:
        print(f"Python {interpreter.full}: no environment: {error}", flush=True)
        return False
    ready_s = time.monotonic() - started
    without = f", without {', '.join(lacking)} (no wheel)" if lacking else ""
    print(f"Python {interpreter.full}: {python}, ready in {ready_s:.0f} s{without}", flush=True)
    return run_tests(python, arguments) == 0


if __name__ == "__main__":
    sys.exit(main())
