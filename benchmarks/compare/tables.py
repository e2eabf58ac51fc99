"""The tables of a comparison, the same for the terminal, the page and the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.compare.results import Document
from benchmarks.compare.runner import result_text
from lockstep.bench.report import Figures
from lockstep.bench.statistics import Row, median

COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "failover": (
        ("longest_gap_s", "longest gap s"),
        ("gap_before_s", "longest gap before s"),
        ("worst_wait_ms", "worst wait ms"),
        ("normal_after_s", "normal after s"),
    ),
    "restart": (
        ("first_result_s", "first result s"),
        ("fresh_result_s", "first new record s"),
        ("normal_after_s", "normal after s"),
    ),
    "latency": (
        ("p50_ms", "p50 ms"),
        ("p99_ms", "p99 ms"),
        ("max_ms", "max ms"),
        ("cpu_cores", "CPU cores"),
        ("cpu_s_per_million", "CPU s per million"),
        ("memory_peak_mb", "peak memory MB"),
        ("ready_s", "start s"),
    ),
    "throughput": (
        ("records_per_s", "records/s"),
        ("cpu_s_per_million", "CPU s per million"),
        ("memory_peak_mb", "peak memory MB"),
    ),
    "state": (
        ("keys", "keys"),
        ("period_p50_ms", "epoch p50 ms"),
        ("period_p90_ms", "epoch p90 ms"),
        ("cpu_cores", "CPU cores"),
        ("memory_peak_mb", "peak memory MB"),
    ),
    "partitions": (
        ("partitions", "partitions"),
        ("period_p50_ms", "epoch p50 ms"),
        ("period_p90_ms", "epoch p90 ms"),
        ("cpu_cores", "CPU cores"),
        ("memory_peak_mb", "peak memory MB"),
    ),
}
TITLES: Mapping[str, str] = {
    "failover": "kill -9 under load",
    "restart": "kill -9 of everything, started again at once",
    "latency": "latency and cost at the workload's rate",
    "throughput": "throughput, all input there at once",
    "state": "Lockstep's epoch and the number of keys in state",
    "partitions": "Lockstep's epoch and the number of shuffle partitions",
}
GLANCES: Mapping[str, str] = {"throughput": "records per second", "latency": "latency, p50 / p99 in ms"}
"""Measures of which one table shows all workloads beside each other."""
_WORST = ("failover", "restart")


def tables(document: Document) -> list[Figures]:
    """Throughput and latency at a glance, one table for each measure and workload, then what replicas cost."""
    found = [Figures(f"{title}, at a glance", glance(document, measure)) for measure, title in GLANCES.items()]
    for measure, title in TITLES.items():
        for workload in _workloads(document, measure):
            name = document["workloads"].get(workload, {}).get("title", "")
            rows = rows_of(document, measure, workload)
            found.append(Figures(f"{title}: {name}" if name else title, rows))
    found += [Figures(f"what replicas cost: {title}", rows) for title, rows in replica_costs(document)]
    return [table for table in found if table.rows]


def glance(document: Document, measure: str) -> list[Row]:
    """A row for each workload, a column for each engine; nothing if there is only one workload, or one engine."""
    workloads = _workloads(document, measure)
    measured = {cell["engine"] for cell in document["cells"] if cell["measure"] == measure and "figures" in cell}
    engines = [name for name in document["engines"] if name in measured]
    if len(workloads) < 2 or len(engines) < 2:
        return []
    return [
        {
            "workload": document["workloads"][workload]["title"],
            **{document["engines"][name]["title"]: _in_short(document, measure, workload, name) for name in engines},
        }
        for workload in workloads
    ]


def _in_short(document: Document, measure: str, workload: str, engine: str) -> str:
    """What was measured in a word: a figure of a result that was not right is none."""
    group = [
        cell
        for cell in document["cells"]
        if (cell["measure"], cell["workload"], cell["engine"]) == (measure, workload, engine)
    ]
    if any("error" in cell for cell in group):
        return "failed"
    done = [cell["figures"] for cell in group if "figures" in cell]
    if not done:
        return "-"
    if not all(cell["check"]["right"] for cell in group if "figures" in cell):
        return "not right"
    names = ("records_per_s",) if measure == "throughput" else ("p50_ms", "p99_ms")
    values = [joined([figures.get(name) for figures in done], worst=False) for name in names]
    return " / ".join("-" if value is None else f"{value:,.0f}" for value in values)


def _workloads(document: Document, measure: str) -> list[str]:
    """In the order in which they were measured; a growth measure has one table for all its sizes."""
    if measure in ("state", "partitions"):
        return [""] if any(cell["measure"] == measure for cell in document["cells"]) else []
    return list(dict.fromkeys(cell["workload"] for cell in document["cells"] if cell["measure"] == measure))


def rows_of(document: Document, measure: str, workload: str) -> list[Row]:
    """A row for each engine; several rounds are one row (the median; of a kill the worst). What failed says so."""
    cells = [
        cell
        for cell in document["cells"]
        if cell["measure"] == measure and (not workload or cell["workload"] == workload)
    ]
    order = list(document["engines"])
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        number = int(cell["workload"]) if not workload else 0
        groups.setdefault((number, cell["engine"]), []).append(cell)
    ranked = sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    return [_row(document, measure, engine, group) for (_, engine), group in ranked]


def _row(document: Document, measure: str, engine: str, group: Sequence[Mapping[str, Any]]) -> Row:
    done = [cell for cell in group if "figures" in cell]
    row: Row = {"engine": document["engines"][engine]["title"]}
    for name, title in COLUMNS[measure]:
        value = joined([cell["figures"].get(name) for cell in done], worst=measure in _WORST)
        row[title] = int(value) if value is not None and name in ("keys", "partitions") else value
    if measure in _WORST:
        row |= {name: sum(cell["check"][key] for cell in done) for name, key in _LOSSES} if done else {}
    row["result"] = _result(group)
    return row


_LOSSES = (("lost", "lost"), ("repeated (live)", "live_repeated"), ("wrong", "wrong"))


def joined(values: Sequence[float | None], *, worst: bool) -> float | None:
    """Several rounds as one figure; one round without a figure (never back, wrong result) leaves none.

    >>> joined([1.0, 3.0, 2.0], worst=False), joined([1.0, 3.0], worst=True), joined([1.0, None], worst=True)
    (2.0, 3.0, None)
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return max(known) if worst else median(known)


