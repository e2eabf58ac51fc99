"""The coordinator killed with -9 at every step of every kind of operation: the next one takes over and goes on."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from lockstep.chaos.actions.operations import RescalePartitions, RescaleReplicas, Restart, Upgrade, UpgradeInShadow
from lockstep.chaos.figures import longest_gap_s
from lockstep.chaos.operations import Asked
from lockstep.chaos.planner import Planned
from lockstep.chaos.runner import Doing, Runner
from lockstep.chaos.sink_contents import SinkContents
from lockstep.chaos.vocabulary import Action, Deed, Part, RunningJob
from lockstep.chaos.watching import SeenEpoch
from lockstep.clock import US_PER_S, wall_us
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import JOIN, REPLACE
from lockstep.store.protocols import Store

ROUND: tuple[Action, ...] = (
    RescalePartitions(),
    Upgrade(),
    Restart(),
    RescaleReplicas(),
    RescaleReplicas(),
    UpgradeInShadow(),
)
"""One operation after the other; the second rescale of replicas is the way back."""
ASKED = "asked"
"""The step before the first: nobody has taken the operation up."""
LOOK_S = 0.03
INTO_STEP_S = (0.0, 2.0)
"""How long after its beginning a step is hit that lasts for seconds: replicas boot, are seeded, catch up."""
RECOVERY_S_MAX = 300.0


@dataclass(frozen=True)
class TakeOver:
    """One coordinator that was killed, and the next one."""

    operation: int
    name: str
    """Of the operation, as an action of the vocabulary."""
    step: str
    after_epoch: int
    """The newest epoch that was sealed when it was killed."""
    killed_us: int
    doing: Doing


class KillCoordinator(Action):
    """In the middle of an operation, whoever is well; the next one is started at once."""

    name = "kill-coordinator"
    title = "kill -9 whoever coordinates the job at a step of an operation; the next one has to go on with it"
    takes = frozenset({Part.JOB})

    def __init__(self, operation: int, step: str) -> None:
        self._operation, self._step = operation, step

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill it, and start the next one."""
        del draw
        pid, now_us = running.supervisor_pid(), wall_us()
        assert pid is not None, "somebody has begun the step"
        os.kill(pid, signal.SIGKILL)
        return Deed(
            f"kill -9 of the coordinator ({pid}) at step {self._step} of operation {self._operation}",
            undo=running.start_job,
            recovered=lambda: taken_over_us(running.store, now_us) > 0,
        )


def taken_over_us(store: Store, killed_us: int) -> int:
    """When the next coordinator had the replicas of the one that was killed; 0 if it has not yet."""
    events = store.events(limit=10_000)
    return min((at_us for _, at_us, kind, _, _ in events if kind == "replica-adopted" and at_us > killed_us), default=0)


@dataclass
class TakeOvers:
    """Asks for one operation after the other, and kills whoever coordinates at each step that it sees."""

    seed: int
    actions: Sequence[Action] = ROUND
    found: list[TakeOver] = field(default_factory=list)
    _numbers: int = 0

    def run(self, runner: Runner) -> None:
        """All operations; returns when the last one is over and the job is well."""
        for action in self.actions:
            if runner.stop_asked():
                break
            one = self._begun(runner, action)
            if one is not None:
                self._follow(runner, one)
        runner.end_all()

    def _begun(self, runner: Runner, action: Action) -> Doing | None:
        self._numbers += 1
        one = Doing(Planned(self._numbers, 0.0, action.name, f"{self.seed}/{self._numbers}"), action)
        deadline_s, reason = time.monotonic() + RECOVERY_S_MAX, runner.begin(one)
        while reason is not None and time.monotonic() < deadline_s:
            _look(runner)
            reason = runner.begin(one)
        if reason is not None:
            runner.findings.append(f"{action.name} could not begin: {reason}")
        return one if reason is None else None

    def _follow(self, runner: Runner, one: Doing) -> None:
        assert one.deed is not None
        asked, book = Asked.from_json(one.deed.data), OperationBook(runner.running.store)
        assert asked is not None, "the actions of a round are operations"
        draw, hit = Random(one.planned.draw), set[str]()  # noqa: S311  (repeatable on purpose)
        while not one.over_us:
            now = book.find(asked.number)
            if now is None or not now.is_open:
                _look(runner)
            elif (step := _step(now)) not in hit:
                _wait_into(step, draw)
                now = book.find(asked.number) or now
                hit |= {step, _step(now)}
                if now.is_open:
                    self._kill(runner, asked.number, one.action.name, _step(now))
            else:
                _look(runner)

    def _kill(self, runner: Runner, operation: int, name: str, step: str) -> None:
        """Kill it, and wait until the next one has taken over."""
        head = runner.running.store.head()
        one = self._begun(runner, KillCoordinator(operation, step))
        if one is None:
            return
        after_epoch = head.epoch if head is not None else -1
        self.found.append(TakeOver(operation, name, step, after_epoch, one.begun_us, one))
        while not one.over_us:
            _look(runner)


