"""The files of the pages: small, their own, and parsed by nobody as HTML."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from posixpath import dirname, normpath

import pytest

from shoal.web.assets import PAGES, assets

FILES = assets()
OWN = {path: one for path, one in FILES.items() if "/vendor/" not in path}
SCRIPTS = {path: one.data.decode() for path, one in OWN.items() if path.endswith(".js")}

VENDORED = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("file", VENDORED)
def test_what_others_wrote_is_unchanged(file):
    data = (resources.files("shoal.web") / "static" / "vendor" / "uPlot-1.6.32" / file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == VENDORED[file]


def test_a_page_with_everything_is_small():
    files = {one.etag: len(one.data) for one in FILES.values()}
    assert sum(files.values()) < 150_000


@pytest.mark.parametrize("path", SCRIPTS)
def test_no_script_makes_html_or_code_of_text(path):
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|"
        r"DOMParser|createContextualFragment|javascript:"
    )
    assert re.search(sinks, SCRIPTS[path]) is None


@pytest.mark.parametrize("path", OWN)
def test_nothing_is_loaded_from_elsewhere(path):
    text = OWN[path].data.decode().replace("http://www.w3.org/2000/svg", "")
    assert re.search(r"https?://|//[a-z]+\.[a-z]", text) is None


def test_the_page_has_no_script_or_style_in_itself():
    text = FILES["/"].data.decode()
    assert re.search(r"<script(?![^>]*src=)|<style|style=|\son[a-z]+=", text) is None
    assert all(FILES[path] is FILES["/"] for path in PAGES)


def _imported(path: str) -> set[str]:
    """The scripts that one needs before it begins, its own among them."""
    found: set[str] = set()
    wanted = [path]
    while wanted:
        one = wanted.pop()
        if one not in found:
            found.add(one)
            names = re.findall(r'^import .* from "(.+)";$', SCRIPTS[one], re.MULTILINE)
            wanted += [normpath(f"{dirname(one)}/{name}") for name in names]
    return found


def test_the_first_page_asks_for_all_its_scripts_at_once():
    text = FILES["/"].data.decode()
    begun = set(re.findall(r'rel="modulepreload" href="([^"]+)"', text))
    begun |= set(re.findall(r'<script type="module" src="([^"]+)"', text))
    assert begun == _imported("/static/pages/fleet.js") | _imported("/static/app.js")


def test_no_page_waits_for_the_library_of_charts():
    scripts = re.findall(r"<script [^>]*>", FILES["/"].data.decode())
    assert all('type="module"' in one or " async" in one for one in scripts)


def _light(color: str) -> float:
    """Relative luminance, as WCAG has it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_name_can_be_read_on_every_colour_of_the_strip(scheme):
    # axe does not look into pictures.
    text = FILES["/static/style.css"].data.decode()
    colors = re.findall(r"--(c[0-9]): (#[0-9a-f]{6});", text)
    by_scheme = {"light": dict(colors[:10]), "dark": dict(colors[10:])}
    inks = re.findall(r"\.strip \.in \{ fill: (#[0-9a-f]+);", text)
    ink = {"light": inks[0].replace("#fff", "#ffffff"), "dark": inks[1]}[scheme]
    assert len(by_scheme[scheme]) == 10
    for name, color in by_scheme[scheme].items():
        low, high = sorted((_light(ink), _light(color)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_only_known_kinds_of_files_are_served():
    assert {path.rpartition(".")[2] for path in FILES if "." in path} == {"js", "css", "svg"}
