"""``shoal version``: what is installed, for a bug report."""

from __future__ import annotations

import json
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import typer

from shoal._version import __version__

app = typer.Typer(rich_markup_mode=None)

_PACKAGES = ("numpy", "pyarrow", "pyspark", "uvloop", "pillow")


@app.command()
def show(
    as_json: bool = typer.Option(False, "--json", help="One JSON object instead of lines."),
) -> None:
    """Versions of Shoal, of Python and of the optional parts that were found."""
    from shoal.records import kernel

    found = {
        "shoal": __version__,
        "python": platform.python_version(),
        "kernel": kernel.NAME,
        "java": shutil.which("java") or "not found",
        **{name: _installed(name) for name in _PACKAGES},
    }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, value in found.items():
        typer.echo(f"{name:8} {value}")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
