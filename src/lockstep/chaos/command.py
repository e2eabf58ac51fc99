"""`lockstep chaos run` as a person meets it: the timeline while it runs, the verdict, the report, the exit code."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from lockstep.chaos.catalogue import chosen
from lockstep.chaos.figures import AFTER_S, Cost, cost
from lockstep.chaos.planner import hopeless
from lockstep.chaos.report import report_html
from lockstep.chaos.run import Outcome, Play, Wish, remove, workspace
from lockstep.chaos.runner import Doing, Runner
from lockstep.chaos.sink_contents import sink_contents
from lockstep.chaos.subject import Subject, load_subject
from lockstep.chaos.take_overs import ROUND, TakeOvers, rows, table
from lockstep.chaos.timeline import Timeline
from lockstep.chaos.vocabulary import Action, Need
from lockstep.clock import US_PER_S
from lockstep.config import STORE_FOLDER
from lockstep.errors import RunError
from lockstep.machine import find_java
from lockstep.store.opening import address_in, open_store


@dataclass(frozen=True)
class Order:
    """What the command line asked for."""

    job: str | None
    project: Path
    seed: int
    minutes: float
    replicas: int
    rate: float
    only: tuple[str, ...]
    reference: Path | None
    report: Path
    keep: bool
    as_json: bool
    verb: str = "run"
    """``run`` for a random schedule, ``operations`` for take-overs at every step."""

    def command(self) -> str:
        """The command that does it again."""
        elsewhere = ["--project", str(self.project)] if self.project.resolve() != Path.cwd() else []
        words = ["lockstep", *elsewhere, "chaos", self.verb, "--seed", str(self.seed)]
        words += ["--minutes", f"{self.minutes:g}"] if self.verb == "run" else []
        words += ["--replicas", str(self.replicas), "--rate", f"{self.rate:g}"]
        words += [word for name in self.only for word in ("--only", name)]
        words += ["--reference", str(self.reference)] if self.reference is not None else []
        words += [self.job] if self.job is not None else []
        return shlex.join(words)


def prepare(order: Order) -> Wish:
    """Refuse what cannot work before anything runs."""
    subject = load_subject(order.job, order.reference)
    actions = usable(chosen(order.only), subject, order.replicas)
    find_java()
    check_writable(order.report)
    return Wish(
        subject=subject,
        actions=actions,
        seed=order.seed,
        duration_s=order.minutes * 60,
        replicas=order.replicas,
        rate=order.rate,
        project=order.project,
        keep=order.keep,
    )


def run_chaos(order: Order, wish: Wish) -> int:
    """Do it and tell of it; the exit code: 0 if all checkers are content."""
    return _ended(order, _played(order, wish))


def prepare_take_overs(order: Order) -> tuple[Wish, TakeOvers]:
    """Every kind of operation that this job can go through, and the job."""
    subject = load_subject(order.job, order.reference)
    possible = usable(ROUND, subject, order.replicas)
    find_java()
    check_writable(order.report)
    wish = Wish(subject, possible, order.seed, 0.0, order.replicas, order.rate, order.project, order.keep)
    return wish, TakeOvers(order.seed, possible)


def run_take_overs(order: Order, wish: Wish, take_overs: TakeOvers) -> int:
    """Kill the coordinator at every step of every operation; the table, and the exit code as of ``run_chaos``."""
    outcome = _played(order, wish, take_overs.run)
    project = outcome.folder / "project"
    contents = [sink_contents(sink, project) for sink in wish.subject.sinks]
    with closing(open_store(address_in(project / STORE_FOLDER), wish.subject.graph.name)) as store:
        made = rows(take_overs.found, store, outcome.operations, contents, outcome.seen_epochs)
    code = _ended(order, outcome, {"take_overs": [asdict(one) for one in made]})
    if not order.as_json:
        print(table(made))
    return code


def _played(order: Order, wish: Wish, script: Callable[[Runner], None] | None = None) -> Outcome:
    timeline, folder = Timeline(_to_stderr), workspace()
    with interruptions(timeline) as interrupts:
        try:
            return Play(wish, folder, timeline, lambda: interrupts.count > 0, script).run()
        except BaseException:
            _to_stderr(f"kept {folder}; run it again with: {order.command()}")
            raise


def _ended(order: Order, outcome: Outcome, more: Mapping[str, Any] | None = None) -> int:
    order.report.write_text(report_html(outcome, costs(outcome), order.command()), encoding="utf-8")
    _tell_end(order, outcome)
    if order.as_json:
        print(json.dumps({**as_data(outcome, order.command()), **(more or {})}, indent=2, default=str))
    return 0 if outcome.passed else 1


def usable(actions: Sequence[Action], subject: Subject, replicas: int) -> list[Action]:
    """The actions that make sense for this job on this machine; those that do not are said, with the reason."""
    reasons = {action.name: why_not(action, subject, replicas) for action in actions}
    for name, reason in reasons.items():
        if reason is not None:
            _to_stderr(f"left out: {name}, {reason}")
    found = [action for action in actions if reasons[action.name] is None]
    if not found:
        raise RunError(
            "LS0655",
            "none of these actions can be done to this job here",
            why="; ".join(f"{name}: {reason}" for name, reason in reasons.items()) + ".",
            hint="`lockstep chaos list` says what each requires.",
        )
    return found


def why_not(action: Action, subject: Subject, replicas: int) -> str | None:
    """Why an action can never be done to this job on this machine; None if it can."""
    if (reason := action.impossible() or hopeless(action, replicas)) is not None:
        return reason
    if Need.FED in action.requires and not subject.feds:
        return "the job reads no journal that chaos could feed"
    if Need.EVENT_TIME in action.requires and not any(fed.time_fields for fed in subject.feds.values()):
        return "no journal that chaos feeds has event time"
    if Need.ONE_STAGE in action.requires and (len(subject.graph.stages) > 1 or subject.graph.loops):
        return "the job has several stages or a loop"
    return None


def costs(outcome: Outcome) -> dict[int, Cost]:
    """What each action that was done cost, by its number."""
    done = sorted((one for one in outcome.doings if one.deed is not None), key=lambda one: one.begun_us)
    found = {}
    for index, one in enumerate(done):
        over_us = (one.over_us or outcome.end_us) + round(AFTER_S * US_PER_S)
        following = [other.begun_us for other in done[index + 1 :] if other.begun_us > (one.over_us or outcome.end_us)]
        end_us = min([over_us, outcome.end_us, *following])
        found[one.planned.number] = cost(
            outcome.seen_epochs, one.struck_us, max(end_us, one.struck_us + 1), outcome.usual
        )
    return found


def as_data(outcome: Outcome, command: str) -> dict[str, Any]:
    """The outcome as plain data, for programs."""
    by_number = costs(outcome)
    return {
        "passed": outcome.passed,
        "seed": outcome.wish.seed,
        "replicas": outcome.wish.replicas,
        "command": command,
        "took_s": round(outcome.took_s, 1),
        "cut_short": outcome.cut_short,
        "epochs": len(outcome.seen_epochs),
        "records": dict(outcome.acknowledged),
        "compared_with": outcome.wish.subject.told_by,
        "steady": asdict(outcome.usual),
        "actions": [_action_data(one, outcome, by_number) for one in outcome.doings],
        "verdicts": [{**asdict(one), "passed": one.passed} for one in outcome.verdicts],
        "sinks": [asdict(one) for one in outcome.comparisons],
        "operations": [one.to_json() for one in outcome.operations],
        "timeline": [asdict(line) for line in outcome.lines],
    }


def _action_data(one: Doing, outcome: Outcome, by_number: dict[int, Cost]) -> dict[str, Any]:
    data: dict[str, Any] = {"number": one.planned.number, "action": one.action.name}
    if one.deed is None:
        return {**data, "left_out": one.skipped}
    return {
        **data,
        "at_s": round((one.struck_us - outcome.begun_us) / US_PER_S, 2),
        "text": one.deed.text,
        "replica": one.deed.replica,
        "data": dict(one.deed.data),
        "happened": one.happened,
        "recovered_after_s": round((one.over_us - one.struck_us) / US_PER_S, 2)
        if one.over_us and not one.lost
        else None,
        **asdict(by_number[one.planned.number]),
    }


def _tell_end(order: Order, outcome: Outcome) -> None:
    failed = [verdict.name for verdict in outcome.verdicts if not verdict.passed]
    _to_stderr(f"report: {order.report.resolve()}")
    if failed or order.keep:
        _to_stderr(f"kept {outcome.folder}")
    else:
        remove(outcome.folder)
    if failed:
        _to_stderr(f"FAILED ({', '.join(failed)}) with seed {order.seed}; run it again with: {order.command()}")
    else:
        done = sum(one.deed is not None for one in outcome.doings)
        _to_stderr(f"all checks passed: {done} actions, {len(outcome.seen_epochs)} epochs, seed {order.seed}")


def check_writable(report: Path) -> None:
    """It would be a pity to find out at the end that the report cannot be written."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        with report.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise RunError(
            "LS0653",
            f"the report cannot be written to {report}",
            why=f"{error.strerror}.",
            hint="--report FILE chooses another place.",
        ) from None


class Interrupts:
    """How often Ctrl-C was pressed: once ends the chaos and checks, twice (or before it began) ends all at once."""

    def __init__(self, timeline: Timeline) -> None:
        self.count = 0
        self._timeline = timeline

    def handle(self, number: int, frame: FrameType | None) -> None:
        """A signal came."""
        del frame
        self.count += 1
        if self.count > 1 or number == signal.SIGTERM or not self._timeline.begun:
            raise KeyboardInterrupt
        self._timeline.add("phase", "no more actions; letting it finish to check it (Ctrl-C again ends at once)")


@contextmanager
def interruptions(timeline: Timeline) -> Iterator[Interrupts]:
    """Ctrl-C and SIGTERM, handled while this lasts."""
    interrupts = Interrupts(timeline)
    before = {number: signal.signal(number, interrupts.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
