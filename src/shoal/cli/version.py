"""``shoal version``: what is installed, for a bug report."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import typer

from shoal._version import __version__
from shoal.cli.output import print_json, tell

app = typer.Typer(rich_markup_mode=None)

_PACKAGES = ("numpy", "pyarrow", "pyspark", "uvloop", "pillow")


@app.command()
def show(
    as_json: bool = typer.Option(False, "--json", help="One JSON object instead of lines."),
) -> None:
    """Versions of Shoal, of Python and of the optional parts that were found."""
    from shoal.records import extension, kernel

    found = {
        "shoal": __version__,
        "python": platform.python_version(),
        "kernel": kernel.NAME,
        "extension": extension.chosen(),
        "java": shutil.which("java") or "not found",
        **{name: _installed(name) for name in _PACKAGES},
    }
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        tell(f"{name:9} {value}")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
