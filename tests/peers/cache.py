"""The cache directory, downloads into it, and the one way a test says that a peer is absent."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

FETCH_TIMEOUT_S = 600

absent: Counter[str] = Counter()
"""Reason → tests not run for it; printed by the terminal summary."""


class PeerMissingError(Exception):
    """A peer cannot be had on this machine; the text says what to install."""


def cache_directory() -> Path:
    """Where peers are kept between runs."""
    root = os.environ.get("SHOAL_PEERS_CACHE") or Path.home() / ".cache" / "shoal" / "peers"
    path = Path(root)
    path.mkdir(parents=True, exist_ok=True)
    return path


def need(get: Callable[[], T]) -> T:
    """The peer, or a skip with its reason."""
    try:
        return get()
    except PeerMissingError as missing:
        absent[str(missing)] += 1
        pytest.skip(str(missing))


def program(name: str, advice: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name)
    if found is None:
        raise PeerMissingError(f"{name} is not installed ({advice})")
    return found


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """One fetch of a peer at a time, also between test processes."""
    directory = cache_directory()
    with (directory / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory / name


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """The cached directory ``name``, filled by ``fetch`` when it is not there yet.

    It is filled beside its place and renamed when whole, so that an interrupted fetch leaves
    nothing that looks complete.
    """
    with _locked(name) as target:
        if not target.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
            try:
                fetch(scratch)
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return target


def run_fetch(command: list[str], *, what: str, cwd: Path | None = None) -> None:
    """Run a package client; its failure is the peer's absence, in one line."""
    try:
        subprocess.run(
            command, cwd=cwd, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(
            f"{what} could not be fetched: {command[0]} took too long; it is tried again next run"
        ) from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stdout + error.stderr).splitlines() if line.strip()]
        last = lines[-1].strip()[:160] if lines else "no output"
        raise PeerMissingError(f"{what} could not be fetched: {last}") from error


def once(get: Callable[[], T]) -> Callable[[], T]:
    """Remember the answer of ``get`` for the process, an absence too."""

    @functools.cache
    def attempt() -> T | PeerMissingError:
        try:
            return get()
        except PeerMissingError as missing:
            return missing

    @functools.wraps(get)
    def answer() -> T:
        result = attempt()
        if isinstance(result, PeerMissingError):
            raise result
        return result

    return answer
