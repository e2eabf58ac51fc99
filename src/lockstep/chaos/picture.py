"""The picture: latency over time with each action marked, what the actions took, and which replicas were well."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.chaos.run import Outcome, seconds_after
from lockstep.chaos.runner import Doing
from lockstep.chaos.vocabulary import Part
from lockstep.clock import US_PER_S
from lockstep.observe.svg import QUIET, Drawing, Panel, Scale, lanes

_LINE = "#0f766e"
_WELL = "#99d5cf"
COLOURS: dict[str, str] = {"replica": "#c2410c", "all": "#7c3aed", "input": "#2563eb", "shape": "#15803d"}
NAMES = {
    "replica": "one replica",
    "all": "the whole job, the store or the disk",
    "input": "the input",
    "shape": "an operation",
}
LATENCY_S_MIN = 0.02


def group_of(takes: frozenset[Part]) -> str:
    """What an action takes, as the picture colours it.

    >>> group_of(frozenset({Part.REPLICA})), group_of(frozenset({Part.JOB})), group_of(frozenset({Part.INPUT}))
    ('replica', 'all', 'input')
    """
    if Part.REPLICA in takes:
        return "replica"
    if takes & {Part.SHAPE, Part.SEALING}:
        return "shape"
    return "all" if takes - {Part.INPUT} else "input"


_WIDTH, _LEFT, _RIGHT = 1060, 60, 1044
_TOP, _BOTTOM = 72, 390
_LANE = 24


def draw(outcome: Outcome) -> str:
    """The picture as SVG."""
    done = [one for one in outcome.doings if one.deed is not None]
    names = sorted({span.replica for span in outcome.spans})
    drawing = Drawing(_WIDTH, _BOTTOM + 16 + _LANE * len(names) + 50)
    x = Scale(seconds_after(outcome, outcome.first_us), seconds_after(outcome, outcome.end_us), _LEFT, _RIGHT)
    _legend(drawing, done)
    _latency(drawing, x, outcome, done)
    _attendance(lanes(drawing, x, names, _BOTTOM + 16, _LANE), names, outcome, done)
    return drawing.svg()


def _latency(drawing: Drawing, x: Scale, outcome: Outcome, done: Sequence[Doing]) -> None:
    points = [
        (seconds_after(outcome, one.seen_us), max(LATENCY_S_MIN, one.latency_s))
        for one in outcome.seen_epochs
        if one.latency_s is not None and one.seen_us >= outcome.first_us and one.oldest_us is not None
    ]
    top_s = max([1.0, *(latency_s for _, latency_s in points)]) * 3
    panel = Panel(drawing, x, Scale(LATENCY_S_MIN, top_s, _BOTTOM, _TOP, log=True))
    panel.grid(["age of the oldest record when it became visible, in seconds"])
    panel.across(outcome.usual.slow_s, QUIET, "4 4")
    drawing.text(_RIGHT - 4, panel.y.px(outcome.usual.slow_s) - 4, "normal ends here", QUIET, anchor="end")
    _mark(panel, outcome, done)
    panel.curve(points, _LINE)


def _mark(panel: Panel, outcome: Outcome, done: Sequence[Doing]) -> None:
    """A line where each action hit, its number above it, and its time to recovery shaded."""
    for index, one in enumerate(sorted(done, key=lambda each: each.struck_us)):
        colour = COLOURS[group_of(one.action.takes)]
        at_s = seconds_after(outcome, one.struck_us)
        panel.shade(at_s, seconds_after(outcome, max(one.over_us, one.struck_us)), colour)
        panel.down(at_s, colour)
        # Neighbours stand at different heights, so that their numbers do not cover each other.
        number, x, y = str(one.planned.number), panel.x.px(at_s), _TOP + 8 + 18 * (index % 2)
        width = 8 + 7 * len(number)
        panel.drawing.add("rect", x=x - width / 2, y=y - 8, width=width, height=16, rx=3, fill=colour)
        panel.drawing.text(x, y + 4, number, "white", anchor="middle")


def _legend(drawing: Drawing, done: Sequence[Doing]) -> None:
    x = float(_LEFT)
    for group, colour in COLOURS.items():
        if any(group_of(one.action.takes) == group for one in done):
            drawing.add("rect", x=x, y=10, width=18, height=12, fill=colour)
            drawing.text(x + 24, 20, NAMES[group])
            x += 48 + 7 * len(NAMES[group])


def _attendance(panel: Panel, names: Sequence[str], outcome: Outcome, done: Sequence[Doing]) -> None:
    for lane, name in enumerate(names):
        for span in outcome.spans:
            if span.replica == name:
                begin_s = seconds_after(outcome, span.first_us)
                panel.bar(begin_s, begin_s + (span.last_us - span.first_us) / US_PER_S, -lane, _WELL)
        for one in done:
            if one.deed is not None and one.deed.replica == name and one.happened:
                panel.cross(seconds_after(outcome, one.struck_us), -lane)
    panel.foot("seconds of chaos   (bar: the replica computes, cross: an action hits it)")
