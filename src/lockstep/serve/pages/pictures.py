"""Pictures inside pages, as SVG whose colours come from the style sheet, so that they are dark where the page is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from lockstep.clock import US_PER_S
from lockstep.observe.svg import Scale
from lockstep.serve.looks.agreement import MEANINGS, Agreement, Cell, Row
from lockstep.serve.looks.lateness import BUCKET_S, WINDOW_S, Mark, MarkKind, Point
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import milliseconds

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 960, 64, 952, 22, 210, 236
_GAP_US = 3 * BUCKET_S * US_PER_S
"""A curve is broken where nothing was published for longer than this."""
SHOWN_S_MIN = 180
_HEADS: dict[MarkKind, str] = {
    "loss": "m-5 -6h10l-5 9z",
    "operation": "m0 -7l5 5l-5 5l-5 -5z",
    "decision": "m-4 -6h8v8h-8z",
}
"""A shape for each kind of mark: what is told by colour is told by form too."""
CELL_HEIGHT = 20
_BARS: dict[Cell, tuple[tuple[float, float], ...]] = {
    "published": ((10, 20),),
    "equal": ((14, 12),),
    "shadow": ((16, 8),),
    "late": ((19, 2),),
    "absent": ((10, 2),),
    "different": ((4, 8), (16, 8)),
    "forgotten": (),
}
"""(middle, height) of the bars of a cell, from the top: each kind has a form of its own."""


def lateness(points: Sequence[Point], marks: Sequence[Mark], now_us: int) -> Html:
    """p50 and p99 over the time that is shown, with what happened marked."""
    x = Scale(now_us - shown_s(points, now_us) * US_PER_S, now_us, _LEFT, _RIGHT)
    y = _latency_scale(points)
    body: list[Child] = [_latency_axis(y), _time_axis(x, now_us), _marks(marks, x)]
    for name in ("p99_ms", "p50_ms"):
        path = _curve([(x.px(one.at_us), y.px(getattr(one, name)), one.at_us) for one in points])
        body.append(el("path", d=path, class_=f"curve {name[:3]}"))
    label = _lateness_text(points, marks)
    svg = el("svg", el("title", label), body, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", class_="lateness")
    return el("div", svg, class_="wide-picture", tabindex=0, role="region", aria_label="How late results were")


def shown_s(points: Sequence[Point], now_us: int) -> int:
    """How far back the picture goes: a young job does not fill a quarter of an hour.

    >>> shown_s([], 0), shown_s([Point(0, 1.0, 1.0)], 250 * US_PER_S), shown_s([Point(0, 1.0, 1.0)], 9_000 * US_PER_S)
    (180, 300, 900)
    """
    age_s = (now_us - points[0].at_us) / US_PER_S if points else 0
    return min(WINDOW_S, max(SHOWN_S_MIN, 60 * math.ceil(age_s / 60)))


def _lateness_text(points: Sequence[Point], marks: Sequence[Mark]) -> str:
    if not points:
        return "Nothing with records was published lately."
    worst, newest = max(points, key=lambda one: one.p99_ms), points[-1]
    return (
        f"Latency: newest p50 {milliseconds(newest.p50_ms)}, p99 {milliseconds(newest.p99_ms)}; "
        f"the worst p99 was {milliseconds(worst.p99_ms)}; {len(marks)} things happened."
    )


def _latency_scale(points: Sequence[Point]) -> Scale:
    low = min((one.p50_ms for one in points), default=100.0)
    high = max((one.p99_ms for one in points), default=1000.0)
    low, high = max(1.0, low * 0.7), max(1.0, high * 1.3)
    # At least a factor of five, so that noise does not look like trouble.
    return Scale(low, max(high, low * 5), _BOTTOM, _TOP, log=True)


def log_ticks(low: float, high: float) -> list[float]:
    """Round values between these, at most six of them.

    >>> log_ticks(70, 900), log_ticks(3, 20_000)
    ([100, 200, 500], [10, 100, 1000, 10000])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) <= 6:
            break
    return [int(tick) if tick == int(tick) else tick for tick in ticks]


def _tick_text(tick_ms: float) -> str:
    return f"{tick_ms:g} ms" if tick_ms < 1000 else f"{tick_ms / 1000:g} s"


