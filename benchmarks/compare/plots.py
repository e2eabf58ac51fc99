"""The plots of a comparison, as SVG: the wait around a kill, latencies, throughput, cost, growth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

from benchmarks.compare.results import Document
from benchmarks.compare.tables import joined

COLOURS: Mapping[str, str] = {
    "lockstep-1": "#5eead4",
    "lockstep-2": "#0f766e",
    "lockstep-3": "#134e4a",
    "lockstep-journal-1": "#7dd3fc",
    "lockstep-journal-2": "#0369a1",
    "spark": "#c2410c",
    "flink": "#be185d",
    "bytewax": "#a16207",
    "pathway": "#4338ca",
}
_OTHER = "#6b7280"
_QUIET = "#6b7280"
_FAINT = "#e5e7eb"
_STYLE = {"font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "bench"}


@dataclass(frozen=True)
class Plot:
    """One plot, and which measure it shows."""

    measure: str
    title: str
    paint: Callable[[Any], None]
    height: float

    @property
    def svg(self) -> str:
        """As text, the same each time for the same data."""
        return drawn(self.paint, self.height)


def plots(document: Document) -> list[Plot]:
    """Every plot there is something for."""
    made = []
    for workload in _measured(document, "failover"):
        title = f"kill -9 under load: {document['workloads'][workload]['title']}"
        made.append(Plot("failover", title, partial(_kill, document=document, workload=workload), 4.2))
    for measure, draw in (("latency", _latencies), ("throughput", _throughputs)):
        if names := _measured(document, measure):
            height = 0.6 + 0.27 * sum(1 + len(_engines(document, measure, name)) for name in names)
            made.append(Plot(measure, _TITLES[measure], partial(draw, document=document), height))
    if _measured(document, "latency"):
        made.append(Plot("cost", "what it costs: CPU and memory", partial(_costs, document=document), 3.2))
    if any(_points(document, measure) for measure in ("state", "partitions")):
        made.append(Plot("growth", "how Lockstep's epoch grows", partial(_growth, document=document), 3.2))
    return made


_TITLES = {
    "latency": "latency: p50 (dot), p99 (bar), maximum (tick)",
    "throughput": "throughput: records per second, all input there at once",
}


def drawn(paint: Callable[[Any], None], height: float, width: float = 9.0) -> str:
    """A figure as SVG text, the same each time for the same data."""
    # Imported late, and drawn without pyplot: a second of loading that no other command should pay for.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        paint(figure)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue().decode("utf-8")
    # Only the element: the XML head of a file has no place inside a page.
    return text[text.index("<svg") :]


def _measured(document: Document, measure: str) -> list[str]:
    cells = document["cells"]
    return list(dict.fromkeys(cell["workload"] for cell in cells if cell["measure"] == measure and "figures" in cell))


def _engines(document: Document, measure: str, workload: str) -> list[str]:
    there = {
        cell["engine"]
        for cell in document["cells"]
        if (cell["measure"], cell["workload"]) == (measure, workload) and "figures" in cell
    }
    return [name for name in document["engines"] if name in there]


def _cells(document: Document, measure: str, workload: str, engine: str) -> list[Mapping[str, Any]]:
    wanted = (measure, workload, engine)
    return [
        cell
        for cell in document["cells"]
        if (cell["measure"], cell["workload"], cell["engine"]) == wanted and "figures" in cell
    ]


def _figure_of(document: Document, measure: str, workload: str, engine: str, name: str) -> float | None:
    cells = _cells(document, measure, workload, engine)
    return joined([cell["figures"].get(name) for cell in cells], worst=False)


def _colour(engine: str) -> str:
    return COLOURS.get(engine, _OTHER)


def _title_of(document: Document, engine: str) -> str:
    return str(document["engines"][engine]["title"])


def _kill(figure: Any, document: Document, workload: str) -> None:
    axes = figure.subplots()
    for engine in _engines(document, "failover", workload):
        cell = _cells(document, "failover", workload, engine)[0]
        points = [point for point in cell["curve"] if point[1] > 0]
        axes.plot(
            [at_s for at_s, _ in points],
            [wait_ms for _, wait_ms in points],
            ".",
            markersize=2.5,
            color=_colour(engine),
            label=_title_of(document, engine),
        )
    axes.axvline(0, color="#111827", linewidth=0.9, linestyle=(0, (3, 3)))
    axes.set_yscale("log")
    axes.set_xlabel("seconds after the kill at which a reader saw the result")
    axes.set_ylabel("how long its record had waited, ms")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, markerscale=4)
    _plain(axes)


def _latencies(figure: Any, document: Document) -> None:
    axes = figure.subplots()
    lanes = _lanes(axes, document, "latency")
    for lane, workload, engine in lanes:
        p50, p99, worst = (
            _figure_of(document, "latency", workload, engine, name) for name in ("p50_ms", "p99_ms", "max_ms")
        )
        if p50 is None or p99 is None or worst is None:
            continue
        colour = _colour(engine)
        axes.plot([p50, p99], [lane, lane], color=colour, linewidth=4, alpha=0.45, solid_capstyle="butt")
        axes.plot([p50], [lane], "o", color=colour, markersize=5)
        axes.plot([worst], [lane], "|", color=colour, markersize=8)
    axes.set_xscale("log")
    axes.set_xlabel("ms from sending a record to seeing its result")
    _plain(axes)


def _throughputs(figure: Any, document: Document) -> None:
    axes = figure.subplots()
    for lane, workload, engine in _lanes(axes, document, "throughput"):
        value = _figure_of(document, "throughput", workload, engine, "records_per_s")
        axes.barh([lane], [value or 0], height=0.6, color=_colour(engine))
        said = f"{value:,.0f}" if value is not None else "wrong result"
        axes.annotate(said, (value or 0, lane), xytext=(4, 0), textcoords="offset points", va="center", color=_QUIET)
    axes.set_xlabel("records per second")
    _plain(axes)


def _lanes(axes: Any, document: Document, measure: str) -> list[tuple[int, str, str]]:
    """A line for each engine under each workload's name: (line, workload, engine)."""
    lanes, labels, ticks = [], [], []
    line = 0
    for workload in _measured(document, measure):
        axes.annotate(
            document["workloads"][workload]["title"],
            (0.0, line),
            xycoords=("axes fraction", "data"),
            fontweight="bold",
            va="center",
        )
        line -= 1
        for engine in _engines(document, measure, workload):
            lanes.append((line, workload, engine))
            ticks.append(line)
            labels.append(_title_of(document, engine))
            line -= 1
    axes.set_yticks(ticks, labels)
    axes.set_ylim(line + 0.3, 0.7)
    return lanes


