"""Other projects' own tests, from their published sources. Nothing of theirs is kept here."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.peers.cache import fetched, once, program, run_fetch
from tests.peers.clients import go_module

FRANZ_GO: Final = ("github.com/twmb/franz-go", "v1.22.0")
# What kafka-python looks for when it is asked for snappy and zstd.
CODEC_PACKAGES: Final = ("python-snappy==0.7.3", "zstandard==0.25.0")


def franz_go_tests(*joined: Path) -> Path:
    """A directory with kgo's test sources and its compiled tests, ``kgo.test``.

    Args:
        joined: Go files of ours that are compiled into the same package.
    """
    go = program("go", "install Go to run franz-go's tests")
    source = go_module("franz-go", *FRANZ_GO) / "pkg" / "kgo"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in joined)).hexdigest()[:12]

    def fetch(directory: Path) -> None:
        copy = directory / "module"
        # Without the modes of the module cache, which is read only.
        shutil.copytree(source.parent.parent, copy, copy_function=shutil.copyfile)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in joined:
            shutil.copyfile(path, copy / "pkg" / "kgo" / path.name)
        run_fetch(
            [go, "test", "-c", "-o", str(directory / "kgo.test"), "./pkg/kgo"],
            what="franz-go's tests",
            cwd=copy,
        )

    return fetched(f"franz-go-tests-{FRANZ_GO[1]}-{digest}", fetch)


def go_events(binary: Path, *arguments: str) -> list[str]:
    """The command that runs compiled Go tests and prints their events as JSON lines."""
    go = program("go", "install Go to run Go tests")
    return [go, "tool", "test2json", "-t", str(binary), "-test.v=test2json", *arguments]


@once
def kafka_python_sources() -> Path:
    """kafka-python's unpacked source distribution, of the version that is installed."""
    wanted = f"kafka-python=={version('kafka-python')}"

    def fetch(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        run_fetch(
            [*pip, "--no-deps", "--no-binary", ":all:", "-d", str(directory), wanted],
            what=f"the sources of {wanted}",
        )
        (archive,) = directory.glob("*.tar.gz")
        subprocess.run(["tar", "xzf", archive.name], cwd=directory, check=True)
        archive.unlink()

    (unpacked,) = fetched(wanted.replace("==", "-"), fetch).iterdir()
    return unpacked


@once
def python_codecs() -> Path:
    """A directory for ``sys.path`` with the packages that give kafka-python snappy and zstd."""

    def fetch(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run_fetch(
            [*pip, "--no-deps", "--target", str(directory), *CODEC_PACKAGES],
            what="snappy and zstd for kafka-python",
        )

    return fetched("python-codecs", fetch)
