"""The documentation site in a real browser: nothing is wider than a phone, cut off or missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs.screenshots import ROOT, browser, look, pages_of, served

from tests.peers import need
from tests.peers.cache import program

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PHONE, DESK = 360, 1440
ADVICE = "apt install chromium chromium-driver, for the pages of the documentation"
# A row of pixels that is neither on the page nor reached by moving a table or a picture.
CUT_OFF = """
const width = arguments[0], found = [];
for (const one of document.querySelectorAll("article *")) {
  if (one.getBoundingClientRect().right <= width + 1) continue;
  let around = one.parentElement;
  while (around && getComputedStyle(around).overflowX === "visible") around = around.parentElement;
  if (!around || getComputedStyle(around).overflowX !== "auto") found.push(one.outerHTML);
}
return found;
"""
# Names in a table that are cut into two lines, though nothing in them allows that.
BROKEN = r"""
const found = [], range = document.createRange();
for (const code of document.querySelectorAll("td code, th code")) {
  const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    for (const word of texts.currentNode.data.matchAll(/\w{2,}/g)) {
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) found.push(word[0]);
    }
}
return found;
"""
# Pictures whose letters are smaller than anybody reads: they are drawn for 800 pixels and more.
PICTURES = """
return [...document.querySelectorAll("article p > img:not([width])")]
  .filter((image) => image.clientWidth < 600).map((image) => image.src);
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    need(lambda: program("chromium", ADVICE))
    need(lambda: program("chromedriver", ADVICE))
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the pages as they are, without making those that are generated again."""
    project = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", project)
    shutil.copytree(ROOT / "docs", project / "docs")
    zensical = Path(sys.executable).parent / "zensical"
    build = [str(zensical), "build", "-f", "mkdocs.yml"]
    done = subprocess.run(build, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "site"


def test_every_page_can_be_read_on_a_phone(driver: Chrome, site: Path) -> None:
    pages = pages_of(site)
    assert len(pages) > 50
    wrong = {}
    with served(site) as address:
        for page in pages:
            faults = look(driver, f"{address}/{page}", PHONE, "dark")
            faults += [f"cut off: {one}" for one in driver.execute_script(CUT_OFF, PHONE)]
            faults += [f"broken: {one}" for one in driver.execute_script(BROKEN)]
            faults += [f"too small: {one}" for one in driver.execute_script(PICTURES)]
            if faults:
                wrong[page] = faults
    assert wrong == {}


def test_tables_and_help_fit_a_desk(driver: Chrome, site: Path) -> None:
    with served(site) as address:
        for page in ("compatibility", "conformance", "reference/cli", "reference/errors"):
            assert look(driver, f"{address}/{page}.html", DESK, "light") == []
            hidden = driver.execute_script(
                "return [...document.querySelectorAll('.md-typeset__scrollwrap, pre > code')]"
                ".map((one) => one.scrollWidth - one.clientWidth)"
            )
            assert max(hidden) <= 0, page


def test_a_page_that_is_too_wide_is_noticed(driver: Chrome, tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text(
        '<!doctype html><meta name="viewport" content="width=device-width,initial-scale=1">'
        '<body data-md-color-scheme="default"><p style="width: 800px">wide<img src="no.png">'
    )
    with served(tmp_path) as address:
        faults = look(driver, f"{address}/wide.html", PHONE, "dark")
    assert faults[0].startswith("scrolls sideways by 4")
    assert faults[1] == f"no picture at {address}/no.png"
    assert faults[2] == "its colours are default"
    assert "404" in faults[3]
