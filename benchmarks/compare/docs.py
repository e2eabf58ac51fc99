"""docs/benchmarks.md, made from the stored results: nothing in it is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.merging import merged, replaced
from benchmarks.compare.page import write_page
from benchmarks.compare.plots import Plot, plots
from benchmarks.compare.results import Document, stored
from benchmarks.compare.tables import tables
from lockstep.bench.report import RESULTS_FOLDER, Figures, cell

DOCS = Path("docs") / "benchmarks.md"
IMAGES = "images"
NOTE = "<!-- Made by `python -m benchmarks docs` from benchmarks/results: change the generator or measure again. -->"
BEFORE, AFTER = "epoch-before.json", "epoch-after.json"
_OWN = ("epoch", "failover", "latency", "throughput", "kafka", "hosts", "change", "state", "query", "api", "store")

_INTRODUCTION = """\
# Benchmarks

Every figure here was measured on the machine named beside it, by the command named beside it, and is stored as JSON in
[benchmarks/results](../benchmarks/results). Nothing is left out because it is unfavourable.
`python -m benchmarks list` says what can be measured here; `make bench` compares again and writes this page anew;
*before and after* stays as it was measured."""

_METHOD = """\
## How the comparison is made

- One folder per measurement. A feeder process writes JSON-lines files into `input/`, each moved into place whole, every
  50 ms, at the workload's rates; or all of them at once, for throughput. All engines read the same directory with their
  own file connector, and write their results to `output/`. The engines take turns on the same machine.
- Before that comes one record, four seconds of silence and four at a tenth of the rate, so that an engine loads and
  compiles its code without a backlog; and then some seconds more at the full rate before anything is measured.
- An engine has settled before it is fed: Lockstep also boots a spare once it runs, which takes a core for some seconds.
- An observer process reads the results as they appear. The *wait* of a record is from the moment the feeder wrote it to
  the moment the observer had its result; for a window, from the record that made it final.
- Every run is verified: an independent computation over the input files says what had to come out. `right` means that
  the output is that, nothing lost, nothing repeated, nothing else. A run with a wrong result says so in the table. What
  a *live* reader saw again, because an engine took it back or wrote it twice, is counted too.
- Flink's file source takes the files that wait for it in any order. For throughput its side therefore joins them into
  one first; that takes some tenths of a second, which count.
