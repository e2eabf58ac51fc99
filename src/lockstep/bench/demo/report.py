"""The report: one HTML file with everything in it, to open, keep or send."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from string import Template

from lockstep.bench.demo.events import CUSTOMERS, EVENTS_PER_S
from lockstep.bench.demo.picture import draw
from lockstep.bench.demo.results import Results
from lockstep.bench.demo.running import JOB_FILE
from lockstep.observe.pages import page

_STYLE = """\
  main { max-width: 60rem }
  p { max-width: 46rem }
  th, td { padding: .35rem .9rem; text-align: right; white-space: nowrap }
  th:first-child, td:first-child { text-align: left }
  pre { font-size: .85rem }
"""
_BODY = Template("""\
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
""")


def report_html(results: Results) -> str:
    """The report as a page that needs nothing else."""
    body = _BODY.substitute(
        intro=escape(
            f"A security monitor for {CUSTOMERS} customers reads {EVENTS_PER_S:,} document-shared events a second and "
            "counts, per customer and second, those that match a rule. It ran with one replica, which was killed; then "
            "with two, of which one was killed and, when it was back, the other."
        ),
        mood="bad" if results.complaints else "good",
        verdict="Not as promised" if results.complaints else "No alert lost, none twice, all digests agreed",
        complaints="".join(f"<p>{escape(complaint)}</p>" for complaint in results.complaints),
        picture=draw(results),
        heads="".join(f"<th>{escape(title)}</th>" for title in results.titles()),
        rows="\n".join(_row((row.label, *row.values)) for row in results.rows()),
        job=escape(JOB_FILE.read_text(encoding="utf-8").rstrip()),
    )
    made = f"made by `lockstep demo` at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC in {results.took_s:.0f} s"
    return page("Lockstep: a kill -9 that nobody notices", body, made, _STYLE)


def _row(cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