def _latency_axis(y: Scale) -> list[Html]:
    made = []
    for tick in log_ticks(y.low, y.high):
        at = round(y.px(tick), 1)
        made.append(el("path", d=f"M{_LEFT} {at}H{_RIGHT}", class_="grid"))
        made.append(el("text", _tick_text(tick), x=_LEFT - 8, y=at + 4, class_="end"))
    return made


def _time_axis(x: Scale, now_us: int) -> list[Html]:
    step_us = (60 if x.high - x.low <= 600 * US_PER_S else 180) * US_PER_S
    made = []
    for at_us in range(now_us // step_us * step_us, round(x.low), -step_us):
        at = datetime.fromtimestamp(at_us // US_PER_S, UTC)
        made.append(el("text", f"{at:%H:%M}", x=round(x.px(at_us), 1), y=_BOTTOM + 20, class_="middle"))
    return made


def _curve(points: Iterable[tuple[float, float, int]]) -> str:
    path, before_us = "", None
    for x, y, at_us in points:
        command = "M" if before_us is None or at_us - before_us > _GAP_US else "L"
        path += f"{command}{x:.1f} {y:.1f}"
        before_us = at_us
    return path


def _marks(marks: Sequence[Mark], x: Scale) -> list[Html]:
    return [
        el(
            "g",
            el("title", f"{datetime.fromtimestamp(one.at_us // US_PER_S, UTC):%H:%M:%S} {one.text[:200]}"),
            el("path", d=f"M{x.px(one.at_us):.1f} {_TOP - 10}V{_BOTTOM}", class_="stem"),
            el("path", d=f"M{x.px(one.at_us):.1f} {_TOP - 10}{_HEADS[one.kind]}", class_="head"),
            class_=f"mark {one.kind}",
        )
        for one in marks
        if one.at_us >= x.low
    ]


def mark_legend() -> Html:
    """What the lines and marks of the picture mean."""
    lines = [
        el("span", el("i", class_=f"line {name}", aria_hidden="true"), f" {name}", class_="key")
        for name in ("p50", "p99")
    ]
    words: dict[MarkKind, str] = {"loss": "a replica was lost", "operation": "operation", "decision": "decision"}
    heads = [el("span", _head(kind), f" {word}", class_="key") for kind, word in words.items()]
    return el("p", lines, heads, class_="legend")


def _head(kind: MarkKind) -> Html:
    path = el("path", d=f"M7 8{_HEADS[kind]}", class_="head")
    return el("svg", path, viewBox="0 0 14 14", class_=f"swatch mark {kind}", aria_hidden="true")


def strip(row: Row, shown: Agreement) -> Html:
    """One replica over the newest epochs: a column for each, of a form and a colour for what it made of it."""
    said = ", ".join(f"{count} {MEANINGS[kind]}" for kind, count in row.counts().items()) or "no epochs yet"
    paths = [el("path", d=path, class_=kind) for kind in row.counts() for path in _cell_paths(row.cells, kind)]
    return el(
        "svg",
        el("title", f"{row.replica}, epochs {shown.first} to {shown.last}: {said}"),
        paths,
        viewBox=f"0 0 {max(1, len(row.cells)) * 5} {CELL_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="strip",
        data_first=shown.first,
        data_epochs=len(row.cells),
    )


def _cell_paths(cells: Sequence[Cell], kind: Cell) -> list[str]:
    """The bars of all cells of a kind: one path for each bar, drawn with a stroke of the bar's height."""
    at = [index for index, cell in enumerate(cells) if cell == kind]
    return ["".join(f"M{index * 5} {middle:g}h4" for index in at) for middle, _ in _BARS[kind]]


def cell_legend(kinds: Iterable[Cell]) -> Html:
    """What the forms mean."""
    return el("p", [el("span", _swatch(kind), f" {MEANINGS[kind]}", class_="key") for kind in kinds], class_="legend")


def _swatch(kind: Cell) -> Html:
    bars = [el("path", d=f"M3 {middle:g}h6", class_=kind) for middle, _ in _BARS[kind]]
    return el("svg", bars, viewBox="0 0 12 20", class_="swatch strip", aria_hidden="true")
