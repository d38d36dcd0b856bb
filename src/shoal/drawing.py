"""A small canvas: rectangles, lines and text, written as SVG or PNG. Pure: values in, bytes out.

Planner, lab, fleet reports and the demo draw the same few shapes; this is all they need. SVG needs
nothing but this file, PNG needs Pillow (extra: draw).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal

from shoal.errors import missing_extra

# Colours that stay apart for readers who see red and green alike (after Okabe and Ito).
COLORS: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#7f5fbf",
    "#8c6d4f",
    "#5b8c5a",
)
INK: Final = "#222222"
FAINT: Final = "#cccccc"
PAPER: Final = "#ffffff"

Anchor = Literal["start", "middle", "end"]


def color_of(index: int) -> str:
    """A colour for the n-th thing; repeats after ten."""
    return COLORS[index % len(COLORS)]


def ink_on(fill: str) -> str:
    """Letters that can be read on a colour: white ones are lost on yellow, orange and pale blue."""
    parts = [int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 else PAPER


@dataclass(frozen=True, slots=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    points: tuple[tuple[float, float], ...]
    color: str
    width: float
    dashed: bool


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str
    size: float
    color: str
    anchor: Anchor


@dataclass(slots=True)
class Canvas:
    """Shapes in the order they are drawn, on paper of ``width`` by ``height``."""

    width: float
    height: float
    shapes: list[Rectangle | Line | Label] = field(default_factory=list)

    def rectangle(
        self, x: float, y: float, width: float, height: float, fill: str, *, title: str = ""
    ) -> None:
        """A filled rectangle; ``title`` shows when a browser points at it."""
        self.shapes.append(Rectangle(x, y, width, height, fill, title))

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str = INK,
        *,
        width: float = 1,
        dashed: bool = False,
    ) -> None:
        """A line through ``points``."""
        self.shapes.append(Line(tuple(points), color, width, dashed))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        color: str = INK,
        anchor: Anchor = "start",
    ) -> None:
        """Text whose base line starts (or is centred, or ends) at ``x, y``."""
        self.shapes.append(Label(x, y, text, size, color, anchor))

    def to_svg(self) -> str:
        """The picture as an SVG document."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"'
            f' width="{self.width:g}" height="{self.height:g}"'
            ' font-family="system-ui, sans-serif">',
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *(_svg(shape) for shape in self.shapes),
            "</svg>\n",
        ]
        return "\n".join(parts)

    def to_png(self, *, scale: float = 2) -> bytes:
        """The picture as a PNG file.

        Raises:
            ConfigError: Pillow is not installed; says what to install.
        """
        try:
            from PIL import Image, ImageDraw
        except ImportError:
            raise missing_extra("Pillow, which writes PNG files,", "draw") from None
        image = Image.new("RGB", (int(self.width * scale), int(self.height * scale)), PAPER)
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            _paint(pen, shape, scale)
        out = io.BytesIO()
        image.save(out, "PNG", optimize=True)
        return out.getvalue()


def _svg(shape: Rectangle | Line | Label) -> str:
    if isinstance(shape, Rectangle):
        title = f"<title>{escape(shape.title)}</title>" if shape.title else ""
        return (
            f'<rect x="{shape.x:.2f}" y="{shape.y:.2f}" width="{max(0.0, shape.width):.2f}"'
            f' height="{max(0.0, shape.height):.2f}" fill="{shape.fill}">{title}</rect>'
        )
    if isinstance(shape, Line):
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
        dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
        return (
            f'<polyline points="{points}" fill="none" stroke="{shape.color}"'
            f' stroke-width="{shape.width:g}"{dashes}/>'
        )
    return (
        f'<text x="{shape.x:.2f}" y="{shape.y:.2f}" font-size="{shape.size:g}"'
        f' fill="{shape.color}" text-anchor="{shape.anchor}">{escape(shape.text)}</text>'
    )


def _paint(pen: Any, shape: Rectangle | Line | Label, scale: float) -> None:
    from PIL import ImageFont

    if isinstance(shape, Rectangle):
        right, bottom = shape.x + max(0.0, shape.width), shape.y + max(0.0, shape.height)
        box = [shape.x * scale, shape.y * scale, right * scale, bottom * scale]
        pen.rectangle(box, fill=shape.fill)
    elif isinstance(shape, Line):
        points = [(x * scale, y * scale) for x, y in shape.points]
        pen.line(points, fill=shape.color, width=max(1, round(shape.width * scale)))
    else:
        font = ImageFont.load_default(shape.size * scale)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        where = (shape.x * scale, shape.y * scale)
        pen.text(where, shape.text, fill=shape.color, font=font, anchor=anchor)