def _costs(figure: Any, document: Document) -> None:
    """CPU and memory of every engine, on the workload that most of them did."""
    names = _measured(document, "latency")
    workload = max(names, key=lambda name: len(_engines(document, "latency", name)))
    engines = _engines(document, "latency", workload)
    for axes, name, label in zip(
        figure.subplots(1, 2), ("cpu_cores", "memory_peak_mb"), ("CPU cores", "peak memory, MB"), strict=True
    ):
        values = [_figure_of(document, "latency", workload, engine, name) or 0.0 for engine in engines]
        axes.barh(range(0, -len(engines), -1), values, color=[_colour(engine) for engine in engines], height=0.65)
        axes.set_yticks(range(0, -len(engines), -1), [_title_of(document, engine) for engine in engines])
        axes.set_xlabel(f"{label}: {document['workloads'][workload]['title']}")
        _plain(axes)


def _growth(figure: Any, document: Document) -> None:
    for axes, measure, label in zip(
        figure.subplots(1, 2), ("state", "partitions"), ("keys in state", "shuffle partitions"), strict=True
    ):
        points = _points(document, measure)
        for name, style in (("period_p50_ms", "-o"), ("period_p90_ms", "--o")):
            axes.plot(
                [number for number, _ in points],
                [figures[name] for _, figures in points],
                style,
                color=COLOURS["lockstep-2"],
                markersize=4,
                label=name[7:10],
            )
        if measure == "state":
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_ylabel("ms from epoch to epoch")
        if points:
            axes.legend(frameon=False)
        _plain(axes)


def _points(document: Document, measure: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = [
        (int(cell["workload"]), cell["figures"])
        for cell in document["cells"]
        if cell["measure"] == measure and cell.get("figures", {}).get("period_p50_ms") is not None
    ]
    return sorted(found, key=lambda point: point[0])


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.grid(axis="both", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_QUIET, length=0)
