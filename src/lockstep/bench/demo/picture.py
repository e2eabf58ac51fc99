"""The picture: both latency curves on one scale, laid on each other at the first kill, and under them who was alive."""

from __future__ import annotations

from lockstep.bench.demo.figures import BEFORE_S
from lockstep.bench.demo.results import MeasuredPart, Results
from lockstep.clock import US_PER_S
from lockstep.observe.svg import INK, Drawing, Panel, Scale, lanes

COLOURS = {1: "#c2410c", 2: "#0f766e"}
"""By number of replicas: the one that stops is warm, those that do not are calm."""
_WIDTH, _LEFT, _RIGHT = 960, 78, 940
_TOP, _BOTTOM = 52, 350
_LANE = 24
_LETTER_PX = 6.6
"""About the width of a letter: enough to put a white ground under a text."""


def draw(results: Results) -> str:
    """The picture as SVG."""
    count = sum(measured.part.replicas for measured in results.parts)
    drawing = Drawing(_WIDTH, _BOTTOM + 26 + _LANE * count + 50)
    x = Scale(-BEFORE_S, max(measured.end_s for measured in results.parts), _LEFT, _RIGHT)
    _curves(Panel(drawing, x, Scale(0, results.top_s * 1.2, _BOTTOM, _TOP)), results)
    _lifelines(drawing, x, results)
    return drawing.svg()


def _curves(panel: Panel, results: Results) -> None:
    panel.grid(["age of the oldest record when it became visible, in seconds"])
    _kills(panel, results)
    for measured in results.parts:
        points = [(point.at_s, point.latency_s) for point in measured.points]
        panel.curve(points, _colour(measured), filled=True)
    # The names last: no curve runs over them.
    for measured, title in zip(results.parts, results.titles(), strict=True):
        _name_curve(panel, measured, title)


def _name_curve(panel: Panel, measured: MeasuredPart, title: str) -> None:
    """The name stands at its curve, with the highest point after the kill: no legend to look up."""
    peak = max((point for point in measured.points if point.at_s >= 0), key=lambda point: point.latency_s)
    alone = measured.part.replicas == 1
    text = f"{title}: at worst {peak.latency_s:.1f} s"
    # The flat curve of several replicas has its name far to the right, clear of the other one.
    x = panel.x.px(peak.at_s) + 10 if alone else panel.x.px(0.55 * measured.end_s)
    y = panel.y.px(peak.latency_s) + (6 if alone else -8)
    panel.drawing.add(
        "rect", x=x - 3, y=y - 12, width=_LETTER_PX * len(text) + 6, height=16, fill="white", fill_opacity=0.85
    )
    panel.drawing.text(x, y, text, _colour(measured), bold=True)


def _kills(panel: Panel, results: Results) -> None:
    """The first kill is at zero in every run; the later ones are those of the longest."""
    texts = ("kill -9", "kill -9 of the other")
    longest = max(results.parts, key=lambda measured: len(measured.part.kills))
    for at_s, text in zip(longest.kills_s, texts, strict=False):
        panel.down(at_s, dashes="3 3")
        panel.drawing.text(panel.x.px(at_s) + 5, panel.y.last_px + 10, text)


def _lifelines(drawing: Drawing, x: Scale, results: Results) -> None:
    """A bar for each replica while it computes, a cross where it was killed."""
    who = [(measured, number) for measured in results.parts for number in range(measured.part.replicas)]
    names = [f"r{number}, alone" if measured.part.replicas == 1 else f"r{number}, of two" for measured, number in who]
    panel = lanes(drawing, x, names, _BOTTOM + 26, _LANE)
    for lane, (measured, number) in enumerate(who):
        for begin_s, end_s in _bars(measured, f"r{number}"):
            panel.bar(begin_s, end_s, -lane, _colour(measured))
        for at_s, kill in zip(measured.kills_s, measured.part.kills, strict=True):
            if kill.replica == f"r{number}":
                panel.cross(at_s, -lane)
    panel.foot("seconds after the first kill   (bar: the replica computes, cross: it is killed with -9)")


def _bars(measured: MeasuredPart, replica: str) -> list[tuple[float, float]]:
    """When a replica computed, within what is drawn, counted from the first kill."""
    bars = []
    for alive in measured.part.alive:
        if alive.replica == replica:
            begin = (alive.first_us - measured.zero_us) / US_PER_S
            end = ((alive.end_us or measured.part.end_us) - measured.zero_us) / US_PER_S
            if end > -BEFORE_S and begin < measured.end_s:
                bars.append((max(begin, -BEFORE_S), min(end, measured.end_s)))
    return bars


def _colour(measured: MeasuredPart) -> str:
    return COLOURS.get(measured.part.replicas, INK)
