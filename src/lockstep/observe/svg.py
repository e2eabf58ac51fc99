"""Charts as SVG, drawn here: a report page needs two kinds of them and no plotting library to be installed.

A :class:`Drawing` collects elements; a :class:`Panel` is a rectangle of it with a scale for each direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

INK = "#111827"
QUIET = "#6b7280"
FAINT = "#e5e7eb"
TEXT_PX = 12
TICKS_MAX = 10


@dataclass
class Drawing:
    """A picture of this size, in pixels.

    >>> drawing = Drawing(100, 50)
    >>> drawing.text(10, 20, "a < b")
    >>> drawing.svg().splitlines()[-2]
    '<text x="10" y="20" fill="#111827" font-size="12" text-anchor="start">a &lt; b</text>'
    """

    width: float
    height: float
    elements: list[str] = field(default_factory=list)

    def add(self, name: str, text: str = "", **attributes: object) -> None:
        """An element; ``stroke_width`` becomes ``stroke-width``, numbers are rounded to a tenth of a pixel."""
        said = " ".join(f'{key.replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
        self.elements.append(f"<{name} {said}>{escape(text)}</{name}>" if text else f"<{name} {said}/>")

    def text(
        self, x: float, y: float, text: str, colour: str = INK, *, anchor: str = "start", bold: bool = False
    ) -> None:
        """A line of text; ``anchor`` is where ``x`` is in it: "start", "middle" or "end"."""
        more = {"font_weight": "bold"} if bold else {}
        self.add("text", text, x=x, y=y, fill=colour, font_size=TEXT_PX, text_anchor=anchor, **more)

    def svg(self) -> str:
        """The whole picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_value(self.width)} {_value(self.height)}" '
            'font-family="system-ui, sans-serif">'
        )
        ground = f'<rect width="{_value(self.width)}" height="{_value(self.height)}" fill="white"/>'
        return "\n".join([head, ground, *self.elements, "</svg>"])


@dataclass(frozen=True)
class Scale:
    """From values to pixels, in proportion or by their logarithm.

    >>> Scale(0, 10, 100, 200).px(5), Scale(0.1, 10, 0, 100, log=True).px(1.0)
    (150.0, 50.0)
    """

    low: float
    high: float
    first_px: float
    last_px: float
    log: bool = False

    def px(self, value: float) -> float:
        """Where a value is; what lies outside is drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / ((self.high - self.low) or 1)
        return self.first_px + share * (self.last_px - self.first_px)

    def ticks(self) -> list[float]:
        """Round values to write at the axis, at most ten.

        >>> Scale(-8, 57, 0, 1).ticks(), Scale(0.02, 30, 0, 1, log=True).ticks()
        ([0, 10, 20, 30, 40, 50], [0.1, 1, 10])
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power if power < 0 else 10**power for power in range(first, last + 1)]
        rough = (self.high - self.low) / TICKS_MAX or 1
        power = 10 ** math.floor(math.log10(rough))
        step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough)
        first = math.ceil(self.low / step)
        ticks = [round(step * number, 9) for number in range(first, math.floor(self.high / step) + 1)]
        return [int(tick) if tick == int(tick) else tick for tick in ticks]


@dataclass(frozen=True)
class Panel:
    """A part of a drawing with two scales: what is drawn into it is given in values."""

    drawing: Drawing
    x: Scale
    y: Scale

    def curve(self, points: Sequence[tuple[float, float]], colour: str, *, filled: bool = False) -> None:
        """A line through the points, with the area below it shaded if ``filled``."""
        if not points:
            return
        at = [f"{_value(self.x.px(x))},{_value(self.y.px(y))}" for x, y in points]
        if filled:
            ground = _value(self.y.first_px)
            edge = [f"{_value(self.x.px(points[0][0]))},{ground}", *at, f"{_value(self.x.px(points[-1][0]))},{ground}"]
            self.drawing.add("polygon", points=" ".join(edge), fill=colour, fill_opacity=0.12)
        self.drawing.add("polyline", points=" ".join(at), fill="none", stroke=colour, stroke_width=1.6)

    def across(self, y: float, colour: str = FAINT, dashes: str = "none") -> None:
        """A horizontal line through the whole panel."""
        at = self.y.px(y)
        self.drawing.add(
            "line", x1=self.x.first_px, x2=self.x.last_px, y1=at, y2=at, stroke=colour, stroke_dasharray=dashes
        )

    def down(self, x: float, colour: str = INK, dashes: str = "none") -> None:
        """A vertical line through the whole panel."""
        at = self.x.px(x)
        self.drawing.add(
            "line", x1=at, x2=at, y1=self.y.first_px, y2=self.y.last_px, stroke=colour, stroke_dasharray=dashes
        )

    def bar(self, x: float, end_x: float, y: float, colour: str, height_px: float = 13) -> None:
        """A horizontal bar in the middle of a lane."""
        left, right = self.x.px(x), self.x.px(end_x)
        top = self.y.px(y) - height_px / 2
        self.drawing.add("rect", x=left, y=top, width=max(1.0, right - left), height=height_px, fill=colour)

    def cross(self, x: float, y: float, colour: str = INK) -> None:
        """A cross at a point."""
        at_x, at_y = self.x.px(x), self.y.px(y)
        path = f"M{_value(at_x - 4)} {_value(at_y - 4)}l8 8m0 -8l-8 8"
        self.drawing.add("path", d=path, stroke=colour, stroke_width=2, fill="none")

    def shade(self, x: float, end_x: float, colour: str) -> None:
        """A tint over a span of the panel."""
        left, right = self.x.px(x), self.x.px(end_x)
        top, height = self.y.last_px, self.y.first_px - self.y.last_px
        self.drawing.add("rect", x=left, y=top, width=right - left, height=height, fill=colour, fill_opacity=0.08)

    def grid(self, label: Sequence[str]) -> None:
        """Lines at the ticks of the vertical scale, their values, and above them what is measured."""
        for tick in self.y.ticks():
            self.across(tick)
            self.drawing.text(self.x.first_px - 8, self.y.px(tick) + 4, f"{tick:g}", QUIET, anchor="end")
        for number, line in enumerate(label):
            self.drawing.text(8, self.y.last_px - 22 + 15 * number, line, QUIET)

    def foot(self, label: str) -> None:
        """The values of the horizontal scale below the panel, and what they are."""
        for tick in self.x.ticks():
            self.drawing.text(self.x.px(tick), self.y.first_px + 18, f"{tick:g}", QUIET, anchor="middle")
        middle = (self.x.first_px + self.x.last_px) / 2
        self.drawing.text(middle, self.y.first_px + 38, label, QUIET, anchor="middle")


def lanes(drawing: Drawing, x: Scale, names: Sequence[str], top_px: float, lane_px: float = 22) -> Panel:
    """A panel of one lane for each name, the first at the top: lane ``n`` is the value ``-n``."""
    bottom = top_px + lane_px * len(names)
    panel = Panel(drawing, x, Scale(0.5 - len(names), 0.5, bottom, top_px))
    for number, name in enumerate(names):
        drawing.text(x.first_px - 8, panel.y.px(-number) + 4, name, QUIET, anchor="end")
    return panel


def _value(value: object) -> str:
    return f"{round(value, 1):g}" if isinstance(value, int | float) else escape(str(value))
