"""Kafka clients in other languages: npm packages, Go modules, kcat."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.peers.cache import PeerMissingError, fetched, once, program, run_fetch

# The last one is zstd for clients that leave it to Node, which has it since 22.15.
NPM_PACKAGES = ("kafkajs@2.2.4", "@platformatic/kafka@2.12.1", "zstd-codec@0.1.5")
KCAT_PACKAGES = ("kcat", "librdkafka1", "libyajl2", "libsasl2-2")


@once
def npm_clients() -> Path:
    """A directory whose ``node_modules`` holds the JavaScript clients."""
    program("node", "install Node.js to run the JavaScript clients")
    npm = program("npm", "install npm to fetch the JavaScript clients")

    def fetch(directory: Path) -> None:
        run_fetch(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", str(directory), *NPM_PACKAGES],
            what="the JavaScript clients",
        )

    name = hashlib.sha256(" ".join(NPM_PACKAGES).encode()).hexdigest()[:12]
    return fetched(f"npm-{name}", fetch)


def node_environment() -> dict[str, str]:
    """In it, ``node`` finds the JavaScript clients."""
    modules = npm_clients() / "node_modules"
    return {**os.environ, "NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}


def run_node(script: Path, *arguments: str, stdin: str = "", timeout: float = 60) -> str:
    """Run a script against the JavaScript clients; its standard output."""
    done = subprocess.run(
        ["node", str(script), *arguments],
        env=node_environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{script.name} failed: {done.stderr[-2000:]}")
    return done.stdout


def go_module(name: str, module: str, version: str) -> Path:
    """The unpacked source of a Go module (read only, from the module cache)."""
    go = program("go", "install Go to run the Go clients")

    def fetch(directory: Path) -> None:
        (directory / "go.mod").write_text("module shoalpeers\n\ngo 1.22\n")
        run_fetch([go, "get", f"{module}@{version}"], what=module, cwd=directory)

    work = fetched(f"go-{name}-{version}", fetch)
    shown = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode or not shown.stdout.strip():
        raise PeerMissingError(f"{module} is not in Go's module cache")
    return Path(shown.stdout.strip())


@once
def kcat() -> Sequence[str]:
    """The command that runs kcat: the installed one, or Debian's unpacked beside the cache."""
    installed = shutil.which("kcat") or shutil.which("kafkacat")
    if installed:
        return (installed,)
    apt = program("apt-get", "install kcat")
    unpack = program("dpkg-deb", "install kcat")

    def fetch(directory: Path) -> None:
        run_fetch([apt, "download", *KCAT_PACKAGES], what="kcat", cwd=directory)
        for package in sorted(directory.glob("*.deb")):
            run_fetch([unpack, "-x", str(package), str(directory)], what="kcat", cwd=directory)
            package.unlink()

    root = fetched("kcat", fetch)
    libraries = ":".join(str(path) for path in sorted(root.glob("usr/lib/*")) if path.is_dir())
    return ("env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr" / "bin" / "kcat"))
