"""The table of a run of the matrix: as text for the terminal, and as a page to open, keep or send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from string import Template

from lockstep.observe import pages
from tests.matrix.life import Cell

Table = Mapping[tuple[str, int], Sequence[Cell]]
"""(job, partitions of its main replica) -> its life."""
SIGNS = {"ok": "ok", "failed": "FAILED", "not applicable": "–", "not reached": "·"}
MOODS = {"ok": "ok", "failed": "no", "not applicable": "faint", "not reached": "faint"}

_STYLE = """\
  main { max-width: 110rem }
  p { max-width: 50rem }
  table { font-size: .85rem }
  th, td { padding: .3rem .5rem; text-align: left; vertical-align: bottom }
  thead th { max-width: 6rem }
  .ok { color: #065f46 } .no { color: #991b1b; font-weight: 600 } .faint { color: #6b7280 }
"""
_BODY = Template("""\
<h1>The matrix: every job through everything that can happen to it</h1>
<p>Each line is a small job with its first replica in one shape, each column an event of its life, in order. At the
end its output is compared, row by row, with a reference that is not Lockstep.</p>
<div class="verdict $mood">$verdict</div>
<div class="scroll"><table>
<thead><tr><th>job</th><th>partitions</th>$events<th>seconds</th></tr></thead>
<tbody>
$rows
</tbody>
</table></div>
<h2>Why</h2>
<ul>
$reasons
</ul>
<p>Run it again: <code>python -m tests.matrix --seed $seed</code></p>
""")


def summary(table: Table) -> str:
    """How many cells of each outcome there are."""
    cells = [cell for life in table.values() for cell in life]
    counted = [(outcome, sum(cell.outcome == outcome for cell in cells)) for outcome in SIGNS]
    said = ", ".join(f"{number} {outcome}" for outcome, number in counted if number)
    return f"{len({job for job, _ in table})} jobs, {len(table)} lives, {len(cells)} cells: {said}"


def has_failed(table: Table) -> bool:
    """Whether any cell has."""
    return any(cell.outcome == "failed" for life in table.values() for cell in life)


def text_table(table: Table) -> str:
    """One line for each life, one sign for each event, with the events' names below."""
    events = _events(table)
    width = max((len(job) for job, _ in table), default=0)
    lines = [
        f"{job:<{width}}  {partitions}  " + " ".join(f"{SIGNS[cell.outcome][:2]:<2}" for cell in life)
        for (job, partitions), life in table.items()
    ]
    named = [f"{number + 1:>3} {event}" for number, event in enumerate(events)]
    numbers = " ".join(f"{number + 1:<2}" for number in range(len(events)))
    return "\n".join([f"{'':<{width}}  p  {numbers}", *lines, "", *named])


def page(table: Table, seed: int) -> str:
    """The page."""
    rows = [_row(job, partitions, life) for (job, partitions), life in table.items()]
    reasons = [
        f"<li><b>{escape(job)}</b>, {partitions} partitions, {escape(cell.event)}: {escape(cell.why)}</li>"
        for (job, partitions), life in table.items()
        for cell in life
        if cell.why
    ]
    body = _BODY.substitute(
        seed=seed,
        mood="bad" if has_failed(table) else "good",
        verdict=escape(summary(table)),
        events="".join(f"<th>{escape(event)}</th>" for event in _events(table)),
        rows="\n".join(rows),
        reasons="\n".join(reasons) or "<li>every cell is ok</li>",
    )
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return pages.page(f"Lockstep matrix: seed {seed}", body, made, _STYLE)


def _events(table: Table) -> list[str]:
    return list(dict.fromkeys(cell.event for life in table.values() for cell in life))


def _row(job: str, partitions: int, life: Sequence[Cell]) -> str:
    cells = "".join(
        f'<td class="{MOODS[cell.outcome]}" title="{escape(cell.why)}">{SIGNS[cell.outcome]}</td>' for cell in life
    )
    seconds = sum(cell.took_s for cell in life)
    return f"<tr><td>{escape(job)}</td><td>{partitions}</td>{cells}<td>{seconds:.0f}</td></tr>"
