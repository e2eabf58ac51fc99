"""An operation: a durable request to change a job, with its steps, its deadline and its outcome. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal["rescale", "upgrade", "restart", "move", "activate", "deactivate"]
State = Literal["asked", "running", "waiting", "rolling-back", "done", "rolled-back", "refused"]
Wish = Literal["", "commit", "rollback"]

KINDS: tuple[Kind, ...] = get_args(Kind)
OPEN: frozenset[State] = frozenset({"asked", "running", "waiting", "rolling-back"})
"""States of an operation that somebody still works on; ``waiting`` is for a person who says whether to go on."""
STEPS_MAX = 100
"""Steps that are kept of one operation. A rolling change has three for each replica."""


@dataclass(frozen=True)
class OperationStep:
    """One thing that was done, for people."""

    name: str
    at_us: int
    text: str = ""


@dataclass(frozen=True)
class Operation:
    """One change. ``number`` counts from 1 within its job."""

    number: int
    kind: Kind
    arguments: Mapping[str, Any]
    asked_by: str
    asked_us: int
    deadline_us: int
    """By the clock of whoever coordinates: what happens then is ``at_deadline``."""
    at_deadline: Literal["rollback", "commit"] = "rollback"
    key: str = ""
    """An idempotency key: asked twice with the same one, it is one operation."""
    state: State = "asked"
    route: tuple[str, ...] = ()
    """The phases that are left, the one under way first, for whoever goes on with it (``rolling.py``)."""
    steps: tuple[OperationStep, ...] = ()
    wish: Wish = ""
    """What a person has said since: go on, or go back."""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    """The specs (:class:`~lockstep.runtime.desired_run.DesiredRun`) it leads from and to, while it is open."""
    error: str = ""
    """Why it was refused or rolled back, for people."""
    ended_us: int = 0

    @property
    def phase(self) -> str:
        """The phase under way."""
        return self.route[0] if self.route else ""

    @property
    def is_open(self) -> bool:
        """Whether it is neither done nor rolled back."""
        return self.state in OPEN

    def noted(self, name: str, at_us: int, text: str = "", **changes: Any) -> Operation:
        """With one more step, and what that changes.

        >>> asked = Operation(1, "restart", {}, "ann", 5, 900)
        >>> asked.noted("join", 7, "r2 boots", state="running").steps
        (OperationStep(name='join', at_us=7, text='r2 boots'),)
        """
        steps = (*self.steps, OperationStep(name, at_us, text))[-STEPS_MAX:]
        return replace(self, steps=steps, **changes)

    def ended(self, state: State, at_us: int, text: str = "") -> Operation:
        """Over, one way or the other; the specs are not needed any more."""
        error = "" if state == "done" else text
        return self.noted(
            state, at_us, text, state=state, error=error, before=None, after=None, route=(), ended_us=at_us
        )

    def to_json(self) -> dict[str, Any]:
        """As it is kept in the store."""
        return asdict(self)

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Operation:
        """What :meth:`to_json` gave.

        >>> one = Operation(1, "move", {"replica": "r1"}, "ann", 5, 900).noted("join", 7)
        >>> Operation.from_json(one.to_json()) == one
        True
        """
        steps = tuple(OperationStep(**step) for step in kept["steps"])
        return Operation(**{**kept, "steps": steps, "route": tuple(kept["route"])})


@dataclass(frozen=True)
class Request:
    """What somebody asks for."""

    kind: Kind
    arguments: Mapping[str, Any] = field(default_factory=dict)
    asked_by: str = ""
    key: str = ""
    timeout_s: float = 900.0
    at_deadline: Literal["rollback", "commit"] = "rollback"
