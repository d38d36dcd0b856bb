"""Every page of the docs can be reached by links from the home page, and every link has an end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
# Where somebody else's words stand, or a page of the site's own.
OUTSIDE = re.compile(r"[a-z]+:|#")


def links(page: Path) -> list[tuple[str, str]]:
    """The targets of a page's links: path and anchor."""
    text = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for target in LINK.findall(text):
        if target.startswith("#"):
            found.append((page.name, target[1:]))
        elif not OUTSIDE.match(target):
            path, _, anchor = target.partition("#")
            found.append((path, anchor))
    return found


def anchors(page: Path) -> set[str]:
    """The names that headings get."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading).lower()
        names.add(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain)).strip("-"))
    return names


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_of_a_page_has_an_end(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve()
        assert target.exists(), f"{page.relative_to(ROOT)} links to {path}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.relative_to(ROOT)} links to {path}#{anchor}"


def test_every_page_is_linked_from_another_one_and_reached_from_home() -> None:
    reached: set[Path] = set()
    todo = [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        todo += [
            target
            for path, _ in links(page)
            if (target := (page.parent / path).resolve()).is_relative_to(DOCS) and target.exists()
        ]
    # Decisions are read in their order, from the first.
    lonely = {
        str(page.relative_to(DOCS))
        for page in pages()
        if page not in reached and page.parent.name != "adr"
    }
    assert lonely == set()


def test_every_page_is_in_the_menu_or_belongs_to_the_decisions() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [
        name
        for page in pages()
        if page.parent.name != "adr" and (name := str(page.relative_to(DOCS))) not in menu
    ]
    assert missing == []


def test_every_picture_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in [*pages(), ROOT / "README.md"])
    text += (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    unused = [path.name for path in (DOCS / "pictures").iterdir() if path.name not in text]
    assert unused == []
