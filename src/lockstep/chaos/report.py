"""The report of a chaos run: one HTML file with everything in it, to open, keep or send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from string import Template

from lockstep.chaos.checking import Verdict
from lockstep.chaos.figures import Cost
from lockstep.chaos.operations import steps_told
from lockstep.chaos.picture import COLOURS, draw, group_of
from lockstep.chaos.run import Outcome, seconds_after
from lockstep.chaos.runner import Doing
from lockstep.chaos.timeline import SIGNS, Line
from lockstep.clock import US_PER_S
from lockstep.control.operations.model import Operation
from lockstep.observe.pages import page

_STYLE = """\
  main { max-width: 72rem }
  p { max-width: 50rem }
  table { font-size: .9rem }
  th, td { padding: .35rem .8rem; text-align: left; vertical-align: top }
  td.n, th.n { text-align: right; white-space: nowrap }
  td.faint { color: #6b7280 }
  .dot { display: inline-block; min-width: 1.3rem; padding: 0 .2rem; border-radius: .3rem }
  .dot { color: #fff; text-align: center }
  .ok { color: #065f46; font-weight: 600 } .no { color: #991b1b; font-weight: 600 }
  pre, code { font-size: .82rem }
  details summary { cursor: pointer }
"""
_BODY = Template("""\
<h1>Chaos: $title</h1>
<p>$intro</p>
<div class="verdict $mood">$verdict</div>
<p>Run it again: <code>$command</code></p>
<figure>$picture</figure>
<h2>The actions</h2>
<p>As an independent reader of the sink saw them, who polls it every 10 ms. Undisturbed, epochs became visible every
$gap_p50 (p99 $gap_p99), $latency_p50 (p99 $latency_p99) after their oldest record. <em>Gap</em>: the longest time
without a new epoch around the action. <em>Latency</em>: the oldest record that became visible until the job had
recovered. <em>Normal after</em>: until the last epoch whose latency was above $slow. <em>Recovered</em>: until every
replica that the action took computed again. Actions that overlap share their cost.</p>
<div class="scroll"><table>
<thead><tr><th></th><th class="n">at</th><th>action</th><th>what was done</th><th class="n">gap</th>
<th class="n">latency</th><th class="n">normal after</th><th class="n">recovered</th></tr></thead>
<tbody>
$actions
</tbody>
</table></div>
$operations<h2>The checks</h2>
<p>The output was compared with $told_by.</p>
<div class="scroll"><table>
<thead><tr><th>check</th><th></th><th>what was looked at</th></tr></thead>
<tbody>
$checks
</tbody>
</table></div>
<h2>The timeline</h2>
<details><summary>$lines_count lines</summary><pre>$lines</pre></details>
<h2>The job</h2>
<details><summary>$job_file</summary><pre>$job</pre></details>
""")


def report_html(outcome: Outcome, costs: Mapping[int, Cost], command: str) -> str:
    """The report as a page that needs nothing else."""
    usual, subject = outcome.usual, outcome.wish.subject
    failed = [verdict.name for verdict in outcome.verdicts if not verdict.passed]
    body = _BODY.substitute(
        title=escape(subject.graph.name),
        intro=escape(_intro(outcome)),
        mood="bad" if failed else "good",
        verdict=escape(f"Failed: {', '.join(failed)}" if failed else "Nothing lost, nothing twice, every check passed"),
        command=escape(command),
        picture=draw(outcome),
        gap_p50=seconds(usual.gap_p50_s),
        gap_p99=seconds(usual.gap_p99_s),
        latency_p50=seconds(usual.latency_p50_s),
        latency_p99=seconds(usual.latency_p99_s),
        slow=seconds(usual.slow_s),
        actions="\n".join(_action(one, outcome, costs) for one in outcome.doings),
        operations=_operations(outcome.operations),
        told_by=escape(subject.told_by),
        checks="\n".join(_check(one) for one in outcome.verdicts),
        lines_count=len(outcome.lines),
        lines=escape("\n".join(map(_line, outcome.lines))),
        job_file=escape(subject.loaded.path.name),
        job=escape(subject.loaded.path.read_text(encoding="utf-8").rstrip()),
    )
    made = f"made by `lockstep chaos run` at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC in {outcome.took_s:.0f} s"
    return page(f"Lockstep chaos: seed {outcome.wish.seed}", body, made, _STYLE)


def seconds(value: float) -> str:
    """A length of time, in milliseconds if short.

    >>> seconds(0.1234), seconds(2.345)
    ('123 ms', '2.3 s')
    """
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _intro(outcome: Outcome) -> str:
    wish = outcome.wish
    done = sum(one.deed is not None for one in outcome.doings)
    fed = sum(outcome.acknowledged.values())
    many = "1 replica" if wish.replicas == 1 else f"{wish.replicas} replicas"
    short = " It was cut short by Ctrl-C." if outcome.cut_short else ""
    seen = len(outcome.seen_epochs)
    return (
        f"The job ran with {many}, as `lockstep run` runs it; {fed:,} records were fed and {seen:,} "
        f"epochs became visible. {done} actions were done to it, all fixed by seed {wish.seed}.{short}"
    )


def _action(one: Doing, outcome: Outcome, costs: Mapping[int, Cost]) -> str:
    colour = COLOURS[group_of(one.action.takes)]
    dot = f'<td><span class="dot" style="background:{colour}">{one.planned.number}</span></td>'
    name = f"<td>{escape(one.action.name)}</td>"
    if one.deed is None:
        return f'<tr>{dot}<td></td>{name}<td class="faint" colspan="5">left out: {escape(one.skipped)}</td></tr>'
    cost = costs[one.planned.number]
    text = one.deed.text if one.happened else f"{one.deed.text} (it never came to it)"
    cells = [
        seconds(cost.gap_max_s),
        seconds(cost.latency_max_s),
        "at once" if not cost.normal_after_s else seconds(cost.normal_after_s),
        _recovered(one),
    ]
    figures = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    at = f'<td class="n">{seconds_after(outcome, one.struck_us):.1f} s</td>'
    return f"<tr>{dot}{at}{name}<td>{escape(text)}</td>{figures}</tr>"


def _operations(operations: Sequence[Operation]) -> str:
    """What became of each, and when each of its steps began; nothing if there were none."""
    if not operations:
        return ""
    rows = []
    for one in operations:
        took = seconds((one.ended_us - one.asked_us) / US_PER_S) if one.ended_us else "still open"
        arguments = ", ".join(f"{name} {value}" for name, value in one.arguments.items())
        state = f"{one.state}: {one.error}" if one.error else one.state
        cells = [str(one.number), f"{one.kind} {arguments}", state, took, steps_told(one)]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "<tr><th></th><th>operation</th><th>outcome</th><th>took</th><th>its steps, since it was asked for</th></tr>"
    table = f'<div class="scroll"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f"<h2>The operations</h2>\n{table}\n"


def _recovered(one: Doing) -> str:
    if not one.over_us or one.lost:
        return "not in time"
    return seconds((one.over_us - one.struck_us) / US_PER_S) if group_of(one.action.takes) != "input" else "–"


def _check(one: Verdict) -> str:
    said = '<span class="ok">passed</span>' if one.passed else '<span class="no">failed</span>'
    complaints = "".join(f"<br><code>{escape(complaint)}</code>" for complaint in one.complaints)
    return f"<tr><td>{escape(one.name)}</td><td>{said}</td><td>{escape(one.looked_at)}{complaints}</td></tr>"


def _line(line: Line) -> str:
    return f"{line.at_s:8.1f} s {SIGNS[line.kind]} {line.text}"
