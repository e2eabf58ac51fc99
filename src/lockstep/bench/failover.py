"""`lockstep bench failover`: kill replicas with -9 under load; what a reader of the sink notices of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lockstep.bench.checking import Check, compare, window_rows
from lockstep.bench.children import Child, journal_feeder, observer, running
from lockstep.bench.events import JOURNAL, SCHEMA, expected_windows, read_sent
from lockstep.bench.gaps import Disturbance, SeenEpoch, disturbance, gaps_before, wants_sealer
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, percentile
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S, wall_us
from lockstep.config import Settings
from lockstep.connect.reading import Reader, read

RATE = 1000.0
WINDOW_S = 2
BEFORE_S = 20.0
AFTER_S = 20.0
QUIET_S = 20.0
BACK_LIMIT_S = 30.0
RATIO_LIMIT = 1.3
GIVE_UP_S = 180.0
"""A killed replica that is not back by then ends the bench: the limit is missed sixfold, and something is broken."""
SEALER_PATIENCE_S = 10.0
DRAIN_TIMEOUT_S = 90.0
LEAD_EPOCHS_MAX = Settings().run.lead_epochs_max
JOB = "bench-failover"
JOB_TEXT = f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}"))
    .event_time("at", out_of_order="2 seconds", idle_after="5 seconds")
    .key_by("customer")
    .window(ls.tumbling("{WINDOW_S} seconds"))
    .agg(events=F.count("*"), total=F.sum("seq"))
    .to(ls.files("{SINK_FOLDER}")))
"""


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    replicas: int
    kills: int
    warm_up_s: float
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the run that are not the default ones."""


@dataclass(frozen=True)
class Kill:
    """One kill and what followed."""

    replica: str
    at_us: int
    sealed_newest: bool
    survivor_lag_epochs: int | None
    back_s: float
    observed_s: float
    """For how long after the kill nothing else was done."""


@dataclass(frozen=True)
class Outcome:
    """Everything one run showed."""

    plan: Plan
    kills: Sequence[Kill]
    gaps: Sequence[Disturbance]
    steady: Row
    check: Check
    sent: int
    epochs: int
    compared_epochs: int
    different_digests: int


def run_failover(
    folder: Path, say: Say, *, quick: bool, kills: int | None = None, settings: Mapping[str, str] | None = None
) -> Report:
    """Two replicas with kills spread over both, then one replica for contrast."""
    plans = [Plan(2, 2, 30.0), Plan(1, 1, 15.0)] if quick else [Plan(2, 10, 90.0), Plan(1, 2, 45.0)]
    if kills is not None:
        plans = [replace(plan, kills=min(kills, plan.kills) if plan.replicas == 1 else kills) for plan in plans]
    plans = [replace(plan, settings=settings or {}) for plan in plans]
    outcomes = []
    for plan in plans:
        place = folder / f"replicas-{plan.replicas}"
        place.mkdir()
        say(f"{plan.replicas} replica{'s' if plan.replicas > 1 else ''}: starting, {RATE:.0f} events/s")
        outcomes.append(_measured(plan, place, say))
    return _report(outcomes, quick=quick)


def _measured(plan: Plan, folder: Path, say: Say) -> Outcome:
    with running(JobRun(Run(JOB, JOB_TEXT, plan.replicas, settings=plan.settings), folder)) as run:
        bench = _Failover(plan, run, say)
        with (
            running(observer(folder, run.manifests, ".json")) as observing,
            running(journal_feeder(folder, run.store_folder, RATE)) as feeder,
        ):
            bench.helpers = (observing, feeder)
            kills = bench.kills()
        bench.drain()
        compared, epochs = _compared(run), len(read_seen_epochs(folder / "seen.log"))
    sent = read_sent(folder / "sent.log")
    say(f"{plan.replicas} replicas: checking {len(sent):,} appends against the output")
    check = compare(expected_windows(sent, WINDOW_S * US_PER_S), window_rows(read(folder / SINK_FOLDER)))
    return Outcome(
        plan=plan,
        kills=kills,
        gaps=[_gaps(folder, kill, plan) for kill in kills],
        steady=bench.steady,
        check=check,
        sent=sum(one.count for one in sent),
        epochs=epochs,
        compared_epochs=compared,
        different_digests=len(bench.different),
    )


class _Failover:
    """One run under way."""

    def __init__(self, plan: Plan, run: JobRun, say: Say) -> None:
        self._plan = plan
        self._run = run
        self._folder = run.folder
        self._say = say
        self.helpers: Sequence[Child] = ()
        """Feeder and observer, while they run."""
        self.different: set[tuple[int, str]] = set()
        """Every (epoch, sink) whose digests were seen to differ; the store forgets old epochs, this does not."""
        self.steady: Row = {}
        """CPU, memory and gaps of the time before the first kill."""

    def kills(self) -> list[Kill]:
        """Warm up, then kill, wait until it is back, let it be quiet; again."""
        started_s = self._run.wait_running()
        self._say(f"running after {started_s:.0f} s; warming up for {self._plan.warm_up_s:.0f} s")
        self._watch(self._plan.warm_up_s - BEFORE_S)
        self._watch_steady()
        done: list[Kill] = []
        while len(done) < self._plan.kills:
            kill = self._kill(len(done), sum(one.sealed_newest for one in done))
            done.append(kill)
            gaps = _gaps(self._folder, kill, self._plan)
            self._say(
                f"kill {len(done)} of {self._plan.kills}: {kill.replica} (sealed newest: {kill.sealed_newest}), "
                f"gap p99 {gaps.before_p99_s:.2f} s before, longest {gaps.after_max_s:.2f} s after "
                f"({gaps.ratio:.1f}x, {gaps.after_max_at_s:.0f} s after the kill), back after {kill.back_s:.0f} s"
            )
        return done

    def drain(self) -> None:
        """Wait until every window of what was sent is published, and some epochs more: repeats would come then."""
        wanted = len(expected_windows(read_sent(self._folder / "sent.log"), WINDOW_S * US_PER_S))
        self.helpers = ()
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < DRAIN_TIMEOUT_S and read(self._folder / SINK_FOLDER).num_rows < wanted:
            self._watch(2.0)
        self._watch(5.0)

    def _watch_steady(self) -> None:
        before, begun_s = self._run.usage(), time.monotonic()
        self._watch(BEFORE_S)
        after, took_s = self._run.usage(), time.monotonic() - begun_s
        seen = read_seen_epochs(self._folder / "seen.log")
        gaps = gaps_before(seen, wall_us(), BEFORE_S)
        ages = _ages_ms(self._folder / SINK_FOLDER, [one for one in seen if one[1] >= wall_us() - BEFORE_S * US_PER_S])
        self.steady = {
            "replicas": self._plan.replicas,
            "gap_p50_s": percentile(gaps, 0.5),
            "gap_p99_s": percentile(gaps, 0.99),
            "age_p50_ms": percentile(ages, 0.5),
            "age_p99_ms": percentile(ages, 0.99),
            "cpu_cores": (after.cpu_s - before.cpu_s) / took_s,
            "memory_mb": after.memory_bytes / 1e6,
        }

    def _watch(self, seconds: float) -> None:
        """Let time pass, looking every quarter second whether all is still there and digests agree."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            for child in (self._run, *self.helpers):
                child.check()
            self.different.update(self._run.store.digest_mismatches())
            time.sleep(min(left_s, 0.25))

    def _kill(self, number: int, of_sealers: int) -> Kill:
        victim = f"r{number % self._plan.replicas}"
        if wants_sealer(number, of_sealers):
            self._await_sealer(victim)
        survivors = [f"r{other}" for other in range(self._plan.replicas) if f"r{other}" != victim]
        lags = [lag for name in survivors if (lag := self._run.lag(name)) is not None]
        sealed_newest = self._run.newest_sealer() == victim
        pid, at_us = self._run.kill_replica(victim)
        begun_s = time.monotonic()
        back_s = self._run.wait_until(lambda: self._is_back(victim, pid), GIVE_UP_S, f"bringing {victim} back")
        self._watch(QUIET_S)
        return Kill(
            replica=victim,
            at_us=at_us,
            sealed_newest=sealed_newest,
            survivor_lag_epochs=max(lags, default=None),
            back_s=back_s,
            observed_s=time.monotonic() - begun_s,
        )

    def _await_sealer(self, victim: str) -> None:
        """Wait for a moment in which the victim has sealed the newest epoch; not for ever."""
        deadline_s = time.monotonic() + SEALER_PATIENCE_S
        while time.monotonic() < deadline_s and self._run.newest_sealer() != victim:
            time.sleep(0.002)

    def _is_back(self, replica: str, old_pid: int) -> bool:
        said, lag = self._run.progress(replica), self._run.lag(replica)
        if said is None or lag is None or said.pid == old_pid:
            return False
        return said.state == "running" and said.epoch >= 0 and lag <= LEAD_EPOCHS_MAX


