"""One part of the demo: start the job, feed it, kill its replicas, stop it, and check what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.bench.demo.checking import Comparison, alerts_of, compare, expected_alerts
from lockstep.bench.demo.events import EVENTS_PER_S, events
from lockstep.bench.demo.feeding import Fed, Feeder
from lockstep.bench.demo.figures import BEFORE_S
from lockstep.bench.demo.progress import Progress
from lockstep.bench.demo.running import JobRun, Kill
from lockstep.bench.demo.stillness import HANG_LIMIT_S, Signs, Stillness, signs, state_text
from lockstep.bench.demo.watching import SeenEpoch, Watcher
from lockstep.clock import US_PER_S, wall_us
from lockstep.connect.reading import read
from lockstep.errors import RunError

SEED = 20_210_920
LOOK_S = 0.1
SIGNS_S = 2.0
"""How often it is looked whether anything moves: that asks for every thread of the job."""
WARM_S = 9.0
"""Epochs of a JVM that has just begun are slow: they are left out of what is measured."""
SETTLE_S = 4.0
"""Between a replica's return and the next kill: its JVM has to be past its first epochs to carry the job alone."""
AFTER_ONE_S = 5.0
AFTER_LAST_S = 10.0
CLOSE_EPOCHS = 30
"""So many published epochs without records after the last one, a second apart: no window is open any more, however long
they took to come."""
REPEAT_WAIT_S = 1.5
"""After the last alert: time for a repeated one to show, if there were any."""


@dataclass(frozen=True)
class Alive:
    """A replica computed epochs from one moment to another (None: still at the end)."""

    replica: str
    first_us: int
    end_us: int | None = None


@dataclass(frozen=True)
class Part:
    """All that came of one part."""

    replicas: int
    seen_epochs: tuple[SeenEpoch, ...]
    kills: tuple[Kill, ...]
    back_s: tuple[float | None, ...]
    """For each kill, how long until all replicas computed again; None if the part ended first."""
    alive: tuple[Alive, ...]
    end_us: int
    """When feeding ended: what was measured ends here."""
    fed: Fed
    records_in_journal: int
    comparison: Comparison
    epochs_compared: int
    """Epochs whose digests at least two replicas reported."""
    digests_different: int

    def complaints(self) -> list[str]:
        """Everything that is not as it was promised."""
        found = list(self.comparison.complaints())
        if self.records_in_journal != self.fed.records:
            found.append(f"{self.fed.records} records were acknowledged, the journal holds {self.records_in_journal}")
        if self.digests_different:
            found.append(f"{self.digests_different} epochs have digests that differ")
        if self.replicas > 1 and not self.epochs_compared:
            found.append("no epoch was computed by two replicas, so nothing was compared")
        return found


@dataclass
class _Stage:
    """What is under way: the parts that the scenes work on, and what was noted on the way."""

    run: JobRun
    watcher: Watcher
    progress: Progress
    feeder: Feeder | None = None
    kills: list[Kill] = field(default_factory=list)
    back_s: list[float | None] = field(default_factory=list)
    alive: list[Alive] = field(default_factory=list)
    awaits: str = ""
    """What it waits for now, in words."""

    def look(self) -> None:
        """Notice who is alive, whether anything ended by itself, and tell the person."""
        self.run.check()
        if self.feeder is not None:
            self.feeder.check()
        now, computing = wall_us(), set(self.run.computing())
        for index, one in enumerate(self.alive):
            if one.end_us is None and one.replica not in computing:
                self.alive[index] = replace(one, end_us=now)
        shown = {one.replica for one in self.alive if one.end_us is None}
        self.alive += [Alive(name, now) for name in sorted(computing - shown)]
        self.progress.show(self._now())

    def _now(self) -> str:
        seen, progress = self.watcher.seen_epochs(), self.run.progress()
        head = max((one.epoch for one in progress.values()), default=-1)
        states = ", ".join(state_text(name, progress.get(name), head) for name in self.run.names)
        age = seen[-1].age_us if seen else None
        latency = f", latency {age / 1000:.0f} ms" if age is not None else ""
        waiting = f"waiting for {self.awaits}: " if self.awaits else ""
        return f"{waiting}{states}; epoch {seen[-1].epoch if seen else '-'}{latency}"

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Look on until something is so, however long it takes; LS0621 if nothing moves any more."""
        self.awaits = what
        stillness = Stillness(self._signs(), time.monotonic())
        next_signs_s = time.monotonic() + SIGNS_S
        while not done():
            self.look()
            now_s = time.monotonic()
            if now_s >= next_signs_s:
                next_signs_s = now_s + SIGNS_S
                stillness = stillness.after(self._signs(), now_s)
            if stillness.still_s(now_s) > HANG_LIMIT_S:
                raise self._hangs(what)
            time.sleep(LOOK_S)
        self.awaits = ""

    def _hangs(self, what: str) -> RunError:
        return RunError(
            "LS0621",
            f"the demo waits for {what}, and nothing has moved for {HANG_LIMIT_S:.0f} s",
            why=f"{self._now()}\n{self.run.last_words()}",
            hint="`lockstep demo --keep` keeps the logs; `lockstep doctor` looks at the machine.",
        )

    def _signs(self) -> Signs:
        progress = self.run.progress()
        missing = [name for name in self.run.names if name not in progress or progress[name].state != "running"]
        awaited = missing or self.run.names
        return signs(progress, awaited, self.run.processor_s(awaited), _alerts_seen(self))

    def during(self, seconds: float) -> None:
        """Look on for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.look()
            time.sleep(LOOK_S)


