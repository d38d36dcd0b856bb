"""The reference shows docstrings as Markdown: nothing of their own notation is left over."""

from __future__ import annotations

from docs.docstrings import markdown, signature
from docs.generate_reference import TARGET


def test_an_example_is_a_block_whether_or_not_it_kept_its_indent() -> None:
    first_line = "Set one::\n\nadmin.set(1)\nadmin.set(2)\n\nAfterwards."
    later = "Sets.\n\nLike this::\n\n    with a:\n        b()\n\nAfterwards."
    assert markdown(first_line) == (
        "Set one:\n\n```py\nadmin.set(1)\nadmin.set(2)\n```\n\nAfterwards."
    )
    assert markdown(later) == ("Sets.\n\nLike this:\n\n```py\nwith a:\n    b()\n```\n\nAfterwards.")


def test_sections_are_lists_with_whatever_an_entry_holds() -> None:
    text = "Do it.\n\nArgs:\n    one: first: of\n        two lines.\n"
    text += "    two: see::\n\n            x()\n"
    text += "\nRaises:\n    ValueError: no.\n"
    assert markdown(text) == (
        "Do it.\n\nArgs:\n\n-   `one`: first: of\n    two lines.\n-   `two`: see:\n\n"
        "    ```py\n    x()\n    ```\n\nRaises:\n\n-   `ValueError`: no."
    )


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    assert signature("f", "(a: int) -> None") == "```py\nf(a: int) -> None\n```"
    long = "(pairs: dict[str, tuple[int, str]], *, "
    long += "time_of_the_whole_call: float | None = None) -> int"
    assert signature("f", long) == (
        "```py\nf(\n    pairs: dict[str, tuple[int, str]],\n    *,\n"
        "    time_of_the_whole_call: float | None = None,\n) -> int\n```"
    )


def test_nothing_of_it_is_left_in_the_reference() -> None:
    for name in ("python.md", "settings.md"):
        text = (TARGET / name).read_text()
        assert "::\n" not in text
        assert "\\|" not in text