- CPU is that of the whole process tree (every process is sampled four times a second; children that ended between two
  samples count as far as their parent's account has them). Memory is the highest sum of proportional set sizes.
- *Failover* kills, with -9, one replica's driver, JVM and workers (Lockstep), or the others' worker process, which a
  loop starts again at once, as an operator's would. The *longest gap* is the longest time without any new result.
  *Normal* means that for two seconds the median wait of each half second is at most twice the p99 from before.
- *Restart* kills everything and starts it again at once."""


def docs(documents: Sequence[Document]) -> str:
    """The page, from all stored results."""
    parts = [NOTE, "", _INTRODUCTION, "", *_comparison(documents), *_before_after(documents), *_own(documents)]
    return "\n".join(parts).rstrip() + "\n"


def write_docs(project: Path) -> Path:
    """Write the page and its pictures from what is stored in the project."""
    path = project / DOCS
    (path.parent / IMAGES).mkdir(parents=True, exist_ok=True)
    documents = stored(project / RESULTS_FOLDER)
    path.write_text(docs(documents), encoding="utf-8")
    if (comparison := merged(documents)) is not None:
        for name, plot in _pictures(comparison):
            (path.parent / name).write_text(plot.svg + "\n", encoding="utf-8")
    return path


def write_comparison(project: Path) -> Path | None:
    """Write the HTML page from what is stored in the project; None if nothing is."""
    comparison = merged(stored(project / RESULTS_FOLDER))
    return None if comparison is None else write_page(comparison, project)


def _pictures(document: Document) -> list[tuple[str, Plot]]:
    """The plots that the page shows, and where they are: of several of one kind the first."""
    first: dict[str, Plot] = {}
    for plot in plots(document):
        first.setdefault(f"{IMAGES}/bench-{plot.measure}.svg", plot)
    return list(first.items())


def _comparison(documents: Sequence[Document]) -> list[str]:
    document = merged(documents)
    if document is None:
        return ["## Compared with others", "", "Nothing is stored yet: `python -m benchmarks compare --save`.", ""]
    lines = ["## Compared with others", "", *(f"- {run}" for run in document["runs"]), ""]
    lines += [*_engines(document), *_workloads(document)]
    lines += [line for name, plot in _pictures(document) for line in (f"![{plot.title}]({name})", "")]
    for table in tables(document):
        lines += [f"### {table.title[0].upper()}{table.title[1:]}", "", *markdown(table), ""]
    if before := replaced(documents):
        lines += ["### Measured earlier, and replaced above by newer runs", "", *markdown(before), ""]
    return [*lines, _METHOD, ""]


def _engines(document: Document) -> list[str]:
    rows = [
        {
            "engine": one["title"],
            "version": one["version"],
            "promise": one["missing"] or one["guarantee"],
        }
        for one in document["engines"].values()
    ]
    return [*markdown(Figures("engines", rows)), ""]


def _workloads(document: Document) -> list[str]:
    rows = [
        {
            "workload": one["title"],
            "records/s": " and ".join(f"{rate:,.0f}" for rate in one["rates_per_s"].values()),
            "what is computed": one["steps"],
        }
        for one in document["workloads"].values()
    ]
    return [*markdown(Figures("workloads", rows)), ""] if rows else []


def _before_after(documents: Sequence[Document]) -> list[str]:
    """The same bench before and after the work on speed, figure by figure."""
    by_file = {one["file"]: one for one in documents}
    if BEFORE not in by_file or AFTER not in by_file:
        return []
    before, after = by_file[BEFORE], by_file[AFTER]
    lines = ["## Before and after", "", f"`lockstep bench epoch`, {before['at']} and {after['at']}.", ""]
    for title, rows in before["tables"].items():
        later = after["tables"].get(title, [])
        lines += [f"### {title[0].upper()}{title[1:]}", "", *markdown(Figures(title, paired(rows, later))), ""]
    return lines


def paired(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each row of either, under one another: what it is, then its figures. Rows of one name are averaged.

    >>> paired([{"replicas": 1, "p50_ms": 160.0}], [{"replicas": 1, "p50_ms": 70.0}])
    [{'when': 'before', 'replicas': 1, 'p50_ms': 160.0}, {'when': 'after', 'replicas': 1, 'p50_ms': 70.0}]
    """
    keys = list(dict.fromkeys(_name(row) for row in (*before, *after)))
    found = []
    for key in keys:
        for when, rows in (("before", before), ("after", after)):
            mine = [row for row in rows if _name(row) == key]
            if mine:
                found.append({"when": when, **_averaged(mine)})
    names = list(dict.fromkeys(name for row in found for name in row))
    return [{name: row.get(name) for name in names} for row in found]


def _name(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("replicas"), row.get("replica")


def _averaged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    averaged: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values and all(isinstance(value, float) for value in values):
            averaged[name] = sum(values) / len(values)
        else:
            averaged[name] = values[0] if values else None
    return averaged


def _own(documents: Sequence[Document]) -> list[str]:
    """The newest stored result of each of Lockstep's own benches; quick ones only if there is no other.

    A run of one side alone does not replace one of the others.
    """
    newest: dict[str, list[Document]] = {}
    for document in sorted(documents, key=lambda one: (not one["quick"], one["at"])):
        if document["bench"] in _OWN and document["file"] != BEFORE:
            others = [one for one in newest.get(document["bench"], []) if not _sides(one) <= _sides(document)]
            newest[document["bench"]] = [*others, document]
    lines = ["## Lockstep's own benches", ""] if newest else []
    for bench in _OWN:
        for document in newest.get(bench, []):
            lines += _bench(document)
    return lines


def _sides(document: Document) -> set[str]:
    return {str(row["side"]) for rows in document["tables"].values() for row in rows if "side" in row}


def _bench(document: Document) -> list[str]:
    machine = document["machine"]
    quick = ", a quick run" if document["quick"] else ""
    lines = [
        f"### lockstep bench {document['bench']}",
        "",
        f"{document['at']}, {machine['cores']} cores, {machine['memory_gb']} GB{quick}.",
        "",
    ]
    if targets := document["targets"]:
        rows = [
            {
                "target": one["target"],
                "value": one["value"],
                "limit": f"{one['kind']} {cell(one['limit'])}",
                "met": one["met"],
            }
            for one in targets
        ]
        lines += [*markdown(Figures("targets", rows)), ""]
    for title, rows in document["tables"].items():
        lines += [f"{title[0].upper()}{title[1:]}:", "", *markdown(Figures(title, rows)), ""]
    return [*lines, *(f"- {note}" for note in document["notes"]), ""]


def markdown(table: Figures) -> list[str]:
    """A table in Markdown, numbers to the right.

    >>> markdown(Figures("t", [{"side": "a|b", "p50_ms": 1.5}, {"side": "c", "p50_ms": None}]))
    ['| side | p50 ms |', '|---|---:|', '| a\\\\|b | 1.50 |', '| c | - |']
    """
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    right = [all(isinstance(row.get(name), int | float | None) for row in table.rows) for name in columns]
    lines = [
        _line(name.replace("_", " ") for name in columns),
        f"|{'|'.join('---:' if one else '---' for one in right)}|",
    ]
    return [*lines, *(_line(cell(row.get(name)) for name in columns) for row in table.rows)]


def _line(words: Iterable[str]) -> str:
    return f"| {' | '.join(word.replace('|', chr(92) + '|') for word in words)} |"
