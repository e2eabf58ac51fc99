"""One engine at work on one workload in a folder of its own: started, fed, watched, measured, killed, ended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.observer import read_counts, read_looks, read_seen_rows
from benchmarks.compare.process_trees import TreeMeter
from benchmarks.engines.checking import Comparison, compare
from benchmarks.engines.contract import Engine, Options, Records, Row, SeenRow, Wait, Workload
from benchmarks.engines.input import make_folders, read_input
from lockstep.agent.processes import kill_each, kill_tree
from lockstep.bench.children import Child
from lockstep.clock import wall_us
from lockstep.control.children import pass_by

READY_TIMEOUT_S = 120.0
SETTLED_TIMEOUT_S = 60.0
SILENCE_S_MAX = 60.0
FIRST_RESULT_TIMEOUT_S = 120.0
FEED_MAX_S = 3600.0
"""A feeder that nobody ends does so by itself."""


@dataclass(frozen=True)
class Verified:
    """What was fed and seen in all, and how it compares with the reference."""

    records: Records
    seen_rows: Sequence[SeenRow]
    waits: Sequence[Wait]
    after_end: Comparison
    """The output as a consumer finds it after the end."""
    live: Comparison
    """The rows as a live reader saw them come: a row that was taken back or written again counts here."""

    def sent_between(self, from_us: int, until_us: int) -> int:
        """How many records were sent within a time: under load a feeder may fall behind its rate."""
        every = (record for records in self.records.values() for record in records)
        return sum(from_us <= record["sent_us"] < until_us for record in every)


class LiveRun:
    """The processes of one measurement."""

    def __init__(
        self, engine: Engine, workload: Workload, folder: Path, options: Options, *, quick: bool, light: bool = False
    ) -> None:
        self.engine = engine
        self.workload = workload
        self.folder = folder
        self._options = options
        self._quick = quick
        self._light = light
        self._feeder: Child | None = None
        self._meters: list[TreeMeter] = []
        make_folders(workload, folder)
        self.launched_us = 0
        self.process = self._launch()
        arguments = self._observer_arguments()
        self._observer = self._python("the observer", "benchmarks.compare.observer", engine.name, *arguments)

    @property
    def meter(self) -> TreeMeter:
        """Of the process that was launched last."""
        return self._meters[-1]

    @property
    def seen_log(self) -> Path:
        """What the observer writes."""
        return self.folder / "seen.log"

    def feed(self) -> None:
        """Start the feeder and wait for the first result: an engine's first batch is no part of what is measured."""
        words = [self.workload.name, str(self.folder), "--seconds", str(FEED_MAX_S), *self._quick_flag]
        self._feeder = self._python("the feeder", "benchmarks.engines.feeder", *words)
        self.wait_first()

    def stop_feeding(self) -> None:
        """Let the feeder write its closing records and end."""
        if self._feeder is not None:
            self._feeder.stop()
            if self._feeder.exit_code != 0:
                raise self._feeder.failure(f"the feeder ended with exit code {self._feeder.exit_code}")

    def wait_ready(self) -> float:
        """Seconds from the launch until it waits for input; returns when it has settled, or does not in good time."""
        self._wait(lambda: self.engine.ready(self.folder), READY_TIMEOUT_S, f"starting {self.engine.title}")
        ready_s = (wall_us() - self.launched_us) / 1e6
        deadline_s = time.monotonic() + SETTLED_TIMEOUT_S
        while not self.engine.settled(self.folder) and time.monotonic() < deadline_s:
            self.watch(0.5)
        return ready_s

    def wait_first(self) -> None:
        """Wait for the first result."""
        what = f"the first result of {self.engine.title}"
        self._wait(lambda: next(read_looks(self.seen_log), None) is not None, FIRST_RESULT_TIMEOUT_S, what)

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        def checked() -> bool:
            self.check()
            return condition()

        self.process.wait_until(checked, timeout_s, what)

    def watch(self, seconds: float) -> None:
        """Let time pass; raises if the engine, the observer or the feeder fails meanwhile."""
        pass_by((self,), seconds)

    def check(self) -> None:
        """Raise if something ended that should not: the engine's root, the observer, or the feeder."""
        self.process.check()
        self._observer.check()
        if self._feeder is not None:
            self._feeder.check()

    def kill_victim(self) -> int:
        """Kill -9 what a dying machine would take; when."""
        pid = self.engine.victim(self.folder)
        if pid is None:
            raise self.process.failure(f"{self.engine.title} has nothing to kill")
        at_us = wall_us()
        kill_tree(pid)
        return at_us

    def kill_everything(self) -> int:
        """Kill -9 the whole tree, its root included; when."""
        at_us = wall_us()
        self._end_tree()
        return at_us

    def relaunch(self) -> None:
        """Start it again in its folder."""
        self.process = self._launch()

    def seen_us(self) -> list[int]:
        """When the observer saw anything."""
        return [seen_us for seen_us, _ in read_looks(self.seen_log)]

    def seen_since(self, at_us: int) -> bool:
        """Whether the observer saw anything after a moment."""
        return any(seen_us > at_us for seen_us in self.seen_us())

    @property
    def noted(self) -> int:
        """How much the observer has noted so far, in bytes."""
        return self.seen_log.stat().st_size if self.seen_log.exists() else 0

    def settle(
        self, timeout_s: float, settle_s: float, expected: Sequence[Row] | None = None, *, noted: int = 0
    ) -> Comparison:
        """End the feeding, then wait until the output is right or the time is over; how it then is.

        Compared is when more was seen than was ``noted``, and then nothing for a while: reading it all takes a core.
        """
        self.stop_feeding()
        deadline_s = time.monotonic() + timeout_s
        noted = self._wait_quiet(deadline_s, settle_s, noted)
        if expected is None:
            expected = self.workload.expected(read_input(self.workload, self.folder))
        while True:
            found = compare(self.workload, self.engine.rows(self.workload, self.folder), expected)
            if found.agrees or time.monotonic() > deadline_s:
                return found
            before, noted = noted, self._wait_quiet(deadline_s, settle_s, noted)
            if noted == before:
                return found

    def _wait_quiet(self, deadline_s: float, settle_s: float, before: int) -> int:
        """Until more is noted than ``before``, and then nothing for a while; how much is noted then.

        Whoever is silent for a minute has said everything: it is not waited for until the deadline.
        """
        size, since_s = before, time.monotonic()
        while time.monotonic() < deadline_s:
            if time.monotonic() - since_s >= (SILENCE_S_MAX if size == before else settle_s):
                break
            self._observer.check()
            if self.noted != size:
                size, since_s = self.noted, time.monotonic()
            time.sleep(0.1)
        return size

    def verified(self, after_end: Comparison) -> Verified:
        """Everything the observer has seen, read back; the observer is ended before."""
        self._observer.stop()
        records = read_input(self.workload, self.folder)
        seen_rows = read_seen_rows(self.seen_log)
        return Verified(
            records=records,
            seen_rows=seen_rows,
            waits=self.workload.visible(records).waits_ms(seen_rows),
            after_end=after_end,
            live=compare(self.workload, [one.row for one in seen_rows], self.workload.expected(records)),
        )

    def counts(self) -> list[tuple[int, int]]:
        """What a light observer has noted."""
        return read_counts(self.seen_log)

    def end(self) -> None:
        """End every process of this measurement at once."""
        for child in (self._observer, self._feeder):
            if child is not None:
                child.kill()
        self._end_tree()

    def _launch(self) -> Child:
        launch = self.engine.launch(self.workload, self.folder, self._options)
        program, *arguments = launch.arguments
        environment = {**os.environ, **launch.environment}
        self.launched_us = wall_us()
        child = Child(
            self.engine.title, arguments, self.folder / "engine.log", self.folder, environment, program=program
        )
        self._meters.append(TreeMeter(child.pid).__enter__())
        return child

    def _end_tree(self) -> None:
        """The tree as the meter knows it: children that lost their parent are in it."""
        family = self.meter.living()
        self.process.kill()
        kill_each(family)
        self.meter.__exit__(None, None, None)

    def _python(self, name: str, module: str, *words: str) -> Child:
        log = self.folder / f"{module.rpartition('.')[2]}.log"
        return Child(name, ["-m", module, *words], log, self.folder)

    def _observer_arguments(self) -> list[str]:
        light = ["--light"] if self._light else []
        return [self.workload.name, str(self.folder), str(self.seen_log), *light, *self._quick_flag]

    @property
    def _quick_flag(self) -> list[str]:
        return ["--quick"] if self._quick else []


@contextmanager
def live_run(
    engine: Engine, workload: Workload, folder: Path, options: Options, *, quick: bool, light: bool = False
) -> Iterator[LiveRun]:
    """A measurement under way; at its end nothing of it runs."""
    folder.mkdir(parents=True)
    run = LiveRun(engine, workload, folder, options, quick=quick, light=light)
    try:
        yield run
    finally:
        run.end()


def remove(folder: Path) -> None:
    """Forget a measurement's files: input and output of one are tens of megabytes."""
    shutil.rmtree(folder, ignore_errors=True)
