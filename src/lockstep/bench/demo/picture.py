"""The picture: both latency curves on one scale, laid on each other at the first kill, and under them who was alive."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from lockstep.bench.demo.figures import BEFORE_S
from lockstep.bench.demo.story import Chapter, Story
from lockstep.clock import US_PER_S

COLOURS = {1: "#c2410c", 2: "#0f766e"}
"""By number of replicas: the one that stops is warm, those that do not are calm."""
KILL_COLOUR = "#111827"
_QUIET = "#6b7280"
_FAINT = "#e5e7eb"


def draw(story: Story, kind: str, dots_per_inch: int = 110) -> bytes:
    """The picture as a file of this kind ("svg", "png")."""
    # Imported late, and drawn without pyplot: a second of loading that no other command should pay for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.family": "sans-serif", "font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "demo"}):
        figure = Figure(figsize=(9, 5), layout="constrained", facecolor="white")
        lanes = sum(chapter.part.replicas for chapter in story.chapters)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(10, 0.9 * lanes))
        _curves(above, story)
        _lifelines(below, story)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=dots_per_inch)
    return file.getvalue()


def _curves(axes: Any, story: Story) -> None:
    for chapter, title in zip(story.chapters, story.titles(), strict=True):
        colour = COLOURS.get(chapter.part.replicas, KILL_COLOUR)
        times = [point.at_s for point in chapter.points]
        ages = [point.latency_s for point in chapter.points]
        axes.fill_between(times, ages, color=colour, alpha=0.12, linewidth=0)
        axes.plot(times, ages, color=colour, linewidth=1.8)
        _name_curve(axes, chapter, title, colour)
    end_s = max(chapter.end_s for chapter in story.chapters)
    axes.set_xlim(-BEFORE_S, end_s)
    axes.set_ylim(0, story.top_s * 1.2)
    axes.set_ylabel("age of the oldest record\nwhen it became visible (s)", color=_QUIET)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _kills(axes, story)
    _plain(axes)


def _name_curve(axes: Any, chapter: Chapter, title: str, colour: str) -> None:
    """The name stands at its curve, with the highest point after the kill: no legend to look up."""
    peak = max((point for point in chapter.points if point.at_s >= 0), key=lambda point: point.latency_s)
    alone = chapter.part.replicas == 1
    axes.annotate(
        f"{title}: at worst {peak.latency_s:.1f} s",
        # The flat curve of several replicas has its name far to the right, clear of the other one.
        (peak.at_s if alone else 0.6 * chapter.end_s, peak.latency_s),
        xytext=(10, -4) if alone else (0, 6),
        textcoords="offset points",
        color=colour,
        fontweight="bold",
        bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1.5},
    )


def _kills(axes: Any, story: Story) -> None:
    """The first kill is at zero in every run; the later ones are those of the longest."""
    texts = ("kill -9", "kill -9 of the other")
    longest = max(story.chapters, key=lambda chapter: len(chapter.part.kills))
    for at_s, text in zip(longest.kills_s, texts, strict=False):
        axes.axvline(at_s, color=KILL_COLOUR, linewidth=0.9, linestyle=(0, (3, 3)))
        axes.annotate(
            text,
            (at_s, story.top_s * 1.19),
            xytext=(5, 0),
            textcoords="offset points",
            va="top",
            color=KILL_COLOUR,
        )


def _lifelines(axes: Any, story: Story) -> None:
    """A bar for each replica while it computes, a cross where it was killed."""
    labels: list[str] = []
    for chapter in story.chapters:
        colour = COLOURS.get(chapter.part.replicas, KILL_COLOUR)
        for number in range(chapter.part.replicas):
            name = f"r{number}"
            lane = -len(labels)
            labels.append(f"{name}, alone" if chapter.part.replicas == 1 else f"{name}, of two")
            bars = _bars(chapter, name)
            lengths, begins = [end - begin for begin, end in bars], [begin for begin, _ in bars]
            axes.barh([lane] * len(bars), lengths, height=0.55, left=begins, color=colour, alpha=0.75, linewidth=0)
            dead = [
                at_s for at_s, kill in zip(chapter.kills_s, chapter.part.kills, strict=True) if kill.replica == name
            ]
            axes.plot(dead, [lane] * len(dead), "x", color=KILL_COLOUR, markersize=7, markeredgewidth=1.8)
    axes.set_yticks([-lane for lane in range(len(labels))], labels)
    axes.set_ylim(-len(labels) + 0.4, 0.6)
    axes.set_xlabel("seconds after the first kill   (bar: the replica computes, cross: it is killed with -9)")
    _plain(axes)


def _bars(chapter: Chapter, replica: str) -> list[tuple[float, float]]:
    """When a replica computed, within what is drawn, counted from the first kill."""
    bars = []
    for alive in chapter.part.alive:
        if alive.replica == replica:
            begin = (alive.first_us - chapter.zero_us) / US_PER_S
            end = ((alive.end_us or chapter.part.end_us) - chapter.zero_us) / US_PER_S
            if end > -BEFORE_S and begin < chapter.end_s:
                bars.append((max(begin, -BEFORE_S), min(end, chapter.end_s)))
    return bars


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.tick_params(colors=_QUIET, length=0)
    axes.xaxis.label.set_color(_QUIET)
