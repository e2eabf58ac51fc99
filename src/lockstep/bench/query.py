"""`lockstep bench query`: state asked from outside by key while 2,000 events/s flow, and what the epochs feel of it.

Some seconds with questions, some without, in turn: whatever else the machine does falls on both. Two steps are asked,
an aggregation of Spark's and a fold in Python; each answer is as of a published epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lockstep.bench.children import journal_feeder, observer, running
from lockstep.bench.events import CUSTOMERS, JOURNAL, SCHEMA
from lockstep.bench.gaps import periods_ms
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, median, percentile
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.control.children import Checked, pass_by
from lockstep.control.state.savepoints import Place
from lockstep.control.state.state_query import StateQueries, Wanted

RATE = 2000.0
ASK_INTERVAL_S = 0.1
QUERY_LIMIT_MS = 50.0
EPOCH_RATIO_LIMIT = 1.1
JOB = "bench-query"
STEPS = ("counted", "folded")
WAIT_TIMEOUT_S = 180.0


def job_text() -> str:
    """The job: events per customer so far, by Spark and by Python."""
    return f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
events = job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}")).key_by("customer")
events.agg(events=F.count("*"), last_seq=F.max("seq"), name="counted").to(ls.files("{SINK_FOLDER}"))
(events.fold(0, lambda n, record: n + 1, schema="events bigint", name="folded")
    .to(ls.files("folded"), name="folded_sink"))
"""


def run_query(folder: Path, say: Say, *, quick: bool) -> Report:
    """Warm up, then turns with and without questions."""
    warm, turns, turn_s = (50, 2, 8.0) if quick else (200, 6, 15.0)
    seen_log = folder / "seen.log"
    took: dict[str, list[float]] = {step: [] for step in STEPS}
    periods: dict[str, list[float]] = {"asked": [], "left alone": []}
    with (
        running(JobRun(Run(JOB, job_text()), folder)) as run,
        running(observer(folder, run.manifests, ".json")) as observing,
        running(journal_feeder(folder, run.store_folder, RATE)) as feeder,
        StateQueries(Place.of(folder, JOB)) as queries,
    ):
        say(f"running after {run.wait_running():.1f} s; {warm} epochs to warm up")
        run.wait_until(lambda: len(read_seen_epochs(seen_log)) >= warm, WAIT_TIMEOUT_S, "warming up")
        for _ in range(turns):
            for how, wait in (("left alone", pass_by), ("asked", _asking(queries, took))):
                from_us = wall_us()
                wait((run, observing, feeder), turn_s)
                periods[how] += periods_ms([one for one in read_seen_epochs(seen_log) if one[1] >= from_us])
            say(f"  epochs {median(periods['left alone']):.0f} ms left alone, {median(periods['asked']):.0f} ms asked")
    return _report(took, periods, {"warm_epochs": warm, "turns": turns, "turn_s": turn_s}, quick=quick)


def _asking(queries: StateQueries, took: dict[str, list[float]]) -> Callable[[Sequence[Checked], float], None]:
    """As :func:`pass_by`, with a question for each step again and again meanwhile."""

    def ask(children: Sequence[Checked], seconds: float) -> None:
        number, until_s = 0, time.monotonic() + seconds
        while time.monotonic() < until_s:
            for step in STEPS:
                number += 1
                begun_s = time.perf_counter()
                found = queries.ask(step, Wanted(key=(f"customer-{number * 7 % CUSTOMERS:03d}",)))
                took[step].append((time.perf_counter() - begun_s) * 1000)
                assert len(found.rows) == 1, "every customer has had events"
            pass_by(children, ASK_INTERVAL_S)

    return ask


def _report(
    took: dict[str, list[float]], periods: dict[str, list[float]], settings: dict[str, object], *, quick: bool
) -> Report:
    ratio = median(periods["asked"]) / median(periods["left alone"])
    questions: list[Row] = [
        {
            "step": step,
            "p50_ms": median(ms),
            "p90_ms": percentile(ms, 0.9),
            "p99_ms": percentile(ms, 0.99),
            "n": len(ms),
        }
        for step, ms in took.items()
    ]
    epochs: list[Row] = [
        {"epochs": how, "period_p50_ms": median(ms), "period_p90_ms": percentile(ms, 0.9), "n": len(ms)}
        for how, ms in periods.items()
    ]
    return Report(
        bench="query",
        quick=quick,
        settings={"events_per_s": RATE, **settings, "job": job_text()},
        tables=[Figures("a question by key", questions), Figures("from one visible epoch to the next", epochs)],
        verdicts=[
            Verdict(
                "median ms of a question by key", median([ms for one in took.values() for ms in one]), QUERY_LIMIT_MS
            ),
            Verdict("epoch period asked / left alone", ratio, EPOCH_RATIO_LIMIT),
        ],
        notes=["questions come from the bench's own process, which stays open; one replica with one core"],
    )