def _ages_ms(sink: Path, seen: Sequence[SeenEpoch]) -> list[float]:
    """How old the oldest record of each epoch was when the observer saw it."""
    reader = Reader(sink)
    found = [(at, reader.publication(epoch)) for epoch, at in seen]
    return [(at - one.ingested_oldest_us) / 1000 for at, one in found if one and one.ingested_oldest_us is not None]


def _gaps(folder: Path, kill: Kill, plan: Plan) -> Disturbance:
    # Alone, a replica takes longer to come back than the 20 s: its gap is shown whole.
    after_s = AFTER_S if plan.replicas > 1 else kill.observed_s
    return disturbance(read_seen_epochs(folder / "seen.log"), kill.at_us, BEFORE_S, after_s)


def _compared(run: JobRun) -> int:
    """How many of the kept epochs were computed by more than one replica: a comparison of nothing proves nothing."""
    head = run.store.head()
    if head is None:
        return 0
    epochs = range(run.store.floor(), head.epoch + 1)
    return sum(len({one.replica for one in run.store.digests(epoch)}) > 1 for epoch in epochs)


def _report(outcomes: Sequence[Outcome], *, quick: bool) -> Report:
    tables = [Figures(_title(one), [_kill_row(*pair) for pair in _numbered(one)]) for one in outcomes]
    tables.append(Figures("steady state, before the first kill", [one.steady for one in outcomes]))
    tables.append(
        Figures("output against an independent count of what was sent", [_check_row(one) for one in outcomes])
    )
    return Report(
        bench="failover",
        quick=quick,
        settings={
            "events_per_s": RATE,
            "window_s": WINDOW_S,
            "before_s": BEFORE_S,
            "after_s": AFTER_S,
            "plans": [asdict(one.plan) for one in outcomes],
            "job": JOB_TEXT,
        },
        tables=tables,
        verdicts=_verdicts(outcomes[0]) + _soundness(outcomes),
        notes=_notes(outcomes),
    )


