"""Every code block of README and docs runs; links lead somewhere; generated pages are current.

A block that cannot run is preceded by ``<!-- not run: reason -->``. The blocks of a page run in
their order, in one directory and against one broker made for the page (``localhost:9092`` becomes
its address), so that a page can build something up. Python blocks with tests are run by pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.testing.broker import Broker
from tests.peers import need
from tests.peers.jars import java

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "DESIGN.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<kind>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUNNABLE = ("python", "sh")


@dataclass(frozen=True)
class Block:
    page: Path
    kind: str
    code: str
    reason: str | None

    @property
    def needs_spark(self) -> bool:
        return "spark" in self.code.lower()


def blocks(page: Path) -> list[Block]:
    found = [
        Block(page, match["kind"], match["code"], match["reason"])
        for match in BLOCK.finditer(page.read_text())
    ]
    return [block for block in found if block.kind in RUNNABLE and block.reason is None]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def environment(broker: Broker, home: Path) -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SHOAL_BOOTSTRAP": broker.bootstrap_servers,
    }


def run(command: list[str], broker: Broker, directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment(broker, directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    if any(block.needs_spark for block in found):
        need(java)
    with Broker(topics={"orders": 3}) as broker:
        for number, (kind, code) in enumerate(joined(found)):
            code = code.replace("localhost:9092", broker.bootstrap_servers)
            if kind == "sh":
                run(["bash", "-euc", code], broker, tmp_path)
            elif kind == "test":
                (tmp_path / f"test_page_{number}.py").write_text(code)
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
                run([*command, f"test_page_{number}.py"], broker, tmp_path)
            else:
                (tmp_path / f"page_{number}.py").write_text(code)
                run([sys.executable, f"page_{number}.py"], broker, tmp_path)


def joined(found: list[Block]) -> list[tuple[str, str]]:
    """What runs one after the other; Python blocks that follow each other are one program."""
    parts: list[tuple[str, str]] = []
    for block in found:
        is_test = block.kind == "python" and re.search(r"^def test_", block.code, re.MULTILINE)
        kind = "test" if is_test else block.kind
        if parts and kind == parts[-1][0] == "python":
            parts[-1] = (kind, f"{parts[-1][1]}\n\n{block.code}")
        else:
            parts.append((kind, block.code))
    return parts


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    """What the site makes of a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", one) for one in words}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_into_a_page_meet_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", text):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_that_does_not_run_says_why(page: Path) -> None:
    for match in BLOCK.finditer(page.read_text()):
        if match["reason"] is not None:
            assert len(match["reason"].split()) >= 3


def test_the_file_map_is_current() -> None:
    from docs.generate_file_map import TARGET, page

    assert TARGET.read_text() == page(), "run: python -m docs.generate_file_map"


def test_the_benchmarks_page_shows_the_kept_results() -> None:
    from docs.generate_benchmarks import TARGET, page

    assert TARGET.read_text() == page(), "run: python -m docs.generate_benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["errors.md", "settings.md", "python.md", "cli.md"])
def test_the_reference_says_what_the_code_says(name: str) -> None:
    from docs.generate_reference import PAGES as GENERATED
    from docs.generate_reference import TARGET

    assert (TARGET / name).read_text() == GENERATED[name](), (
        "run: python -m docs.generate_reference"
    )


def test_every_option_of_the_spark_source_and_sink_is_described() -> None:
    from shoal.spark.options import _SINK_NAMES, _SOURCE_NAMES

    described = (ROOT / "docs" / "spark.md").read_text().replace("fetchOffset.*", "fetchOffset.")
    for option in (*_SOURCE_NAMES, *_SINK_NAMES):
        start = "fetchOffset." if option.startswith("fetchOffset.") else option
        assert start in described, option


def test_every_file_that_is_shown_is_one_that_is_taken() -> None:
    """A file of settings is the broker's, or it holds profiles of the command line."""
    import tomllib

    from shoal.broker.config import from_toml
    from shoal.cli.connecting import _FROM_PROFILE

    shown = [match for page in PAGES for match in BLOCK.finditer(page.read_text())]
    files = [match["code"] for match in shown if match["kind"] == "toml"]
    assert files
    for text in files:
        found = tomllib.loads(text)
        if {"listener", "data_dir", "authorization"} & set(found):
            from_toml(text)
        else:
            assert all(set(profile) <= set(_FROM_PROFILE) for profile in found.values()), text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_says_what_it_is_in(page: Path) -> None:
    """One without a language would not be run, and nobody would notice."""
    fences = re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)
    assert all(opening for opening in fences[::2]), name(page)
