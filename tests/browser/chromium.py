"""Debian's Chromium, driven by Selenium, and what must hold on every page."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.peers import need
from tests.peers.cache import program

PATIENCE_S = 60
ADVICE = "apt install chromium chromium-driver, for the pages of the dashboard"


class Browser:
    """One browser; ``tab`` is what it shows."""

    def __init__(self, driver: webdriver.Chrome, scheme: str = "light") -> None:
        self.driver = driver
        self.scheme = scheme

    def open(self, url: str) -> None:
        self.driver.get(url)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def media(self, name: str) -> None:
        """As on ``print``, or on a screen again."""
        features = [{"name": "prefers-color-scheme", "value": self.scheme}]
        media = {"media": name, "features": features}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def print(self) -> bytes:
        """This page as a PDF."""
        found = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        return base64.b64decode(found["data"])

    def path(self) -> str:
        return str(self.run("return location.pathname + location.search"))

    def run(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def text(self, selector: str = "main") -> str:
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText || ''", selector)
        )

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        self.wait(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector), selector)
        self.run("document.querySelector(arguments[0]).click()", selector)

    def type(self, selector: str, text: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(text)

    def press(self, *keys: str) -> None:
        """To whatever has the focus: a page may draw it again meanwhile."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def wait(self, condition: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if met := condition():
                    return met
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.text('body')}"
            time.sleep(0.05)

    def wait_for(self, text: str, selector: str = "main") -> None:
        self.wait(lambda: text in self.text(selector), text)

    def problems(self) -> list[str]:
        """What the console said since the last call: violations of the policy are in it, too."""
        return [one["message"] for one in self.driver.get_log("browser")]

    def requested(self) -> set[str]:
        """The origins of everything this browser asked for since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if url.startswith(("http", "ws", "ftp")):
                    found.add("/".join(url.split("/")[:3]))
        return found

    def axe(self) -> list[str]:
        """Serious findings of axe on this page."""
        import axe_core_python

        script = next(Path(axe_core_python.__file__).parent.rglob("axe.min.js"))
        # As a debugger, not as the page: the policy allows no script of strangers.
        source = script.read_text(encoding="utf-8") + ";undefined"
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": source})
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations.map("
            "v => [v.impact, v.id, v.nodes.length + ' ' + v.nodes[0].html + ' ' "
            "+ v.nodes[0].failureSummary])))"
        )
        return [" ".join(one) for one in found if one[0] in ("serious", "critical")]


@contextmanager
def browser(
    width: int = 1280, height: int = 860, *, scheme: str = "light", public_name: str = ""
) -> Iterator[Browser]:
    """A browser without a window. ``public_name`` is this machine, whose certificate is believed
    though its authority is not known."""
    chromium = need(lambda: program("chromium", ADVICE))
    chromedriver = need(lambda: program("chromedriver", ADVICE))
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--disable-background-networking",
        "--no-first-run",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    if public_name:
        options.add_argument(f"--host-resolver-rules=MAP {public_name} 127.0.0.1")
        options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        driver.set_script_timeout(PATIENCE_S)
        one = Browser(driver, scheme)
        one.media("")
        one.resize(width, height)
        yield one
    finally:
        driver.quit()


__all__ = ["Browser", "Keys", "browser"]