def _title(one: Outcome) -> str:
    return "two replicas, each kill" if one.plan.replicas > 1 else "one replica, for contrast"


def _numbered(one: Outcome) -> list[tuple[int, Kill, Disturbance]]:
    return [(number, *pair) for number, pair in enumerate(zip(one.kills, one.gaps, strict=True), start=1)]


def _kill_row(number: int, kill: Kill, gaps: Disturbance) -> Row:
    return {
        "kill": number,
        "replica": kill.replica,
        "sealed_newest": kill.sealed_newest,
        "survivor_lag_epochs": kill.survivor_lag_epochs,
        "gap_p50_before_s": gaps.before_p50_s,
        "gap_p99_before_s": gaps.before_p99_s,
        "gap_max_before_s": gaps.before_max_s,
        "gap_max_after_s": gaps.after_max_s,
        "at_s": gaps.after_max_at_s,
        "ratio": gaps.ratio,
        "back_after_s": kill.back_s,
    }


def _check_row(one: Outcome) -> Row:
    return {
        "replicas": one.plan.replicas,
        "events_sent": one.sent,
        "epochs": one.epochs,
        "windows_expected": one.check.expected,
        "lost": one.check.lost,
        "repeated": one.check.repeated,
        "wrong": one.check.wrong,
        "different_digests": one.different_digests,
        "kept_epochs_compared": one.compared_epochs,
    }


def _verdicts(two: Outcome) -> list[Verdict]:
    of_sealers = sum(kill.sealed_newest for kill in two.kills)
    return [
        Verdict(
            "longest gap after a kill / p99 gap before it, worst kill", max(g.ratio for g in two.gaps), RATIO_LIMIT
        ),
        Verdict("seconds until a killed replica is back, worst kill", max(k.back_s for k in two.kills), BACK_LIMIT_S),
        Verdict("kills of the replica that sealed the newest epoch", of_sealers, 1, at_least=True),
    ]


def _soundness(outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [
        Verdict("windows lost", sum(one.check.lost for one in outcomes), 0),
        Verdict("windows repeated", sum(one.check.repeated for one in outcomes), 0),
        Verdict("windows with events lost or counted twice", sum(one.check.wrong for one in outcomes), 0),
        Verdict("epochs with different digests", sum(one.different_digests for one in outcomes), 0),
    ]


def _notes(outcomes: Sequence[Outcome]) -> list[str]:
    two, one = outcomes[0], outcomes[-1]
    met = sum(gaps.ratio <= RATIO_LIMIT for gaps in two.gaps)
    return [
        f"the ratio was within {RATIO_LIMIT:g}x for {met} of {len(two.gaps)} kills",
        f"with one replica the longest gap was {max(gaps.after_max_s for gaps in one.gaps):.1f} s",
        "age is that of an epoch's oldest record when the observer saw the epoch",
        "gaps are those a separate process saw that looked for the next manifest every 4 ms",
        "lost and wrong count (customer, window) rows; each has the number of its events and the sum of their numbers",
    ]
