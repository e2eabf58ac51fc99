"""A seed and a duration become a schedule: which actions, in which order, when. Pure: no clock, no process.

Times are a plan, not a promise: how long a replica takes to come back is guessed here (``RECOVERY_S``). The runner asks
:func:`may_begin`, the same function, about what is really taken when an action is due, and lets it wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from lockstep.chaos.vocabulary import Action, Need, Part

RECOVERY_S = {
    Part.REPLICA: 12.0,
    Part.JOB: 18.0,
    Part.DISK: 18.0,
    Part.STORE: 8.0,
    Part.NETWORK: 8.0,
    Part.INPUT: 2.0,
    Part.SEALING: 2.0,
    Part.SHAPE: 60.0,
}
"""How long each part is reckoned to be away after the action itself is over."""
PAUSE_S = (2.0, 7.0)
"""From one action to the next, if nothing has to be waited for."""
_BROAD = frozenset({Part.JOB, Part.DISK, Part.STORE, Part.NETWORK})
"""What reaches every replica: while one of these is taken, no replica is, and none of the others."""
_ASKED = frozenset({Part.SHAPE, Part.SEALING})
"""What chaos asks for itself, in the job's store: it must be able to write there."""
_WRITTEN = frozenset({Part.STORE, Part.DISK})
_ALONE = frozenset({Part.INPUT, *_ASKED})
"""What only one action has at a time, whatever else is taken."""


@dataclass(frozen=True)
class Planned:
    """One action at its time."""

    number: int
    at_s: float
    """Seconds after the beginning of the chaos."""
    action: str
    draw: str
    """The seed of the action's own choices: the same whatever was skipped before it."""


@dataclass(frozen=True)
class _Taken:
    parts: frozenset[Part]
    until_s: float


def may_begin(action: Action, taken: Iterable[frozenset[Part]], replicas: int) -> str | None:
    """Why an action may not begin beside those whose parts are taken; None if it may.

    One replica always stays whole, unless what is taken reaches them all anyway.
    """
    others = list(taken)
    held = frozenset(part for parts in others for part in parts)
    if Part.REPLICA in action.takes:
        lost = sum(Part.REPLICA in parts for parts in others)
        if lost + 1 >= replicas:
            return "no other replica would be whole"
        if broad := held & _BROAD:
            return f"{_words(broad)} is taken"
    if action.takes & _BROAD and (there := held & (_BROAD | {Part.REPLICA})):
        return f"{_words(there)} is taken"
    there = action.takes & held & _ALONE
    there |= held & _WRITTEN if action.takes & _ASKED else frozenset()
    there |= held & _ASKED if action.takes & _WRITTEN else frozenset()
    return f"{_words(there)} is taken" if there else None


def plan(actions: Sequence[Action], *, seed: int, duration_s: float, replicas: int) -> list[Planned]:
    """A random schedule, the same for the same arguments. Actions that came less often so far are chosen more often.

    None that could never begin is in it (one that takes a replica of a job with one), and every one has the time to
    be over, its recovery included, before ``duration_s``.
    """
    draw = Random(seed)  # noqa: S311  (repeatable on purpose)
    usable = [action for action in actions if not hopeless(action, replicas)]
    times: dict[str, int] = {}
    planned: list[Planned] = []
    taken: list[_Taken] = []
    at_s = 0.0
    while usable:
        at_s += draw.uniform(*PAUSE_S)
        taken = [one for one in taken if one.until_s > at_s]
        held = [one.parts for one in taken]
        fitting = [one for one in usable if at_s + away_s(one) <= duration_s]
        if not fitting:
            break
        free = [one for one in fitting if may_begin(one, held, replicas) is None]
        if not free:
            at_s = min(one.until_s for one in taken)
            continue
        weights = [one.weight / (1 + times.get(one.name, 0)) ** 2 for one in free]
        chosen = draw.choices(free, weights)[0]
        times[chosen.name] = times.get(chosen.name, 0) + 1
        planned.append(Planned(len(planned) + 1, round(at_s, 1), chosen.name, f"{seed}/{len(planned) + 1}"))
        taken.append(_Taken(chosen.takes, at_s + away_s(chosen)))
    return planned


def hopeless(action: Action, replicas: int) -> str | None:
    """Why an action can never begin with this many replicas; None if it can."""
    if Need.OTHER_REPLICA in action.requires and replicas < 2:
        return "it takes a replica, and there has to be another one"
    return may_begin(action, (), replicas)


def away_s(action: Action) -> float:
    """For how long an action is reckoned to hold what it takes."""
    return action.lasts_s_max + max((RECOVERY_S[part] for part in action.takes), default=0.0)


def _words(parts: frozenset[Part]) -> str:
    return " and ".join(sorted(part.value for part in parts))
