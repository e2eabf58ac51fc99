"""The report: one HTML file with everything in it, to open, keep or send."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from string import Template

import psutil

from lockstep.bench.demo.events import CUSTOMERS, EVENTS_PER_S
from lockstep.bench.demo.picture import draw
from lockstep.bench.demo.running import JOB_FILE
from lockstep.bench.demo.story import Story
from lockstep.machine import find_java

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep: a kill -9 that nobody notices</title>
<style>
  body { font: 16px/1.55 system-ui, sans-serif; color: #1f2937; background: #fafaf9; margin: 0 }
  main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
  h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem }
  h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
  p { max-width: 46rem; margin: .6rem 0 }
  .verdict { display: inline-block; padding: .3rem .8rem; border-radius: .4rem; font-weight: 600; margin: .6rem 0 }
  .good { background: #d1fae5; color: #065f46 } .bad { background: #fee2e2; color: #991b1b }
  figure { margin: 1.2rem 0; padding: 1rem; background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem }
  figure svg { width: 100%; height: auto; display: block }
  .scroll { overflow-x: auto }
  table { border-collapse: collapse; background: #fff; font-variant-numeric: tabular-nums }
  th, td { padding: .35rem .9rem; border-bottom: 1px solid #e5e7eb; text-align: right; white-space: nowrap }
  th:first-child, td:first-child { text-align: left }
  pre { background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem; padding: 1rem; overflow-x: auto }
  pre { font-size: .85rem }
  footer { color: #6b7280; font-size: .85rem; margin-top: 2.5rem }
</style>
</head>
<body><main>
<h1>A kill -9 that nobody notices</h1>
<p>$intro</p>
<div class="verdict $mood">$verdict</div>
$complaints
<figure>$picture</figure>
<h2>How to read it</h2>
<p>An epoch is a numbered slice of the input. For every epoch that became visible in the sink, the curve shows when, and
how old its oldest record was then, as seen by an independent reader that polls the sink every 10 ms. Both runs are laid
on each other at the first kill. With one replica nothing is published until it has been started again, and the records
that wait grow old; with two, the other one publishes the next epoch as it would have done anyway. The bars under the
curves show when each replica computed; a cross is a kill -9 of its driver, its JVM and its workers.</p>
<h2>In figures</h2>
<div class="scroll"><table>
<thead><tr><th></th>$heads</tr></thead>
<tbody>
$rows
</tbody>
</table></div>
<h2>How it was checked</h2>
<p>The events are a function of a seed. After each run they were made again and the alerts computed from them in plain
Python, without Spark and without looking at anything Lockstep had stored; a last event with a later time had closed all
windows, so that every alert was due. The rows of the sink were compared with that: each alert exactly once, with
exactly its values, and nothing else. The digests are fingerprints that each replica
reports for each epoch's output.</p>
<h2>The job</h2>
<pre>$job</pre>
<footer>$machine<br>$made</footer>
</main></body>
</html>
""")


def report_html(story: Story) -> str:
    """The report as a page that needs nothing else."""
    return _PAGE.substitute(
        intro=escape(
            f"A security monitor for {CUSTOMERS} customers reads {EVENTS_PER_S:,} document-shared events a second and "
            "counts, per customer and second, those that match a rule. It ran with one replica, which was killed; then "
            "with two, of which one was killed and, when it was back, the other."
        ),
        mood="bad" if story.complaints else "good",
        verdict="Not as promised" if story.complaints else "No alert lost, none twice, all digests agreed",
        complaints="".join(f"<p>{escape(complaint)}</p>" for complaint in story.complaints),
        picture=_inline_svg(draw(story, "svg")),
        heads="".join(f"<th>{escape(title)}</th>" for title in story.titles()),
        rows="\n".join(_row((row.label, *row.values)) for row in story.rows()),
        job=escape(JOB_FILE.read_text(encoding="utf-8").rstrip()),
        machine=escape(machine_text()),
        made=escape(f"made by `lockstep demo` at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC in {story.took_s:.0f} s"),
    )


def machine_text() -> str:
    """What it ran on, in one line."""
    memory_gb = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.machine()}; "
        f"Lockstep {version('lockstep')}, PySpark {version('pyspark')}, Java {find_java().version}, "
        f"Python {platform.python_version()}"
    )


def _row(cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _inline_svg(file: bytes) -> str:
    """Only the element: the XML head of a file has no place inside a page."""
    text = file.decode("utf-8")
    return text[text.index("<svg") :]
