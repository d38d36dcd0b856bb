"""Every hint to install something names what people have, never a stranger's package."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import pytest

from shoal.errors import ConfigError, install_command, missing_extra

ROOT = Path(__file__).resolve().parent.parent


class Installed:
    def __init__(self, origin: str | None) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._origin


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///home/ann/shoal", "dir_info": {"editable": True}},
            "pip install -e '/home/ann/shoal[spark]'",
        ),
        (
            {"url": "file:///home/ann/my%20fish", "dir_info": {}},
            "pip install '/home/ann/my fish[spark]'",
        ),
        (
            {"url": "file:///srv/wheels/shoal-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/srv/wheels/shoal-0.1.0-py3-none-any.whl[spark]'",
        ),
    ],
)
def test_the_command_names_the_clone_or_the_wheel_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object], command: str
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(json.dumps(origin)))
    assert install_command("spark") == command
    error = missing_extra("Spark", "spark")
    assert isinstance(error, ConfigError)
    assert str(error) == f"Spark is not installed; run: {command}"


@pytest.mark.parametrize("origin", [None, "", "not JSON", '{"url": "https://somewhere/shoal.whl"}'])
def test_who_came_by_it_otherwise_reads_both_ways(
    monkeypatch: pytest.MonkeyPatch, origin: str | None
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    said = install_command("draw")
    assert "pip install -e '.[draw]'" in said
    assert ".whl[draw]'" in said


def test_a_program_that_was_never_installed_reads_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> object:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert "in a clone of Shoal" in install_command("arrow")


def test_nothing_tells_people_to_install_shoal_from_an_index() -> None:
    """The name there is not ours: whoever follows such a hint gets somebody else's program."""
    by_name = re.compile(r"(?:pip|uv|uvx|pipx|poetry)(?: \w+)* '?\"?shoal(?:\[|'|\"|`|\s|$)(?!-)")
    places = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*"),
        ROOT / "README.md",
    ]
    for path in places:
        if path.is_file() and path.suffix in (".py", ".md", ".yml", ".toml", ".ipynb"):
            for line in path.read_text(encoding="utf-8").splitlines():
                assert not by_name.search(line), f"{path.relative_to(ROOT)}: {line.strip()}"
