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
from operator import sub
from pathlib import Path

from PIL import Image
from tests.browser.chromium import Browser, browser

from shoal.cli.ui_demo import demo_cluster
from shoal.client.admin import Admin
from shoal.web.cluster_watch import ClusterWatch
from shoal.web.server import WebServer, WebSettings

PICTURES = Path(__file__).resolve().parent / "pictures"
WIDTH, HEIGHT = 1280, 820
HEIGHT_MAX = 2200
COLORS, OFTEN, ALIKE = 144, 64, 12
LIFE_S, SETTLED_S = 120, 1.5
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
LAST = {
    "fleet": ("tr:has(.name)", 99, 32),
    "group": ("main > section", 3, 8),
    "rebalances": (".feed .line", 9, 0),
    "topics": ("main > section", 1, 18),
    "topic": ("details.record", 4, 0),
    "what-if": ("main > *", 99, 18),
    "reset": ("main > *", 99, 18),
    "lab": ("main > *", 99, 18),
}
"""Where a picture ends: so many pixels below one of these, counted from the first."""


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
    time.sleep(SETTLED_S)


def tall(name: str, one: Browser) -> int:
    """How much of a page is worth a picture."""
    selector, count, margin = LAST[name]
    bottom = one.run(
        "const last = [...document.querySelectorAll(arguments[0])].slice(0, arguments[1]).at(-1);"
        "return last.getBoundingClientRect().bottom + scrollY",
        selector,
        count,
    )
    return min(HEIGHT_MAX, int(bottom) + margin)


def kept(picture: bytes, path: Path) -> None:
    """As few bytes as the picture needs: what there is most of keeps its colour, and so does what
    is small and matters, a mark or a dot."""
    image = Image.open(BytesIO(picture)).convert("RGB")
    counted = image.getcolors(image.width * image.height) or []
    often = [color for _, color in sorted(counted, key=lambda one: -one[0])[:OFTEN]]
    apart = image.quantize(COLORS, Image.Quantize.MAXCOVERAGE).getpalette() or []
    chosen: list[tuple[int, ...]] = []
    for color in (*often, *zip(*[iter(apart)] * 3, strict=True)):
        if all(sum(map(abs, map(sub, color, one))) > ALIKE for one in chosen):
            chosen.append(color)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for color in chosen[:COLORS] for part in color])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def pictures(server: WebServer, scheme: str, names: Callable[[str], str], *, width: int) -> None:
    """Every page, drawn at this width."""
    with browser(width, HEIGHT, scheme=scheme) as one:
        one.open(server.url)
        one.wait_for("billing")
        for name, path in PAGES.items():
            one.open(server.url.split("#")[0].rstrip("/") + path)
            one.wait(lambda: len(one.text()) > 60 and "running…" not in one.text(), name)
            prepare(name, one)
            one.resize(width, tall(name, one))
            time.sleep(SETTLED_S)
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
            time.sleep(SETTLED_S)
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
