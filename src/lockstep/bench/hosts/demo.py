"""`lockstep demo --cluster` from start to end: play the events, draw the picture, compare, say how it went."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from lockstep.bench.demo.command import (
    EXIT_INTERRUPTED,
    EXIT_NOT_AS_PROMISED,
    EXIT_OK,
    check_writable,
    stoppable,
)
from lockstep.bench.hosts.bench import played
from lockstep.bench.hosts.play import EVENTS
from lockstep.bench.statistics import percentile
from lockstep.bench.workspace import say_to_stderr
from lockstep.clock import US_PER_S
from lockstep.observe.svg import Drawing, Panel, Scale

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 78, 940, 70, 350
_COLOUR = "#0f766e"
_SHOWN_BEFORE_S = 15.0
_NAMES = {
    "host": "host killed",
    "cable": "cable pulled",
    "leader": "leader killed",
    "coordinator": "coordinator killed",
    "member": "member killed",
    "broker": "broker killed",
    "disk": "disk full",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Lockstep on three hosts</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#111827}}
table{{border-collapse:collapse}}td,th{{padding:.25em 1em .25em 0;text-align:left;vertical-align:top}}</style>
<h1>{title}</h1><p>{lead}</p>{picture}<table><tr><th>what was done<th>gap p99 before<th>longest gap after<th>ratio
<th>as before after</tr>{rows}</table><p>{output}</p></html>
"""


def run_cluster_demo(
    report: Path, picture: Path | None, *, keep: bool, as_json: bool, events: tuple[str, ...] = EVENTS
) -> int:
    """Run it; the exit code is 0 only if nothing was lost and nothing came twice."""
    for file in (report, picture):
        check_writable(file)
    folder = Path(tempfile.mkdtemp(prefix="lockstep-demo-cluster-"))
    try:
        with stoppable():
            found = played(folder, say_to_stderr(), events, warm_up_s=10.0)
        keep = keep or bool(complaints(found))
        drawn = draw(found)
        report.write_text(page(found, drawn), encoding="utf-8")
        if picture is not None:
            picture.write_text(drawn, encoding="utf-8")
    except KeyboardInterrupt:
        sys.stderr.write("stopped; no process is left behind\n")
        return EXIT_INTERRUPTED
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    _say(found, report, folder if keep else None, as_json=as_json)
    return EXIT_NOT_AS_PROMISED if complaints(found) else EXIT_OK


def complaints(found: dict[str, Any]) -> list[str]:
    """What was not as promised."""
    said = list(found["check"]["complaints"])
    if found["divergences"]:
        said.append(f"replicas disagreed {found['divergences']} times")
    if found["stopped"] != 0:
        said.append("`lockstep stop` did not end well")
    return said


def summary(found: dict[str, Any]) -> str:
    """The last line."""
    if wrong := complaints(found):
        return "NOT as promised: " + "; ".join(wrong[:5])
    users, rows = found["check"]["users"], found["rows"]
    return f"As promised: {found['sent']:,} orders of {users} users, {rows:,} rows published, none lost, none twice."


def draw(found: dict[str, Any]) -> str:
    """Latency over time as SVG, with each event marked."""
    zero_us = found["events"][0]["at_us"] - round(_SHOWN_BEFORE_S * US_PER_S)
    points = [((at_us - zero_us) / US_PER_S, ms / 1000) for at_us, ms in found["latencies"] if at_us >= zero_us]
    end_s, top_s = max(at_s for at_s, _ in points), max(latency_s for _, latency_s in points)
    drawing = Drawing(_WIDTH, _BOTTOM + 50)
    panel = Panel(drawing, Scale(0, end_s, _LEFT, _RIGHT), Scale(0, top_s * 1.1, _BOTTOM, _TOP))
    panel.grid([])
    drawing.text(8, 22, "age of the newest order when its total was there to be read, in seconds")
    panel.curve(points, _COLOUR, filled=True)
    for number, event in enumerate(found["events"]):
        at_s = (event["at_us"] - zero_us) / US_PER_S
        panel.down(at_s, dashes="3 3")
        is_last = at_s > 0.8 * end_s
        x, anchor = panel.x.px(at_s) + (-4 if is_last else 4), "end" if is_last else "start"
        drawing.text(x, _TOP - 4 - 14 * (number % 2), _NAMES.get(event["name"], event["name"]), anchor=anchor)
    panel.foot("seconds")
    return drawing.svg()


def page(found: dict[str, Any], drawn: str) -> str:
    """The report."""
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in _cells(one))}</tr>" for one in found["events"])
    hosts = (
        "Linux's namespaces" if found["on"] == "namespaces" else "folders of one machine (namespaces are not permitted)"
    )
    lead = (
        f"A job from topic to topic with two replicas, on three hosts made of {hosts}; one Kafka and three ZooKeepers "
        f"beside them; {found['sent']:,} orders."
    )
    return _PAGE.format(
        title="A machine dies, and nobody notices",
        lead=escape(lead),
        picture=drawn,
        rows=rows,
        output=escape(summary(found)),
    )


def _cells(event: dict[str, Any]) -> Sequence[str]:
    back = f"{event['back_s']:.1f} s" if event["back_s"] else ""
    gaps = f"{event['before_p99_s']:.2f} s", f"{event['after_max_s']:.2f} s"
    return event["text"], *gaps, f"{event['ratio']:.1f}", back


def _say(found: dict[str, Any], report: Path, kept: Path | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        ages = [ms for _, ms in found["latencies"]]
        sys.stdout.write(f"latency p50 {percentile(ages, 0.5):.0f} ms, p99 {percentile(ages, 0.99):.0f} ms\n")
        sys.stdout.write(f"{summary(found)}\n")
    sys.stderr.write(f"\nthe report with the picture: {report.resolve()}\n")
    if kept is not None:
        sys.stderr.write(f"what it left behind: {kept}\n")
