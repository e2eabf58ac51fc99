"""The page of a comparison: one HTML file that needs nothing else, with tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks.compare.plots import plots
from benchmarks.compare.results import Document
from benchmarks.compare.tables import tables
from lockstep.bench.report import RESULTS_FOLDER, Figures, cell

PAGE = "index.html"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #111827; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } .quiet { color: #6b7280; }
table { border-collapse: collapse; margin: .6rem 0 1.4rem; display: block; overflow-x: auto; }
th, td { text-align: right; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th { color: #6b7280; font-weight: 600; }
th:first-child, td:first-child, td.text { text-align: left; white-space: normal; }
td.bad { color: #b91c1c; font-weight: 600; } svg { max-width: 100%; height: auto; }
"""


def page(document: Document) -> str:
    """The whole page as text."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Lockstep: benchmarks</title>',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Lockstep and others, measured</h1>",
        *(f'<p class="quiet">{escape(run)}</p>' for run in document.get("runs") or [summary(document)]),
        _engines(document),
        *(f"<h2>{escape(plot.title)}</h2>{plot.svg}" for plot in plots(document)),
        *(_table(table) for table in tables(document)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def write_page(document: Document, project: Path) -> Path:
    """Write it beside the results."""
    path = project / RESULTS_FOLDER / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(document), encoding="utf-8")
    return path


def summary(document: Document) -> str:
    """When, on what, how it was run."""
    machine, versions = document["machine"], document["versions"]
    quick = " This was a quick run: to see that it works, not to quote." if document["quick"] else ""
    ended = " It was ended before all was measured." if document["interrupted"] else ""
    return (
        f"{document['at']}: {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, "
        f"{machine['os']}, Python {versions['python']}, Java {versions['java']}. "
        f"`{document['command']}`, {document['took_s'] / 60:.0f} minutes.{quick}{ended}"
    )


def _engines(document: Document) -> str:
    rows = [
        f"<tr><td>{escape(one['title'])}</td><td class=text>{escape(one['version'] or '-')}</td>"
        f"<td class=text>{escape(one['missing'] or one['guarantee'])}</td></tr>"
        for one in document["engines"].values()
    ]
    return f"<table><tr><th>engine</th><th>version</th><th>promise</th></tr>{''.join(rows)}</table>"


def _table(table: Figures) -> str:
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(_cell(row.get(name)) for name in columns)}</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>"


def _cell(value: float | int | str | bool | None) -> str:
    text = escape(cell(value))
    kinds: Sequence[str] = ()
    if isinstance(value, str):
        kinds = ("text", "bad") if value.startswith(("WRONG", "failed")) else ("text",)
    return f'<td class="{" ".join(kinds)}">{text}</td>' if kinds else f"<td>{text}</td>"