def _result(group: Sequence[Mapping[str, Any]]) -> str:
    """The worst word about the results of all rounds."""
    said = []
    for cell in group:
        if "skipped" in cell:
            said.append(f"not measured: {cell['skipped']}")
        elif "error" in cell:
            said.append(f"failed: {cell['error'].splitlines()[0]}")
        else:
            said.append(result_text(cell["check"]))
    bad = [text for text in said if text != "right"]
    return bad[0] if bad else "right"


def replica_costs(document: Document) -> list[tuple[str, list[Row]]]:
    """What one, two and three replicas cost, for each workload that was measured with more than one of them."""
    found = []
    for workload in _workloads(document, "latency"):
        cells = [cell for cell in document["cells"] if (cell["measure"], cell["workload"]) == ("latency", workload)]
        groups = {
            replicas: [
                cell["figures"] for cell in cells if cell["engine"] == f"lockstep-{replicas}" and "figures" in cell
            ]
            for replicas in (1, 2, 3)
        }
        rows = [_replica_row(replicas, group) for replicas, group in groups.items() if group]
        if len(rows) > 1:
            found.append((document["workloads"][workload]["title"], rows))
    return found


def _replica_row(replicas: int, group: Sequence[Mapping[str, Any]]) -> Row:
    names = [pair for pair in COLUMNS["latency"] if pair[0] in ("p50_ms", "p99_ms", "cpu_cores", "memory_peak_mb")]
    figures: Row = {title: joined([one.get(name) for one in group], worst=False) for name, title in names}
    return {"replicas": replicas, **figures}
