"""The picture: latency over time with each action marked, what the actions took, and which replicas were well."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from lockstep.chaos.run import Outcome, seconds_after
from lockstep.chaos.runner import Doing
from lockstep.chaos.vocabulary import Part
from lockstep.clock import US_PER_S

_INK = "#111827"
_QUIET = "#6b7280"
_FAINT = "#e5e7eb"
_LINE = "#0f766e"
_WELL = "#99d5cf"
COLOURS: dict[str, str] = {"replica": "#c2410c", "all": "#7c3aed", "input": "#2563eb"}
NAMES = {"replica": "one replica", "all": "the whole job, the store or the disk", "input": "the input"}
LATENCY_S_MIN = 0.02


def group_of(takes: frozenset[Part]) -> str:
    """What an action takes, as the picture colours it.

    >>> group_of(frozenset({Part.REPLICA})), group_of(frozenset({Part.JOB})), group_of(frozenset({Part.INPUT}))
    ('replica', 'all', 'input')
    """
    if Part.REPLICA in takes:
        return "replica"
    return "all" if takes - {Part.INPUT} else "input"


def draw(outcome: Outcome, kind: str, dots_per_inch: int = 110) -> bytes:
    """The picture as a file of this kind ("svg", "png")."""
    # Imported late, and drawn without pyplot: a second of loading that no other command should pay for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.family": "sans-serif", "font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "chaos"}):
        lanes = outcome.wish.replicas
        done = [one for one in outcome.doings if one.deed is not None]
        figure = Figure(figsize=(11, 5.4), layout="constrained", facecolor="white")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(10, 0.8 + 0.8 * lanes))
        _latency(above, outcome, done)
        _attendance(below, outcome, done)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=dots_per_inch)
    return file.getvalue()


def _latency(axes: Any, outcome: Outcome, done: Sequence[Doing]) -> None:
    points = [
        (seconds_after(outcome, one.seen_us), max(LATENCY_S_MIN, one.latency_s))
        for one in outcome.sightings
        if one.latency_s is not None and one.seen_us >= outcome.first_us and one.oldest_us is not None
    ]
    times, latencies = [at_s for at_s, _ in points], [latency_s for _, latency_s in points]
    top_s = max([1.0, *latencies]) * 3
    axes.set_yscale("log")
    axes.set_ylim(LATENCY_S_MIN, top_s)
    axes.set_xlim(seconds_after(outcome, outcome.first_us), seconds_after(outcome, outcome.end_us))
    axes.plot(times, latencies, color=_LINE, linewidth=1.1)
    axes.axhline(outcome.usual.slow_s, color=_QUIET, linewidth=0.8, linestyle=(0, (4, 4)))
    axes.annotate(
        "normal ends here",
        (1.0, outcome.usual.slow_s),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=_QUIET,
    )
    _mark(axes, outcome, done, top_s)
    axes.set_ylabel("age of the oldest record\nwhen it became visible (s)", color=_QUIET)
    axes.set_yticks([0.1, 1, 10] if top_s > 10 else [0.1, 1], ["0.1", "1", "10"] if top_s > 10 else ["0.1", "1"])
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _legend(axes, done)
    _plain(axes)


def _mark(axes: Any, outcome: Outcome, done: Sequence[Doing], top_s: float) -> None:
    """A line where each action hit, its number above it, and its time to recovery shaded."""
    for index, one in enumerate(sorted(done, key=lambda each: each.struck_us)):
        colour = COLOURS[group_of(one.action.takes)]
        at_s = seconds_after(outcome, one.struck_us)
        end_s = seconds_after(outcome, max(one.over_us, one.struck_us))
        axes.axvspan(at_s, end_s, color=colour, alpha=0.08, linewidth=0)
        axes.axvline(at_s, color=colour, linewidth=1.0, alpha=0.9)
        axes.annotate(
            str(one.planned.number),
            # Neighbours stand at different heights, so that their numbers do not cover each other.
            (at_s, top_s / (1.25 if index % 2 == 0 else 1.75)),
            ha="center",
            va="center",
            fontsize=8,
            color="white",
            bbox={"boxstyle": "round,pad=0.25", "facecolor": colour, "linewidth": 0},
        )


def _legend(axes: Any, done: Sequence[Doing]) -> None:
    from matplotlib.patches import Patch

    groups = [group for group in COLOURS if any(group_of(one.action.takes) == group for one in done)]
    handles = [Patch(facecolor=COLOURS[group], label=NAMES[group]) for group in groups]
    if handles:
        axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), frameon=False, fontsize=9
        )


def _attendance(axes: Any, outcome: Outcome, done: Sequence[Doing]) -> None:
    names = sorted({span.replica for span in outcome.spans})
    for lane, name in enumerate(names):
        bars = [
            (seconds_after(outcome, span.first_us), max(0.1, (span.last_us - span.first_us) / US_PER_S))
            for span in outcome.spans
            if span.replica == name
        ]
        axes.broken_barh(bars, (-lane - 0.3, 0.6), color=_WELL, linewidth=0)
        hits = [one for one in done if one.deed is not None and one.deed.replica == name and one.happened]
        times = [seconds_after(outcome, one.struck_us) for one in hits]
        axes.plot(times, [-lane] * len(times), "x", color=_INK, markersize=6, markeredgewidth=1.6)
    axes.set_yticks([-lane for lane in range(len(names))], names)
    axes.set_ylim(-len(names) + 0.4, 0.6)
    axes.set_xlabel("seconds of chaos   (bar: the replica computes, cross: an action hits it)")
    _plain(axes)


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.tick_params(colors=_QUIET, length=0, which="both")
    axes.xaxis.label.set_color(_QUIET)
