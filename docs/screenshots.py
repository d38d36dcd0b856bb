"""Screenshots of every page of the site, as people see it: ``python -m docs.screenshots``.

Each page in a real Chromium, 360 and 1,440 pixels wide, light and dark, into ``screenshots/``. A
page that has to be scrolled sideways, a picture that did not load, the wrong colours and an error
on the console are reported, and end the program with 1. ``make docs`` first.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
WIDTHS = (360, 1440)
SCHEMES = ("light", "dark")
HEIGHT_MAX = 6000
# Not window.innerWidth: a phone makes that as wide as what it has to show.
FAULTS = """
const [width, scheme] = arguments;
const wide = document.documentElement.scrollWidth - width;
const found = wide > 0 ? [`scrolls sideways by ${wide} pixels`] : [];
for (const image of document.images)
  if (image.complete && !image.naturalWidth) found.push(`no picture at ${image.src}`);
const shown = document.body.dataset.mdColorScheme;
if (shown && (shown === "slate") !== (scheme === "dark")) found.push(`its colours are ${shown}`);
return found;
"""

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SETTLED = """
const done = arguments[0];
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 300)));
"""


@contextmanager
def browser() -> Iterator[Chrome]:
    """A headless Chromium of this machine."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    # A page remembers the colours it was seen in, and would begin with them.
    forget = {"source": "if (location.protocol !== 'about:') localStorage.clear()"}
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", forget)
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site over HTTP: scripts of a page that is only a file do not run."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def look(driver: Chrome, address: str, width: int, scheme: str) -> list[str]:
    """Open a page; returns what is wrong with it at this width."""
    # The page before this one would notice the change, and write its colours down.
    driver.get("about:blank")
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    _size(driver, width, 900)
    driver.get(address)
    faults: list[str] = driver.execute_script(FAULTS, width, scheme)
    told: Any = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return faults + [entry["message"] for entry in told]


def shoot(driver: Chrome, width: int, target: Path) -> None:
    """Write a picture of the whole page, or of as much as anybody looks at."""
    height: Any = driver.execute_script("return document.documentElement.scrollHeight")
    _size(driver, width, min(int(height), HEIGHT_MAX))
    driver.execute_async_script(SETTLED)
    target.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(target))


def _size(driver: Chrome, width: int, height: int) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def pages_of(site: Path) -> list[str]:
    """The paths of its pages."""
    return sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))


def main() -> int:
    """Every page whose name contains the words given, or all."""
    parser = argparse.ArgumentParser(description="Screenshots of the documentation site.")
    parser.add_argument("words", nargs="*", help="only pages whose path contains one of these")
    parser.add_argument("--output", type=Path, default=ROOT / "screenshots")
    chosen = parser.parse_args()
    pages = [
        page for page in pages_of(SITE) if not chosen.words or any(w in page for w in chosen.words)
    ]
    if not pages:
        sys.exit("no pages in site/; run: make docs")
    bad = 0
    with served(SITE) as site, browser() as driver:
        for page, width, scheme in itertools.product(pages, WIDTHS, SCHEMES):
            for fault in look(driver, f"{site}/{page}", width, scheme):
                print(f"{page} at {width} pixels, {scheme}: {fault}")
                bad += 1
            name = page.removesuffix(".html").replace("/", "-")
            shoot(driver, width, chosen.output / f"{name}-{width}-{scheme}.png")
    print(f"{len(pages) * len(WIDTHS) * len(SCHEMES)} screenshots in {chosen.output}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
