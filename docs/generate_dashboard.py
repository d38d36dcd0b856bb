"""Takes the pictures of the dashboard: ``python -m docs.generate_dashboard`` (needs Chromium).

Every page, light and dark, of ``shoal ui --demo`` after two minutes. Looked at by a person before
they are kept: no test compares pixels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from tests.browser.chromium import Browser, browser

from shoal.cli.ui_demo import demo_cluster
from shoal.client.admin import Admin
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.server import WebServer, WebSettings

PICTURES = Path(__file__).resolve().parent / "pictures"
WIDTH, HEIGHT = 1280, 820
LIFE_S = 120
PAGES = {
    "fleet": "/",
    "group": "/group?group=billing",
    "rebalances": "/rebalances",
    "topics": "/topics",
    "topic": "/topic?topic=orders",
    "what-if": "/what-if?group=billing",
    "reset": "/reset?group=nightly-export",
    "lab": "/lab?scenario=member-crashes",
}


@contextmanager
def demo() -> Iterator[tuple[WebServer, ClusterWatch]]:
    """The demo's dashboard, once there is something to see."""
    with demo_cluster() as settings, Admin(**settings) as admin:
        watch = ClusterWatch(settings["bootstrap_servers"], admin, settings, every_s=2.0)
        server = WebServer({watch.name: watch}, WebSettings(allow_writes=True, is_demo=True))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        time.sleep(LIFE_S)
        try:
            yield server, watch
        finally:
            server.stop()
            thread.join(30)


def prepare(name: str, one: Browser) -> None:
    """What is clicked before a picture is taken."""
    if name == "group":
        one.run(
            "const all = document.querySelectorAll('.strip .event');"
            "(all[2] || all[0])?.dispatchEvent(new MouseEvent('click'))"
        )
    elif name == "topic":
        one.click("details.record summary")
    elif name == "reset":
        one.run("document.querySelector('#to').value = 'latest'")
        one.click("form button.main")
        one.wait_for("Type the name")
    elif name == "lab":
        one.wait_for("Message by message")
        for _ in range(12):
            one.click("main button.main")
    time.sleep(1.5)


def tall(name: str) -> int:
    """How much of a page is worth a picture."""
    return {
        "fleet": 560,
        "group": 1640,
        "rebalances": 560,
        "topics": 420,
        "reset": 600,
        "lab": 1800,
    }.get(name, HEIGHT)


def kept(picture: bytes, path: Path) -> None:
    """As few bytes as the picture needs."""
    image = Image.open(BytesIO(picture)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def pictures(server: WebServer, scheme: str, names: Callable[[str], str], *, width: int) -> None:
    """Every page, drawn at this width."""
    with browser(width, HEIGHT, scheme=scheme) as one:
        one.open(server.url)
        one.wait_for("billing")
        for name, path in PAGES.items():
            one.open(server.url.split("#")[0].rstrip("/") + path)
            one.wait(lambda: len(one.text()) > 60 and "running…" not in one.text(), name)
            one.resize(width, tall(name))
            prepare(name, one)
            kept(one.driver.get_screenshot_as_png(), PICTURES / names(name))


def phone(server: WebServer) -> None:
    """The Fleet and a group, as wide as a hand."""
    with browser(390, 780) as one:
        one.open(server.url)
        one.wait_for("billing")
        shots = []
        for name in ("fleet", "group"):
            one.open(server.url.split("#")[0].rstrip("/") + PAGES[name])
            one.wait_for("billing")
            time.sleep(1.5)
            shots.append(Image.open(BytesIO(one.driver.get_screenshot_as_png())))
        both = Image.new("RGB", (390 * 2 + 20, 780), "#c9ced6")
        for number, shot in enumerate(shots):
            both.paste(shot, (number * 410, 0))
        data = BytesIO()
        both.save(data, "PNG")
        kept(data.getvalue(), PICTURES / "dashboard-phone.png")


def main() -> None:
    with demo() as (server, _):
        phone(server)
        for scheme in ("light", "dark"):
            end = "" if scheme == "light" else "-dark"
            pictures(
                server,
                scheme,
                lambda name, end=end: f"dashboard-{name}{end}.png",  # type: ignore[misc]
                width=WIDTH,
            )


if __name__ == "__main__":
    main()
