"""The one door: what is seen goes in, decisions come out. Pure: no clock, no thread, no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep.clock import US_PER_S
from lockstep.config import PolicyMode, PolicySettings, RunSettings
from lockstep.control.policy.attempts import Attempts
from lockstep.control.policy.decisions import DECISIONS_MAX, Advise, Decision, Operation, Replace, Rescale
from lockstep.control.policy.diagnosis import Diagnoser, Diagnosis
from lockstep.control.policy.observations import Observation
from lockstep.control.policy.scaling import MORE_PARTITIONS, Scaler, Size
from lockstep.control.policy.tolerance import Choice, Tolerance, mode_of

FORMAT = 1
"""Of what is kept; another one is not read, and the policy begins anew."""
UNDER_WAY_US = 1800 * US_PER_S
"""An operation that has not changed the job by then has failed, as far as the policy can tell."""
ADVICE_AGAIN_US = 24 * 3600 * US_PER_S
"""The same advice is given once a day."""
ADVICE_MAX = 64


class Policy:
    """Decides about a job's partitions, replicas and spares.

    >>> policy = Policy(PolicySettings(scaling="auto", window_s=60), RunSettings())
    >>> for minute in range(1, 6):
    ...     epochs = [(900.0, 0.95), (500.0, 0.55)] * 4
    ...     seen = Observation(minute * 60_000_000, 60.0, 39_000, 0, epochs, partitions=1, cores=8, replicas=2)
    ...     policy.observe(seen)
    ...     for decision in policy.decide(seen.at_us):
    ...         print(decision.what, decision.operation)
    2 partitions instead of 1 Rescale(partitions=2, replicas=None, spares=None)
    """

    def __init__(self, settings: PolicySettings, run: RunSettings) -> None:
        self._settings = settings
        self._run = run
        self.scaler = Scaler(settings, run)
        self.tolerance = Tolerance(settings)
        self.diagnoser = Diagnoser()
        self.attempts = Attempts()
        self.decisions: list[Decision] = []
        """The newest, with what came of them."""
        self._seen: Observation | None = None
        self._is_whole = False
        self._under_way: Decision | None = None
        self._told_us: dict[str, int] = {}
        self._now_us = 0

    def observe(self, seen: Observation) -> None:
        """Take one window into account. A short one, because something has failed, says nothing about the load."""
        self._seen = seen
        self.tolerance.observe(seen)
        self._is_whole = seen.window_s >= self._settings.window_s / 2
        if self._is_whole:
            self.scaler.observe(seen)
            self.diagnoser.observe(seen, self.scaler.rate_per_s, self._run.epoch_target_s, self.tolerance.rates)

    def decide(self, now_us: int) -> list[Decision]:
        """What to do now; at most one thing that changes the job, and nothing while another is under way."""
        if self._seen is None:
            return []
        self._now_us = now_us
        self._note_outcomes(self._seen, now_us)
        made: list[Decision] = []
        for decision in self._all(self._seen, now_us):
            if decision.is_advice:
                made += self._once(decision)
            elif self._under_way is None:
                self._under_way = decision
                made.append(decision)
                if isinstance(decision.operation, Replace):
                    self.diagnoser.trying(decision.kind, decision.operation, now_us)
        self.decisions = [*self.decisions, *made][-DECISIONS_MAX:] if made else self.decisions
        return made

    def refused(self, decision: Decision, why: str, now_us: int) -> None:
        """It could not be carried out: that is its outcome, and it is not asked for again for a day."""
        self.attempts.did_not_help(decision.what, now_us)
        self._end(decision, f"refused: {why}")

    def _all(self, seen: Observation, now_us: int) -> list[Decision]:
        """In the order of urgency: output that may pause, then what is wrong, then size."""
        made: list[Decision] = []
        if self._settings.tolerance != "off":
            made += self._about_faults(seen, now_us)
        if self._is_whole and self._settings.scaling != "off":
            made += [self._about_finding(one, now_us) for one in self.diagnoser.findings(self.attempts, now_us)]
            made += self._about_size(seen, now_us)
        return [one for one in made if one.is_advice or not self.attempts.is_useless(one.what, now_us)]

    def _about_faults(self, seen: Observation, now_us: int) -> list[Decision]:
        made: list[Decision] = []
        fault = self.tolerance.crashes_by_itself(now_us)
        if fault:
            what = "mend the job: more replicas do not help"
            why = f"it crashes by its own fault, again and again in the same epoch ({fault})"
            made.append(Decision("own-fault", now_us, what, why, Advise(what), {"fault": fault}))
        choice = self.tolerance.choose(seen, self._replicas_max(seen), now_us)
        if choice is not None:
            made += self._mode_change(choice, seen, now_us)
        return made

    def _replicas_max(self, seen: Observation) -> int:
        budget = self._settings.budget_cores
        return budget // max(1, seen.partitions) if budget else self._settings.replicas_max

    def _mode_change(self, choice: Choice, seen: Observation, now_us: int) -> list[Decision]:
        settings, current = self._settings, mode_of(seen.replicas, seen.spares)
        inputs = {
            "gaps_per_month": dict(choice.gaps),
            "accepted_per_month": settings.gaps_per_month,
            "left": self.tolerance.left,
            "max_gap_s": settings.max_gap_s,
            "recovery_s": {kind: self.tolerance.recoveries.mean_s(kind) for kind in ("cold", "warm")},
            "between_failures_h": self.tolerance.between_failures_s / 3600,
        }
        made: list[Decision] = []
        if choice.unmet:
            made.append(
                Decision("unmet", now_us, "what you ask for is not met", choice.unmet, Advise(choice.unmet), inputs)
            )
        if choice.mode != current:
            up = choice.mode.cost > current.cost
            now, then = choice.gaps[current.name], choice.gaps[choice.mode.name]
            why = (
                f"{current.name} would pause for more than {settings.max_gap_s:g} s about {now:.2g} times a month, "
                f"{choice.mode.name} {then:.2g} times; {settings.gaps_per_month:g} are accepted"
            )
            what = f"{choice.mode.name} instead of {current.name}"
            # With several replicas a spare only shortens recovery: however many there are, they stay.
            spares = choice.mode.spares if choice.mode.replicas == 1 else None
            wish = Rescale(replicas=choice.mode.replicas, spares=spares)
            made.append(
                self._made("more-replicas" if up else "fewer-replicas", what, why, wish, inputs, settings.tolerance)
            )
        return made

    def _about_finding(self, one: Diagnosis, now_us: int) -> Decision:
        mode = self._settings.scaling
        if one.resolution is None:
            what = "the job is too slow for what comes"
            return Decision(one.symptom, now_us, what, one.why, Advise(what), one.inputs)
        if isinstance(one.resolution, Advise):
            return Decision(one.symptom, now_us, one.resolution.text, one.why, one.resolution, one.inputs)
        return self._made(one.symptom, one.action, one.why, one.resolution, one.inputs, mode)

    def _about_size(self, seen: Observation, now_us: int) -> list[Decision]:
        budget = self._settings.budget_cores
        most = min(self._settings.partitions_max, max(1, seen.cores))
        most = min(most, budget // max(1, seen.replicas)) if budget else most
        size = self.scaler.wanted(most, self.attempts, now_us)
        if size is None:
            return []
        if size.partitions > seen.partitions and self.diagnoser.explains_pressure(self.attempts, now_us):
            return []
        return self._size_change(size, seen)

    def _size_change(self, size: Size, seen: Observation) -> list[Decision]:
        up = size.partitions > seen.partitions
        what = f"{size.partitions} partition{'s' if size.partitions != 1 else ''} instead of {seen.partitions}"
        why = size.why
        if up and size.wanted != size.partitions:
            needed = f"{size.wanted} would be right" if size.wanted else "even that is not enough"
            why = f"{why}; {needed}, but cores, budget_cores or partitions_max allow no more"
        wish = Rescale(partitions=size.partitions)
        return [self._made("scale-up" if up else "scale-down", what, why, wish, size.inputs, self._settings.scaling)]

    def _made(
        self, kind: str, what: str, why: str, wish: Operation, inputs: Mapping[str, Any], mode: PolicyMode
    ) -> Decision:
        operation = wish if mode == "auto" else Advise(what)
        return Decision(kind, self._now_us, what, why, operation, inputs)

    def _once(self, decision: Decision) -> list[Decision]:
        """The same advice once a day: people read it, or do not."""
        key = f"{decision.kind}: {decision.what}"
        told_us = self._told_us.get(key)
        if told_us is not None and decision.at_us - told_us < ADVICE_AGAIN_US:
            return []
        self._told_us.pop(key, None)
        self._told_us[key] = decision.at_us
        while len(self._told_us) > ADVICE_MAX:
            del self._told_us[next(iter(self._told_us))]
        return [decision]

    def _note_outcomes(self, seen: Observation, now_us: int) -> None:
        if self._under_way is not None:
            self._look_after(self._under_way, seen, now_us)
        judged = self.scaler.judged() if self._is_whole and self.scaler.trial is not None else None
        if judged is None:
            return
        trial, gained, helped = judged
        what = f"capacity is {gained:.2g} times what it was with {trial.before} partitions"
        if trial.after > trial.before and not helped:
            self.attempts.did_not_help(MORE_PARTITIONS, now_us)
            what += ": it did not help, and is not tried again for a day"
        wish = Rescale(partitions=trial.after)
        asked = next((one for one in reversed(self.decisions) if one.operation == wish), None)
        if asked is not None:
            self._end(asked, what)

    def _look_after(self, decision: Decision, seen: Observation, now_us: int) -> None:
        """Whether what was asked for has been done."""
        took_s = (now_us - decision.at_us) / US_PER_S
        if _is_done(decision.operation, seen, took_s, self._settings.window_s):
            self._end(decision, f"done after {took_s:.0f} s")
        elif now_us - decision.at_us >= UNDER_WAY_US:
            self.attempts.did_not_help(decision.what, now_us)
            self._end(decision, f"not done after {took_s / 60:.0f} minutes: not asked for again for a day")

    def _end(self, decision: Decision, outcome: str) -> None:
        if self._under_way is not None and self._under_way.at_us == decision.at_us:
            self._under_way = None
        self.decisions = [
            replace(one, outcome=outcome) if (one.at_us, one.kind) == (decision.at_us, decision.kind) else one
            for one in self.decisions
        ]

    def to_json(self) -> dict[str, Any]:
        """All that was learned, as plain data: the next coordinator goes on with it."""
        return {
            "format": FORMAT,
            "scaler": self.scaler.to_json(),
            "tolerance": self.tolerance.to_json(),
            "diagnoser": self.diagnoser.to_json(),
            "attempts": self.attempts.to_json(),
            "told_us": self._told_us,
            "under_way": self._under_way.to_json() if self._under_way is not None else None,
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any], settings: PolicySettings, run: RunSettings) -> Policy:
        """As it was kept.

        >>> policy = Policy(PolicySettings(), RunSettings())
        >>> policy.observe(Observation(60_000_000, 60.0, 10, 0, [(5.0, 0.1)], partitions=1, cores=8, replicas=2))
        >>> import json
        >>> again = Policy.from_json(json.loads(json.dumps(policy.to_json())), PolicySettings(), RunSettings())
        >>> again.to_json() == policy.to_json()
        True
        """
        policy = Policy(settings, run)
        if kept.get("format") != FORMAT:
            return policy
        policy.scaler = Scaler.from_json(kept["scaler"], settings, run)
        policy.tolerance = Tolerance.from_json(kept["tolerance"], settings)
        policy.diagnoser = Diagnoser.from_json(kept["diagnoser"])
        policy.attempts = Attempts.from_json(kept["attempts"])
        policy._told_us = {key: int(at_us) for key, at_us in kept["told_us"].items()}
        policy._under_way = Decision.from_json(kept["under_way"]) if kept["under_way"] is not None else None
        return policy


def _is_done(operation: Operation, seen: Observation, took_s: float, window_s: float) -> bool:
    match operation:
        case Rescale(partitions, replicas, spares):
            wanted = ((partitions, seen.partitions), (replicas, seen.replicas), (spares, seen.spares))
            return all(asked is None or asked == there for asked, there in wanted)
        case Replace(replica, host):
            # Where it went to is seen; without another host only the time that it takes is known.
            return seen.host_of.get(replica, host) != host if host else took_s >= 2 * window_s
    return True
