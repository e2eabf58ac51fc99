"""Replicas that disagree, about output or state: found, judged, and what follows from it done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.control.supervise.judging import Judgement, judge
from lockstep.control.supervise.slots import Slot
from lockstep.control.supervise.state_comparison import disagreements, fresh_replicas
from lockstep.control.supervise.surroundings import Surroundings
from lockstep.errors import LockstepError, RunError
from lockstep.store.protocols import Divergence, Holder, Progress, Store, state_stage, subject_text

STATE_COMPARISON_INTERVAL_S = 1.0


class Verdicts:
    """Judges for a supervisor, which kills whoever was outvoted."""

    def __init__(
        self,
        store: Store,
        around: Surroundings,
        slots: Mapping[str, Slot],
        kill: Callable[[str, str, str], None],
        fail: Callable[[LockstepError], None],
        newcomers: Callable[[], Collection[str]],
    ) -> None:
        self._store, self._around, self._slots = store, around, slots
        self._kill, self._fail, self._newcomers = kill, fail, newcomers
        self._run = RunSettings()
        self._objected_s: dict[Divergence, float] = {}
        self._next_comparison_s = 0.0

    def look(self, progress: Mapping[str, Progress], settings: RunSettings) -> None:
        """See who disagrees with whom, and judge those who can be judged now."""
        self._run = settings
        self._compare_states(progress)
        self._judge(progress)

    def _incarnations(self, progress: Mapping[str, Progress]) -> dict[str, int]:
        """The replicas that run; not those that were outvoted, or wait to be judged about their output."""
        running = [slot.name for slot in self._slots.values() if slot.process is not None and not slot.outvoted]
        said = [one for one in map(progress.get, running) if one is not None and one.state != "diverged"]
        return {one.replica: one.incarnation for one in said}

    def _compare_states(self, progress: Mapping[str, Progress]) -> None:
        """Find states that differ: from there on it is a disagreement like one about output."""
        every = self._run.state_digest_every_epochs
        if every and self._around.elapsed_s() >= self._next_comparison_s:
            self._next_comparison_s = self._around.elapsed_s() + STATE_COMPARISON_INTERVAL_S
            for one in disagreements(self._store, self._incarnations(progress), every, self._around.now_us()):
                self._store.add_divergence(one)

    def _judge(self, progress: Mapping[str, Progress]) -> None:
        waiting = [one for one in self._store.divergences() if not one.verdict]
        live = [slot.name for slot in self._slots.values() if slot.process is not None and slot.name in progress]
        for one in waiting:
            if self._is_gone(one, progress):
                self._store.judge(one.epoch, one.sink, one.replica, "gone")
                self._objected_s.pop(one, None)
                continue
            waited_s = self._around.elapsed_s() - self._objected_s.setdefault(one, self._around.elapsed_s())
            now_us = one.at_us + round(waited_s * US_PER_S)
            judgement = self._judgement(one, live, progress, now_us)
            if judgement is None:
                continue
            # First the deeds, then the note that they are done: the store may refuse any of these writes.
            for name in judgement.wrong:
                self._quarantine(name, one, progress)
            if judgement.verdict == "reseed" and state_stage(one.sink) is not None:
                # Who disagrees about output waits for the verdict, and ends by itself.
                self._quarantine(one.replica, one, progress)
            self._announce(one, judgement.reason, published_is_wrong=judgement.published_is_wrong)
            self._store.judge(one.epoch, one.sink, one.replica, judgement.verdict)
            del self._objected_s[one]
            if judgement.verdict == "stop":
                self._fail(_disagreement(one))

    def _is_gone(self, one: Divergence, progress: Mapping[str, Progress]) -> bool:
        """Whether nobody is left to be judged. A vote about output stays in the sink; one about state goes with it."""
        said = progress.get(one.replica)
        if said is None or said.incarnation != one.incarnation:
            return True
        others = {str(Holder(name, number)) for name, number in self._incarnations(progress).items()}
        return state_stage(one.sink) is not None and one.published_by not in others

    def _judgement(
        self, one: Divergence, live: list[str], progress: Mapping[str, Progress], now_us: int
    ) -> Judgement | None:
        run, fresh = self._run, set(self._newcomers())
        if state_stage(one.sink) is not None:
            every = run.state_digest_every_epochs
            fresh |= fresh_replicas(self._store, one.epoch, one.sink, self._incarnations(progress), every)
        return judge(one, self._store.digests(one.epoch), live, run.on_divergence, now_us, fresh)

    def _quarantine(self, name: str, about: Divergence, progress: Mapping[str, Progress]) -> None:
        """Kill a replica that was outvoted, if the incarnation that voted is the one that runs."""
        digests = [one for one in self._store.digests(about.epoch) if one.sink == about.sink]
        voted = {digest.replica: digest.incarnation for digest in digests}
        publisher, _, incarnation = about.published_by.rpartition(".")
        voted.setdefault(publisher, int(incarnation))
        slot, said = self._slots.get(name), progress.get(name)
        runs = slot is not None and slot.process is not None and not slot.outvoted
        if slot is None or not runs or said is None or said.incarnation != voted.get(name):
            return
        self._kill(name, "quarantined", f"outvoted about epoch {about.epoch}, {subject_text(about.sink)}")
        slot.outvoted = True

    def _announce(self, one: Divergence, reason: str, *, published_is_wrong: bool) -> None:
        text = f"{one.replica} against {one.published_by}: {reason}\n{one.detail}"
        if published_is_wrong:
            text += f"\n  THE PUBLISHED COPY of epoch {one.epoch} IS THE MINORITY; both copies are kept"
        self._store.add_event("divergence", text, one.replica)


def _disagreement(one: Divergence) -> RunError:
    hint = 'mend the step that is not deterministic; on_divergence="continue" goes on with the published copy.'
    if state_stage(one.sink) is not None:
        hint = "seed one of the two from the other; `lockstep explain LS0603` says how to choose."
    return RunError(
        "LS0603",
        f"replicas disagree about epoch {one.epoch}, {subject_text(one.sink)}: {one.replica} and {one.published_by}",
        why=one.detail,
        hint=hint,
    )
