"""The canvas: what is drawn is in the file, and hostile text stays text."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

from PIL import Image

from shoal.drawing import COLORS, INK, PAPER, Canvas, color_of, ink_on


def picture() -> Canvas:
    canvas = Canvas(100, 50)
    canvas.rectangle(10, 10, 20, 20, "#ff0000", title="a <b>")
    canvas.line([(0, 0), (50, 50)], "#00ff00", width=2, dashed=True)
    canvas.text(50, 25, "<script>&", size=10, anchor="middle")
    return canvas


def test_an_svg_is_a_document_with_every_shape() -> None:
    root = ET.fromstring(picture().to_svg())
    kinds = [child.tag.split("}")[1] for child in root]
    assert kinds == ["rect", "rect", "polyline", "text"]
    assert root[3].text == "<script>&"
    assert root[1][0].text == "a <b>"


def test_a_negative_size_is_drawn_as_nothing() -> None:
    canvas = Canvas(10, 10)
    canvas.rectangle(5, 5, -3, 2, "#000000")
    assert 'width="0.00"' in canvas.to_svg()


def test_a_png_has_the_same_shapes_at_scale() -> None:
    image = Image.open(io.BytesIO(picture().to_png(scale=2)))
    assert image.size == (200, 100)
    assert image.getpixel((50, 24)) == (255, 0, 0)
    assert image.getpixel((190, 5)) == (255, 255, 255)


def test_colours_repeat_after_the_last() -> None:
    assert color_of(len(COLORS)) == color_of(0)


def test_letters_are_dark_on_what_is_light() -> None:
    light = ["#e69f00", "#56b4e9", "#f0e442"]
    assert [color for color in COLORS if ink_on(color) == INK] == light
    assert ink_on("#0072b2") == ink_on(INK) == PAPER
