"""The runner: begins each planned action when it may, ends it, and notices when the job is itself again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made
from random import Random

from lockstep.chaos.figures import longest_gap_s
from lockstep.chaos.planner import Planned, may_begin
from lockstep.chaos.running_job import StartedJob, runs
from lockstep.chaos.timeline import Timeline
from lockstep.chaos.vocabulary import Action, Deed, Member, Part
from lockstep.chaos.watching import Attendance, Reader
from lockstep.clock import US_PER_S, wall_us

TICK_S = 0.1
SETTLE_S = 1.5
"""A replica that was just killed says nothing of it: nobody is believed to be back before this."""
POSTPONED_S_MAX = 40.0
"""An action that could not begin for this long is left out, with the reason."""
RECOVERY_S_MAX = 600.0
"""After this a replica is not coming back. It needs seconds; on two cores at a load of 25 it took more than 240."""
LATE_SHARE_MAX = 0.5
"""A schedule that had to wait for slow recoveries may take this much longer than it was planned to."""
RESTARTS_MAX = 6
"""Ends of the whole job that nobody asked for, before chaos gives up."""
_UNTOLD = ("replica-started", "replica-phases", "spare", "faults-on")
"""Events of the job (how their names begin) that tell nothing new: who is well again is noticed from outside."""

_ERROR = re.compile(r"^(LS\d{4}) ", re.MULTILINE)
"""An error as `lockstep run` writes it into a log."""


@dataclass
class Doing:
    """One planned action and what became of it."""

    planned: Planned
    action: Action
    deed: Deed | None = None
    begun_us: int = 0
    struck_us: int = 0
    """When it hit: at its beginning, or when what it waited for happened."""
    undone_us: int = 0
    over_us: int = 0
    happened: bool = True
    lost: bool = False
    """Whether the job did not recover in time."""
    skipped: str = ""
    """Why it was never begun."""
    incarnation: int = 0
    epoch: int = -1
    """Of the replica that it took, when it did."""

    @property
    def under_way(self) -> bool:
        """Whether it has begun and the job has not recovered yet."""
        return self.deed is not None and not self.over_us


@dataclass
class Runner:
    """Runs a schedule against a running job. ``findings`` are what should not have happened."""

    running: StartedJob
    timeline: Timeline
    reader: Reader
    replicas: int
    stop_asked: Callable[[], bool] = lambda: False
    attendance: Attendance = made(default_factory=Attendance)
    able: Attendance = made(default_factory=Attendance)
    """Those that were well once and whose processes go on, whatever they say: a store that cannot be written silences
    everybody, and that is no excuse for standing still."""
    doings: list[Doing] = made(default_factory=list)
    findings: list[str] = made(default_factory=list)
    _event: int = 0
    _restarts: int = 0
    _were_well: set[tuple[str, int]] = made(default_factory=set)

    def run(self, schedule: Sequence[Planned], actions: Mapping[str, Action], duration_s: float) -> None:
        """Carry the schedule out; returns when everything is over and the job has recovered, or had time to."""
        waiting = [Doing(planned, actions[planned.action]) for planned in schedule]
        begun_s, late_s = time.monotonic(), 0.0
        while (now_s := time.monotonic() - begun_s) < duration_s + min(late_s, duration_s * LATE_SHARE_MAX):
            if self.stop_asked():
                break
            self.tick()
            if waiting and now_s >= waiting[0].planned.at_s + late_s:
                reason = self.begin(waiting[0])
                postponed_s = now_s - waiting[0].planned.at_s - late_s
                if reason is None or postponed_s > POSTPONED_S_MAX:
                    self._leave_out(waiting[0], reason)
                    late_s += postponed_s
                    waiting.pop(0)
            elif not waiting and not self._under_way():
                break
            time.sleep(TICK_S)
        for one in waiting:
            self._leave_out(one, "no time was left", tell=False)
        self.end_all()

    def tick(self) -> None:
        """Look at everything once."""
        self.running.feeding.check()
        self._look_at_job()
        self._tell_events()
        members = self.running.members()
        well = sorted(one.name for one in members if one.healthy)
        self._were_well |= {(one.name, one.incarnation) for one in members if one.healthy}
        go_on = [one for one in members if (one.name, one.incarnation) in self._were_well and runs(one.pid)]
        self.able.sample(sorted(one.name for one in go_on), wall_us())
        came, left = self.attendance.sample(well, wall_us())
        told = f"{len(well)} of {len(self.running.shape().names)} replicas" if came or left else ""
        for name in left:
            self.timeline.add("consequence", f"{name} left: {told} compute")
        for name in came:
            self.timeline.add("consequence", f"{name} computes: {told} do")
        for one in self._under_way():
            self._follow(one)

    def end_all(self) -> None:
        """End what is under way, and wait until the job is well."""
        for one in self._under_way():
            self._undo(one)
        deadline_s = time.monotonic() + RECOVERY_S_MAX
        while time.monotonic() < deadline_s and (self._under_way() or not self.running.all_healthy()):
            self.tick()
            time.sleep(TICK_S)
        if not self.running.all_healthy():
            self.findings.append(f"not all replicas were well within {RECOVERY_S_MAX:.0f} s of the end of the actions")

    def undo_all(self) -> None:
        """Only end what was begun, without waiting: for a chaos that is broken off."""
        for one in self._under_way():
            self._undo(one)

    def _under_way(self) -> list[Doing]:
        return [one for one in self.doings if one.under_way]

    def begin(self, one: Doing) -> str | None:
        """Begin an action if it may; else why not."""
        taken = [other.action.takes for other in self._under_way()]
        reason = may_begin(one.action, taken, self.replicas) or one.action.missing(self.running)
        if reason is not None:
            return reason
        before = self.running.members()
        one.begun_us = one.struck_us = wall_us()
        one.deed = one.action.begin(self.running, Random(one.planned.draw))  # noqa: S311  (repeatable on purpose)
        one.happened = one.deed.happened is None
        self._remember(one, before)
        self.doings.append(one)
        self.timeline.add("action", f"{one.planned.number}. {one.action.name}: {one.deed.text}", one.begun_us)
        return None

    def _remember(self, one: Doing, members: Sequence[Member]) -> None:
        """How far the replica was when it was hit: it is back when it is further, or started anew."""
        for member in members:
            if one.deed is not None and member.name == one.deed.replica:
                one.incarnation, one.epoch = member.incarnation, member.epoch

    def _leave_out(self, one: Doing, reason: str | None, *, tell: bool = True) -> None:
        if reason is not None:
            one.skipped = reason
            self.doings.append(one)
            if tell:
                self.timeline.add("action", f"{one.planned.number}. {one.action.name}: left out, {reason}")

    def _follow(self, one: Doing) -> None:
        assert one.deed is not None
        now_us = wall_us()
        self._ask_happened(one)
        done = one.deed.happened is not None and one.happened and (one.deed.ended is None or one.deed.ended())
        if not one.undone_us and (done or now_us >= one.begun_us + one.deed.lasts_s * US_PER_S):
            self._undo(one)
        if one.undone_us and now_us >= one.struck_us + SETTLE_S * US_PER_S and self._recovered(one):
            self._over(one)
        elif now_us - max(one.undone_us, one.begun_us) > RECOVERY_S_MAX * US_PER_S:
            self.findings.append(
                f"{one.planned.number}. {one.action.name}: the job had not recovered after {RECOVERY_S_MAX:.0f} s"
            )
            one.lost = True
            self._over(one)

    def _ask_happened(self, one: Doing) -> None:
        assert one.deed is not None
        if not one.happened and one.deed.happened is not None and one.deed.happened():
            one.happened, one.struck_us = True, wall_us()
            self._remember(one, self.running.members())
            self.timeline.add("consequence", f"{one.planned.number}. {one.action.name} has happened")

    def _undo(self, one: Doing) -> None:
        assert one.deed is not None
        if one.undone_us:
            return
        one.undone_us = wall_us()
        if one.deed.undo is not None:
            one.deed.undo()
            self.timeline.add("over", f"{one.planned.number}. {one.action.name} is over")
        self._ask_happened(one)

    def _recovered(self, one: Doing) -> bool:
        assert one.deed is not None
        if one.deed.recovered is not None:
            return one.deed.recovered()
        if one.action.takes - {Part.REPLICA, Part.INPUT, Part.SEALING}:
            return self.running.all_healthy()
        if Part.REPLICA not in one.action.takes:
            return True
        if not one.happened:
            return True  # it never came to it
        if one.deed.replica not in self.running.shape().names:
            return True  # an operation has taken it away
        member = next((each for each in self.running.healthy() if each.name == one.deed.replica), None)
        return member is not None and (member.incarnation != one.incarnation or member.epoch > one.epoch + 1)

    def _over(self, one: Doing) -> None:
        one.over_us = wall_us()
        if one.action.takes - {Part.INPUT, Part.SEALING}:
            after_s = (one.over_us - one.struck_us) / US_PER_S
            gap_s = longest_gap_s(self.reader.seen_epochs(), one.struck_us, one.over_us)
            said = f"{'NOT recovered' if one.lost else 'recovered'} after {after_s:.1f} s, longest gap {gap_s:.2f} s"
            self.timeline.add("over", f"{one.planned.number}. {said if one.happened else 'it never happened'}")

    def _look_at_job(self) -> None:
        """Start a job that has ended again, as a service manager does; an end that nobody caused is a finding."""
        if self.running.supervisor_pid() is not None:
            return
        parts = {part for one in self._under_way() for part in one.action.takes}
        if any(Part.JOB in one.action.takes and not one.undone_us for one in self._under_way()):
            return  # the action itself starts it again
        self._restarts += 1
        said = f"`lockstep run` ended with exit code {self.running.process.exit_code}"
        if not parts & {Part.DISK, Part.STORE, Part.NETWORK, Part.JOB}:
            self.findings.append(f"{said} although nothing was done to the whole job")
        elif not parts & {Part.STORE, Part.NETWORK, Part.JOB} and not excused_by_disk(self.running.said()):
            self.findings.append(f"{said} while the disk was full, and not because of the store or a sink")
        if self._restarts > RESTARTS_MAX:
            raise self.running.process.failure(f"{said}, for the {self._restarts}th time")
        self.timeline.add("consequence", f"{said}; it is started again")
        self.running.start_job()

    def _tell_events(self) -> None:
        for number, at_us, kind, replica, text in self.running.store.events(self._event, 1000):
            self._event = number
            if not kind.startswith(_UNTOLD):
                self.timeline.add("consequence", f"{replica or 'the job'}: {kind}, {text.splitlines()[0]}", at_us)


def excused_by_disk(said: str) -> bool:
    """Whether the last error in what a run said is one of the store or of a sink, as a full disk causes.

    >>> excused_by_disk("r0 is running\\nLS0508 no space left to write out.db\\n  why:  SQLite says LS0601")
    True
    >>> excused_by_disk("LS0405 the store is full\\nLS0603 two replicas disagree"), excused_by_disk("Traceback ...")
    (False, False)
    """
    codes = _ERROR.findall(said)
    return bool(codes) and codes[-1].startswith(("LS04", "LS05"))
