"""`lockstep bench change`: a job is rescaled and upgraded under load; what a reader of its output notices.

The job keeps totals by key over 1,000 events/s. It goes from one partition to two, to four and back to one, and gets
new code with the same results, by the commands that users have. Beside it, in the same run, the same query written by
hand in PySpark, which is stopped, repartitioned and started again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lockstep.bench.change import ours, spark_side
from lockstep.bench.change.sides import FULL, QUICK, RATE, Changed, Outcome, Plan, Side
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.statistics import Row
from lockstep.bench.workspace import Say

RATIO_LIMIT = 1.5
SIDES: Mapping[str, Side] = {"lockstep": ours.measure, "spark": spark_side.measure}


def run_change(folder: Path, say: Say, *, quick: bool, sides: Mapping[str, Side] = SIDES) -> Report:
    """Every side in turn, each in a folder of its own."""
    plan = QUICK if quick else FULL
    outcomes = []
    for name, measure in sides.items():
        place = folder / name
        place.mkdir()
        outcomes.append(measure(place, say, plan))
    return report(outcomes, plan, quick=quick)


def report(outcomes: Sequence[Outcome], plan: Plan, *, quick: bool) -> Report:
    """All sides in one table, then the steps of each."""
    changes = [_change_row(one, changed) for one in outcomes for changed in one.changed]
    steps = [Figures(f"{one.side}: seconds of each step", [_step_row(c) for c in one.changed]) for one in outcomes]
    checks = [_check_row(one) for one in outcomes]
    return Report(
        bench="change",
        quick=quick,
        settings={"events_per_s": RATE, "plan": asdict(plan), "job": ours.job_text(is_new=False)},
        tables=[
            Figures("each change", changes),
            *steps,
            Figures("output against an independent count of what was sent", checks),
        ],
        verdicts=_verdicts(outcomes[0]) if outcomes[0].compared_epochs is not None else [],
        notes=[*_NOTES, *(f"{one.side}: {note}" for one in outcomes for note in one.notes)],
    )


_NOTES = (
    "gaps are those a separate process saw that looked for the next result every 4 ms; the longest one during a change "
    "counts from the command until 3 s after its end",
    f"free cores are those of {os.cpu_count()} that nobody used: before the change (the job and its load alone), and "
    "during it. The limit of the ratio is meant for a machine with free cores; fewer than one free core before means "
    "that old and new replicas share what the old one had",
    "lost counts events, repeated and wrong count rows: each has the events of a customer so far and their sum",
)


def _change_row(one: Outcome, changed: Changed) -> Row:
    gaps = changed.gaps
    return {
        "side": one.side,
        "change": changed.change.title,
        "took_s": changed.took_s,
        "gap_p50_before_s": gaps.before_p50_s,
        "gap_p99_before_s": gaps.before_p99_s,
        "gap_max_during_s": gaps.after_max_s,
        "at_s": gaps.after_max_at_s,
        "ratio": gaps.ratio,
        "free_cores_before": changed.free_cores_before,
        "free_cores_during": changed.free_cores_during,
    }


def _step_row(changed: Changed) -> Row:
    return {"change": changed.change.title, **{f"{name}_s": took_s for name, took_s in changed.steps.items()}}


def _check_row(one: Outcome) -> Row:
    return {
        "side": one.side,
        "events_sent": one.check.events,
        "rows": one.check.rows,
        "lost": one.check.lost,
        "repeated": one.check.repeated,
        "wrong": one.check.wrong,
        "different_digests": one.different_digests,
        "epochs_compared": one.compared_epochs,
    }


def _verdicts(one: Outcome) -> list[Verdict]:
    worst = max(changed.gaps.ratio for changed in one.changed)
    return [
        Verdict("longest gap during a change / p99 gap before it, worst change", worst, RATIO_LIMIT),
        Verdict("events lost", one.check.lost, 0),
        Verdict("rows repeated", one.check.repeated, 0),
        Verdict("rows with a wrong sum", one.check.wrong, 0),
        Verdict("epochs with different digests", one.different_digests or 0, 0),
        Verdict("epochs that two replicas computed", one.compared_epochs or 0, 1, at_least=True),
    ]