def play(folder: Path, replicas: int, progress: Progress) -> Part:
    """One part from start to check, in a folder of its own. No process is left, however it ends."""
    folder.mkdir()
    with ExitStack() as stack:
        run = JobRun(folder, replicas)
        stack.callback(run.close)
        watcher = Watcher(run.sink)
        stack.callback(watcher.stop)
        watcher.start()
        stage = _Stage(run, watcher, progress)
        _begin(stage, stack)
        if replicas == 1:
            _kill_the_only_one(stage)
        else:
            _kill_one_then_the_other(stage)
        return _finish(stage)


def _begin(stage: _Stage, stack: ExitStack) -> None:
    stage.progress.say("starting " + ("one JVM" if stage.run.replicas == 1 else f"{stage.run.replicas} JVMs"))
    stage.until(stage.run.ready, "the start")
    stage.feeder = Feeder(stage.run.store_folder, SEED)
    stack.callback(stage.feeder.kill)
    stage.progress.say(f"running; feeding {EVENTS_PER_S:,} events a second, waiting for a steady state")
    stage.during(WARM_S + BEFORE_S)


def _kill_the_only_one(stage: _Stage) -> None:
    _kill(stage, "r0")
    _wait_until_back(stage)
    back_us = wall_us()
    stage.until(lambda: _recovered(stage.watcher.seen_epochs(), back_us), "the end of the backlog")
    stage.during(AFTER_ONE_S)


def _kill_one_then_the_other(stage: _Stage) -> None:
    first = stage.run.newest_sealer()
    _kill(stage, first)
    _wait_until_back(stage)
    stage.during(SETTLE_S)
    _kill(stage, next(name for name in stage.run.names if name != first))
    stage.back_s.append(None)
    stage.during(AFTER_LAST_S)


def _kill(stage: _Stage, replica: str) -> None:
    role = ", which sealed the newest epoch" if stage.run.replicas > 1 and stage.run.newest_sealer() == replica else ""
    stage.progress.say(f"kill -9 {replica}{role}", "bold red")
    kill = stage.run.kill(replica)
    stage.kills.append(kill)
    stage.alive = [
        replace(one, end_us=kill.at_us) if one.replica == replica and one.end_us is None else one for one in stage.alive
    ]


def _wait_until_back(stage: _Stage) -> None:
    stage.until(lambda: not stage.run.ready(), "the kill to be noticed")
    stage.until(stage.run.ready, f"{stage.kills[-1].replica} to come back")
    back_s = (wall_us() - stage.kills[-1].at_us) / US_PER_S
    stage.back_s.append(back_s)
    stage.progress.say(f"{stage.kills[-1].replica} is back after {back_s:.1f} s")


def _recovered(seen: list[SeenEpoch], back_us: int) -> bool:
    """Whether what came while nobody computed is published: the newest epoch holds only what came later."""
    newest_us = next((one.oldest_us for one in reversed(seen) if one.oldest_us is not None), None)
    return newest_us is not None and newest_us > back_us


def _is_over(seen: list[SeenEpoch], expected: int) -> bool:
    """Whether all alerts have come, or none can come any more."""
    last = [one.oldest_us is None and one.rows == 0 for one in seen[-CLOSE_EPOCHS:]]
    return sum(one.rows for one in seen) >= expected or (len(last) == CLOSE_EPOCHS and all(last))


def _finish(stage: _Stage) -> Part:
    """Close all windows, stop the job, and compare."""
    assert stage.feeder is not None
    end_us = wall_us()
    fed, stage.feeder = stage.feeder.finish(), None
    expected = expected_alerts(events(fed.seed, fed.start_us, fed.blocks))
    # Alerts that never come are for the comparison to name, not a reason to end without one.
    stage.until(lambda: _is_over(stage.watcher.seen_epochs(), len(expected)), "the last alerts")
    stage.during(REPEAT_WAIT_S)
    stage.run.stop()
    stage.watcher.stop()
    comparison = compare(expected, alerts_of(read(stage.run.sink)))
    part = _part(stage, fed, end_us, comparison)
    for complaint in part.complaints():
        stage.progress.say(complaint, "bold red")
    if not part.complaints():
        stage.progress.say(f"checked: {comparison.published:,} alerts, none lost, none twice, none wrong", "green")
    return part


def _alerts_seen(stage: _Stage) -> int:
    return sum(one.rows for one in stage.watcher.seen_epochs())


def _part(stage: _Stage, fed: Fed, end_us: int, comparison: Comparison) -> Part:
    store, seen = stage.run.store, stage.watcher.seen_epochs()
    reporters = [{digest.replica for digest in store.digests(one.epoch)} for one in seen]
    different = {(one.epoch, one.sink) for one in store.divergences()} | set(store.digest_mismatches())
    return Part(
        replicas=stage.run.replicas,
        seen_epochs=tuple(seen),
        kills=tuple(stage.kills),
        back_s=tuple(stage.back_s),
        alive=tuple(stage.alive),
        end_us=end_us,
        fed=fed,
        records_in_journal=stage.run.records(),
        comparison=comparison,
        epochs_compared=sum(len(names) > 1 for names in reporters),
        digests_different=len(different),
    )
