"""Builds what is handed to users, the way an installer does: ``make dist``.

The wheel is built from the unpacked sdist, in a directory of its own. So what the sdist lacks is
missing from the wheel too, and nothing left over from an earlier build gets in. The backend is
called directly (PEP 517): what a front end would add is only an isolated environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from packaging.metadata import Metadata
from packaging.tags import Tag
from packaging.utils import parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
KERNELS = frozenset({"shoal/records/_kernel.so", "shoal/spark/_json_kernel.so"})
EXTENSIONS = frozenset({"shoal/records/_objects.abi3.so", "shoal/client/_sending.abi3.so"})
_BUILD = (
    "import sys; from setuptools import build_meta as it; "
    "print(getattr(it, sys.argv[1])(sys.argv[2]))"
)
_BUILD_TIMEOUT_S = 300


class Distribution(NamedTuple):
    sdist: Path
    wheel: Path


class BuildError(Exception):
    """The backend refused; the text is what it said."""


def build(directory: Path, *, environment: Mapping[str, str] | None = None) -> Distribution:
    """An sdist of this tree and a wheel of that sdist, both in ``directory``.

    ``environment`` is added to the compiler's: ``CC=false`` is a machine without a compiler.
    """
    sdist = _backend("build_sdist", directory, source=ROOT, environment={})
    with tempfile.TemporaryDirectory(prefix="shoal-dist-") as scratch:
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        (source,) = Path(scratch).iterdir()
        wheel = _backend("build_wheel", directory, source=source, environment=environment or {})
    return Distribution(sdist, wheel)


def _backend(hook: str, directory: Path, *, source: Path, environment: Mapping[str, str]) -> Path:
    run = subprocess.run(
        [sys.executable, "-c", _BUILD, hook, str(directory)],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
    )
    if run.returncode:
        raise BuildError(f"{hook}:\n{run.stdout[-2000:]}{run.stderr[-4000:]}")
    return directory / run.stdout.splitlines()[-1]


# --- what must be true of them ------------------------------------------------------------------


def metadata(distribution: Distribution) -> Metadata:
    """What an index reads; it must be valid and the same in both.

    Raises:
        ExceptionGroup: a field is invalid, as an index would refuse it.
        AssertionError: sdist and wheel, or the file names and the fields, disagree.
    """
    with tarfile.open(distribution.sdist) as archive:
        (member,) = (each for each in archive.getnames() if each.count("/") == 1 and _is_info(each))
        content = archive.extractfile(member)
        assert content is not None
        of_sdist = Metadata.from_email(content.read())
    with ZipFile(distribution.wheel) as wheel:
        of_wheel = Metadata.from_email(wheel.read(_in_dist_info(wheel, "METADATA")))
    assert of_sdist.as_rfc822().as_bytes() == of_wheel.as_rfc822().as_bytes()
    name, version = parse_sdist_filename(distribution.sdist.name)
    assert (name, version) == parse_wheel_filename(distribution.wheel.name)[:2]
    assert (name, version) == (of_wheel.name, of_wheel.version)
    return of_wheel


def _is_info(name: str) -> bool:
    return name.endswith("/PKG-INFO")


def files_of(wheel: Path) -> frozenset[str]:
    with ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def wheel_facts(wheel: Path) -> Message:
    """The WHEEL file: what an installer is told about the layout."""
    with ZipFile(wheel) as archive:
        return BytesParser().parsebytes(archive.read(_in_dist_info(archive, "WHEEL")))


def _in_dist_info(archive: ZipFile, name: str) -> str:
    (path,) = (
        each
        for each in archive.namelist()
        if each.endswith(f".dist-info/{name}") and each.count("/") == 1
    )
    return path


def check(distribution: Distribution) -> str:
    """One line that says what was built; raises if something about it is not true."""
    facts = metadata(distribution)
    tags = parse_wheel_filename(distribution.wheel.name)[3]
    has_kernel = not KERNELS.isdisjoint(files_of(distribution.wheel))
    has_extensions = not EXTENSIONS.isdisjoint(files_of(distribution.wheel))
    stated = {Tag(*each.split("-")) for each in wheel_facts(distribution.wheel).get_all("Tag", [])}
    assert stated == tags, f"{distribution.wheel.name} says {stated} inside"
    is_for_any = all(tag.platform == "any" for tag in tags)
    assert has_kernel != is_for_any, f"{distribution.wheel.name} misleads: kernel {has_kernel}"
    is_for_cpython = all(tag.abi == "abi3" for tag in tags)
    assert has_extensions == is_for_cpython, (
        f"{distribution.wheel.name} misleads: extension modules {has_extensions}"
    )
    return f"{facts.name} {facts.version}: {distribution.wheel.name}, {distribution.sdist.name}"


def main() -> int:
    directory = ROOT / "dist"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    print(check(build(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
