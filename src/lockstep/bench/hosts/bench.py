"""`lockstep bench hosts`: a job from topic to topic on three hosts; what a reader notices when parts of it die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockstep.bench.hosts.load import JOB_TEXT
from lockstep.bench.hosts.play import AFTER_S, BEFORE_S, DISK, EVENTS, RATE, RESULTS
from lockstep.bench.kafka.connector import connector_jars
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.statistics import Row, percentile
from lockstep.bench.workspace import Say
from lockstep.errors import RunError
from lockstep.services import fetch_ahead
from lockstep.services.hosts import obstacle, own_network

WARM_UP_S = 60.0
HOST_RATIO_LIMIT = 1.5
COORDINATOR_RATIO_LIMIT = 1.2
TAKE_OVER_LIMIT_S = 5.0
LEADER_RATIO_LIMIT = 1.5
PAUSE_TEXT = (
    "leader killed: pause_s is the whole gap between two outputs around the election, own_outage_s the longest time "
    "between two answers to a client that only writes. The gap has an ordinary epoch's time in it, which no store can "
    "shorten; pause_added_s is the gap without the median gap before. The target is about the whole gap"
)


def run_hosts(folder: Path, say: Say, *, quick: bool) -> Report:
    """All events once, or with ``quick`` the two shortest."""
    events = ("host", "coordinator") if quick else ("host", "host", "cable", "leader", "coordinator", "coordinator")
    jars = connector_jars(say) or ""
    return _report(played(folder, say, events, 15.0 if quick else WARM_UP_S, jars), quick=quick)


def played(
    folder: Path, say: Say, events: tuple[str, ...] = EVENTS, warm_up_s: float = 20.0, jars: str = ""
) -> dict[str, Any]:
    """Play events in a network of its own, or without one where that is not permitted; with the jars of Spark's own
    connector, one under a hand-written query too."""
    why_not = obstacle()
    if why_not is not None:
        say(f"three folders stand for three hosts on this machine: {why_not}")
        if DISK in events:
            say("no disk is filled: it would be this machine's")
            events = tuple(one for one in events if one != DISK)
    fetch_ahead("kafka", say)
    network = own_network() if why_not is None else []
    words = [sys.executable, "-m", "lockstep.bench.hosts.play", str(folder), ",".join(events), str(warm_up_s), jars]
    done = subprocess.run([*network, *words], check=False, stdout=sys.stderr)
    if done.returncode != 0:
        raise RunError(
            "LS0630",
            f"the cluster ended with exit code {done.returncode}",
            why="what it said last is above.",
            hint=f"logs of the agents are in {folder}/h*/lockstep (with --keep), of the run in {folder}/project.",
        )
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    return {**found, "on": "namespaces" if why_not is None else "folders"}


def _report(found: dict[str, Any], *, quick: bool) -> Report:
    latencies = [ms for _, ms in found["latencies"]]
    check = found["check"]
    rows = [
        {
            "event": one["name"],
            "gap_p99_before_s": one["before_p99_s"],
            "gap_max_after_s": one["after_max_s"],
            "ratio": one["ratio"],
            "as_before_after_s": one["back_s"],
            **one["figures"],
        }
        for one in found["events"]
    ]
    output = {
        "orders_sent": found["sent"],
        "rows": found["rows"],
        "users": check["users"],
        "lost": check["lost"],
        "repeated": check["repeated"],
        "divergences": found["divergences"],
        "latency_p50_ms": percentile(latencies, 0.5),
        "latency_p99_ms": percentile(latencies, 0.99),
    }
    return Report(
        bench="hosts",
        quick=quick,
        settings={
            "orders_per_s": RATE,
            "before_s": BEFORE_S,
            "after_s": AFTER_S,
            "hosts": found["on"],
            "job": JOB_TEXT,
        },
        tables=[
            *(Figures(f"event {number}: {row['event']}", [row]) for number, row in enumerate(rows, start=1)),
            *_beside(found),
            Figures("output against an independent computation", [output]),
        ],
        verdicts=_verdicts(found),
        notes=_notes(found) + check["complaints"],
    )


def _beside(found: dict[str, Any]) -> list[Figures]:
    """A killed host under Lockstep, and under hand-written PySpark."""
    ours = [{"query": "lockstep, two replicas", **one} for one in found["events"] if one["name"] == "host"]
    if "by_hand" not in found or not ours:
        return []
    by_hand = {"query": "by hand, a loop starts it again on another host", **found["by_hand"]}
    rows: list[Row] = [
        {
            "query": one["query"],
            "gap_p99_before_s": one["before_p99_s"],
            "gap_max_after_s": one["after_max_s"],
            "ratio": one["ratio"],
        }
        for one in (*ours, by_hand)
    ]
    return [Figures("a host killed, beside hand-written PySpark", rows)]


def _notes(found: dict[str, Any]) -> list[str]:
    notes = [one["text"] for one in found["events"]]
    if any(one["name"] == "leader" for one in found["events"]):
        notes.append(PAUSE_TEXT)
    if by_hand := found.get("by_hand"):
        return [
            *notes,
            f"by hand: Spark's own connector, which writes at least once ({by_hand['repeated']} rows came twice, "
            f"{by_hand['lost']} totals wrong); its checkpoint is in a folder that all hosts see",
        ]
    return [*notes, "without hand-written PySpark beside it: Spark's own connector for Kafka could not be had"]


def _verdicts(found: dict[str, Any]) -> list[Verdict]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in found["events"]:
        by_name.setdefault(one["name"], []).append(one)
    verdicts = [
        Verdict("users whose newest total is wrong", found["check"]["lost"], 0),
        Verdict("rows that came twice", found["check"]["repeated"], 0),
    ]
    if hosts := by_name.get("host"):
        worst = max(one["ratio"] for one in hosts)
        verdicts.append(Verdict("host killed: longest gap after / p99 gap before", worst, HOST_RATIO_LIMIT))
    if leaders := by_name.get("leader"):
        worst = max(one["figures"]["pause_s"] / one["figures"]["own_outage_s"] for one in leaders)
        verdicts.append(Verdict("leader killed: pause over the election / its own outage", worst, LEADER_RATIO_LIMIT))
    if killed := by_name.get("coordinator"):
        ratio = "coordinator killed: longest gap after / p99 gap before"
        verdicts.append(Verdict(ratio, max(one["ratio"] for one in killed), COORDINATOR_RATIO_LIMIT))
        taken_s = max(one["back_s"] for one in killed)
        verdicts.append(Verdict("seconds until another one coordinates", taken_s, TAKE_OVER_LIMIT_S))
        restarted = sum(one["figures"]["replicas_restarted"] for one in killed)
        verdicts.append(Verdict("replicas restarted by that", restarted, 0))
    return verdicts
