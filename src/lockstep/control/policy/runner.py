"""The thin shell around a policy: once a window it reads the store, decides, and notes or asks for what was decided."""

from __future__ import annotations

import json
from collections.abc import Callable

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.decisions import EVENT, FACT, Decision, Operation, decode, encode
from lockstep.control.policy.observations import Shape, StoreWatch
from lockstep.control.policy.policy import Policy
from lockstep.errors import LockstepError
from lockstep.store.protocols import Store

MEMORY = "policy"
"""Fact: what the policy has learned, for the next coordinator."""
TROUBLE = "policy-failed"
"""The kind of the event that tells of an error in here."""
TROUBLE_AGAIN_US = 3600 * US_PER_S
"""The same trouble is told once an hour."""


class PolicyRunner:
    """Has a policy look at one job.

    ``shape`` says what the job looks like now, and ``ask`` has an operation carried out: it returns when that was taken
    on, and raises a :class:`LockstepError` if it was refused. :meth:`look` may be called as often as one likes; between
    two windows it does nothing. No error of its own ends a job.
    """

    def __init__(
        self,
        store: Store,
        settings: PolicySettings,
        run: RunSettings,
        shape: Callable[[], Shape],
        ask: Callable[[Operation], None],
        clock: Clock = wall_us,
    ) -> None:
        self._store = store
        self._settings = settings
        self._run = run
        self._shape = shape
        self._ask = ask
        self._clock = clock
        self._policy: Policy | None = None
        self._watch: StoreWatch | None = None
        self._next_us = 0
        self._told: tuple[str, int] = ("", 0)

    @property
    def is_on(self) -> bool:
        """Whether anything is to be decided at all."""
        return self._settings.scaling != "off" or self._settings.tolerance != "off"

    def look(self) -> list[Decision]:
        """Look and decide, if a window has passed since the last look."""
        now_us = self._clock()
        if not self.is_on or now_us < self._next_us:
            return []
        self._next_us = now_us + round(self._settings.window_s * US_PER_S)
        try:
            return self._look(now_us)
        except Exception as error:
            # Whatever is wrong here: a job that publishes goes on as it is.
            self._tell(f"{type(error).__name__}: {error}", now_us)
            return []

    def _look(self, now_us: int) -> list[Decision]:
        if self._policy is None or self._watch is None:
            self._policy = self._remembered()
            self._watch = StoreWatch(self._store, now_us, self._run.heartbeat_interval_s)
            return []
        policy, before = self._policy, self._policy.decisions
        policy.observe(self._watch.look(self._shape(), now_us))
        made = policy.decide(now_us)
        for decision in made:
            self._carry_out(policy, decision, now_us)
        if policy.decisions is not before:
            self._store.set_fact(FACT, encode(policy.decisions))
        self._store.set_fact(MEMORY, json.dumps(policy.to_json()))
        return made

    def _carry_out(self, policy: Policy, decision: Decision, now_us: int) -> None:
        self._store.add_event(EVENT, decision.sentence)
        if decision.is_advice:
            return
        try:
            self._ask(decision.operation)
        except LockstepError as error:
            policy.refused(decision, error.fact, now_us)
            self._store.add_event(EVENT, f"refused: {decision.what}: {error.fact}")

    def _remembered(self) -> Policy:
        """As the last coordinator left it; what cannot be read is begun anew, and said."""
        kept = self._store.fact(MEMORY)
        policy = Policy(self._settings, self._run)
        try:
            if kept is not None:
                policy = Policy.from_json(json.loads(kept), self._settings, self._run)
            policy.decisions = decode(self._store.fact(FACT))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._store.add_event(TROUBLE, f"what was learned cannot be read, and is learned anew: {error!r}")
            policy = Policy(self._settings, self._run)
        return policy

    def _tell(self, text: str, now_us: int) -> None:
        told, at_us = self._told
        if told == text and now_us - at_us < TROUBLE_AGAIN_US:
            return
        self._told = (text, now_us)
        try:
            self._store.add_event(TROUBLE, text)
        except LockstepError:
            self._told = ("", 0)  # the store is the trouble: told at the next look
