"""A running job as a picture for a notebook: the job in a line, its replicas, and how late results were, as SVG.

Without scripts, styles or files from elsewhere. Text and lines take the colour of the page around them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from lockstep.clock import US_PER_S
from lockstep.observe.svg import Scale
from lockstep.observe.texts import rate_text, span_text
from lockstep.store.protocols import Published

SHOWN_S = 120.0
"""How far back the curve goes."""
_FONT = "font-family:system-ui,sans-serif;font-size:12px"
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 560, 150, 56, 20, 124
_LINE = "#1c7ed6"
_COLORS = {"healthy": "#2f9e44", "degraded": "#e03131", "stalled": "#e03131", "not running": "#e03131"}
_PLAIN = "#1c7ed6"
_COLUMNS = ("replica", "state", "epoch", "lag", "per epoch", "restarts", "pid")


def job_line(status: dict[str, Any]) -> str:
    """The job in a line of text.

    >>> job_line({"job": "counts", "state": "starting", "head": None, "latency_last_minute_ms": {"count": 0}})
    'counts: starting'
    """
    parts = [f"{status['job']}: {status['state']}"]
    if status["head"] is not None:
        parts.append(f"epoch {status['head']['epoch']:,}")
        parts.append(f"{rate_text(status['rows_per_s'])} rows/s")
    latency = status["latency_last_minute_ms"]
    if latency.get("count"):
        parts.append(f"latency p50 {span_text(latency['p50'])}, p99 {span_text(latency['p99'])}")
    if status.get("dead_letters"):
        parts.append(f"{status['dead_letters']:,} dead letters")
    return ", ".join(parts)


def job_html(status: dict[str, Any], published: Sequence[Published], where: str) -> str:
    """The whole picture; ``where`` says where the job lives."""
    color = _COLORS.get(status["state"], _PLAIN)
    mark = f'<span style="display:inline-block;width:9px;height:9px;border-radius:5px;background:{color}"></span>'
    said = f'<div style="margin-bottom:4px">{mark} <b>{escape(job_line(status))}</b></div>'
    why = f"<div>{escape(status['reason'])}</div>" if status["state"] != "healthy" and status["reason"] else ""
    foot = f'<div style="opacity:0.7">{escape(where)}</div>'
    return f'<div style="{_FONT}">{said}{why}{_replicas(status["replicas"])}{lateness_svg(published)}{foot}</div>'


def _replicas(replicas: Sequence[dict[str, Any]]) -> str:
    rows = "".join(_row("td", _cells(one)) for one in replicas)
    return f'<table style="{_FONT}">{_row("th", _COLUMNS)}{rows}</table>' if replicas else ""


def _cells(one: dict[str, Any]) -> tuple[object, ...]:
    known = one["starting_s"] is None and one["epoch"] >= 0
    state = one["state"] if one["starting_s"] is None else f"{one['state']} {one['starting_s']:.0f} s"
    figures = (f"{one['epoch']:,}", f"{one['lag_epochs']:,}", span_text(one["epoch_ms"])) if known else ("", "", "")
    return (one["replica"], state, *figures, one["restarts"], one["pid"] or "")


def _row(tag: str, cells: Sequence[object]) -> str:
    inside = "".join(f'<{tag} style="text-align:left;padding:1px 10px 1px 0">{escape(str(c))}</{tag}>' for c in cells)
    return f"<tr>{inside}</tr>"


def lateness_svg(published: Sequence[Published]) -> str:
    """The age of each epoch's oldest record when it was published, over the last two minutes; empty if there is none.

    >>> lateness_svg([])
    ''
    """
    dated = [(one.published_us, one.ingested_oldest_us) for one in published]
    late = [(at_us, at_us - oldest_us) for at_us, oldest_us in dated if oldest_us is not None]
    if not late:
        return ""
    newest_us = max(at_us for at_us, _ in late)
    points = [((at - newest_us) / US_PER_S, us / 1e6) for at, us in sorted(late) if at > newest_us - SHOWN_S * US_PER_S]
    x = Scale(min(-10.0, points[0][0]), 0.0, _LEFT, _WIDTH - 8)
    y = Scale(0.0, 1.1 * max(0.1, *(seconds for _, seconds in points)), _BOTTOM, _TOP)
    dots = " ".join(f"{x.px(at):.1f},{y.px(seconds):.1f}" for at, seconds in points)
    body = [*_axis(y), *(_foot(x)), f'<polyline points="{dots}" fill="none" stroke="{_LINE}" stroke-width="1.6"/>']
    body += [f'<circle cx="{x.px(at):.1f}" cy="{y.px(seconds):.1f}" r="1.8" fill="{_LINE}"/>' for at, seconds in points]
    label = f"latency in seconds: newest {points[-1][1]:.2f}, worst {max(s for _, s in points):.2f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="{_FONT}"><title>{label}</title>{"".join(body)}</svg>'
    )


def _axis(y: Scale) -> list[str]:
    drawn = [_text(8, _TOP - 8, "seconds from a record's arrival until it is published", "start")]
    for tick in y.ticks()[::2]:
        at = y.px(tick)
        drawn.append(f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - 8}" stroke="currentColor" stroke-opacity="0.15"/>')
        drawn.append(_text(_LEFT - 6, at + 4, f"{tick:g}", "end"))
    return drawn


def _foot(x: Scale) -> list[str]:
    return [_text(x.px(tick), _BOTTOM + 18, f"{tick:g} s" if tick else "newest", "middle") for tick in x.ticks()[::2]]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" fill-opacity="0.75" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


class Drawn(Protocol):
    """Something that a notebook can draw."""

    def _repr_html_(self) -> str: ...


class Screen:
    """Where a job is shown while it runs: the output of a notebook's cell, redrawn; else a line whenever it changes."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._line = ""

    def show(self, drawn: Drawn) -> None:
        """Show it as it is now."""
        if not in_notebook():
            self._write(str(drawn))
        elif self._handle is None:
            self._handle = sys.modules["IPython"].display.display(drawn, display_id=True)
        else:
            self._handle.update(drawn)

    def _write(self, line: str) -> None:
        if line != self._line:
            self._line = line
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, whose cells have outputs that can be redrawn.

    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