def _step(operation: Operation) -> str:
    return operation.steps[-1].name if operation.steps else ASKED


def _wait_into(step: str, draw: Random) -> None:
    """Into the middle of what takes time; what is over in a moment is hit at once."""
    if step == JOIN or step.startswith(REPLACE):
        time.sleep(draw.uniform(*INTO_STEP_S))


def _look(runner: Runner) -> None:
    runner.tick()
    time.sleep(LOOK_S)


@dataclass(frozen=True)
class Row:
    """What became of one take-over."""

    operation: int
    name: str
    step: str
    taken_over_s: float | None
    gap_s: float
    outcome: str
    epochs: int
    """Sealed from this kill to the next one."""
    lost: int
    repeated: int


def rows(
    found: Sequence[TakeOver],
    store: Store,
    operations: Sequence[Operation],
    contents: Sequence[SinkContents],
    seen_epochs: Sequence[SeenEpoch],
) -> list[Row]:
    """Each kill with what a reader and the sinks say about the epochs from it to the next one."""
    sealed = [entry.epoch for entry in store.entries(0, 2**62)]
    # What was sealed as the job was stopped is published by its next run: nothing after it is in any sink.
    published = max((epoch for held in contents for epoch in held.epochs), default=-1)
    states = {one.number: one.state for one in operations}
    made = []
    for one, following in zip(found, [*found[1:], None], strict=True):
        last = following.after_epoch if following is not None else max(sealed, default=-1)
        span = [epoch for epoch in sealed if one.after_epoch < epoch <= last]
        counts = [Counter(held.epochs) for held in contents]
        taken_us = taken_over_us(store, one.killed_us)
        end_us = following.killed_us if following is not None else one.doing.over_us
        made.append(
            Row(
                operation=one.operation,
                name=one.name,
                step=one.step,
                taken_over_s=(taken_us - one.killed_us) / US_PER_S if taken_us else None,
                gap_s=longest_gap_s(seen_epochs, one.killed_us, max(end_us, one.killed_us + 1)),
                outcome=states.get(one.operation, "lost"),
                epochs=len(span),
                lost=sum(count[epoch] == 0 for epoch in span for count in counts if epoch <= published),
                repeated=sum(count[epoch] > 1 for epoch in span for count in counts),
            )
        )
    return made


HEAD = ("", "operation", "killed at step", "taken over", "longest gap", "outcome", "epochs", "lost", "repeated")


def table(made: Sequence[Row]) -> str:
    """The rows as people read them.

    >>> print(table([Row(1, "restart", "join", 2.34, 0.61, "done", 40, 0, 0)]))
       operation  killed at step  taken over  longest gap  outcome  epochs  lost  repeated
    1  restart    join            2.3 s       0.6 s        done     40      0     0
    1 kill of the coordinator in 1 operation: 1 done, 0 epochs lost, 0 repeated; taken over after 2.3 s at most
    """
    cells = [HEAD, *map(_cells, made)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([*lines, _summary(made)])


def _cells(one: Row) -> tuple[str, ...]:
    taken = f"{one.taken_over_s:.1f} s" if one.taken_over_s is not None else "never"
    counts = (str(one.epochs), str(one.lost), str(one.repeated))
    return (str(one.operation), one.name, one.step, taken, f"{one.gap_s:.1f} s", one.outcome, *counts)


def _summary(made: Sequence[Row]) -> str:
    states = Counter({one.operation: one.outcome for one in made}.values())
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    slowest = max((one.taken_over_s or float("inf") for one in made), default=0.0)
    lost, repeated = sum(one.lost for one in made), sum(one.repeated for one in made)
    kills = "1 kill" if len(made) == 1 else f"{len(made)} kills"
    many = "1 operation" if states.total() == 1 else f"{states.total()} operations"
    return (
        f"{kills} of the coordinator in {many}: {told}, {lost} epochs lost, {repeated} repeated; "
        f"taken over after {slowest:.1f} s at most"
    )
