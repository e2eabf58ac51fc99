"""What each step of an operation took, from the steps that its book has and the events that replicas left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lockstep.clock import US_PER_S
from lockstep.control.operations.model import Operation
from lockstep.runtime.phases import KIND, phases_ms

StoreEvent = tuple[int, int, str, str, str]
"""(id, when, kind, replica, text), as a store has it."""
BEFORE_SEED = ("imports", "job", "session", "executors", "compile", "warm-up")
_TOOK = re.compile(r"in ([\d.]+) s$")


@dataclass(frozen=True)
class Sample:
    """How one replica stood at one moment."""

    at_us: int
    replica: str
    lag_epochs: int
    """Epochs behind the newest sealed one."""


def operation_steps(
    operation: Operation, events: Sequence[StoreEvent], samples: Sequence[Sample], caught_up_epochs: int = 2
) -> dict[str, float]:
    """Seconds of each step: those of the replica that joins one by one, then the phases that follow.

    ``asked`` is until somebody took the operation up; ``boot`` is until the new replica was ready for a seed, ``copy``
    and ``repartition`` are the seed, ``first_epoch`` until it had computed an epoch, ``catch_up`` until it was within
    two epochs of the others, ``agree`` the epochs that it had to agree on after that.
    """
    edges = [*((step.name, step.at_us) for step in operation.steps)]
    found = {"asked": _s(operation.asked_us, edges[0][1])}
    for (name, begun_us), (_, ended_us) in pairwise(edges):
        if name == "join":
            found |= _join_steps(begun_us, ended_us, events, samples, caught_up_epochs)
        else:
            found[name.replace(" ", "_")] = _s(begun_us, ended_us)
    return found


def _join_steps(
    begun_us: int, ended_us: int, events: Sequence[StoreEvent], samples: Sequence[Sample], caught_up_epochs: int
) -> dict[str, float]:
    started = next((one for one in events if one[2] == KIND and begun_us <= one[1] <= ended_us), None)
    if started is None:
        return {"join": _s(begun_us, ended_us)}
    _, computed_us, _, replica, text = started
    laps = phases_ms(text)
    repartition_s = sum(
        repartition_took_s(one[4])
        for one in events
        if one[2] == "repartitioned" and one[3] == replica and begun_us <= one[1] <= computed_us
    )
    seed_s = laps.get("seed", 0) / 1000
    after_seed_s = (laps["total"] - laps.get("seed", 0) - sum(laps.get(name, 0) for name in BEFORE_SEED)) / 1000
    seeded_us = computed_us - round(after_seed_s * US_PER_S)
    near = [one.at_us for one in samples if one.replica == replica and one.lag_epochs <= caught_up_epochs]
    caught_up_us = next((at_us for at_us in near if at_us >= computed_us), ended_us)
    caught_up_us = min(caught_up_us, ended_us)
    return {
        "boot": max(0.0, _s(begun_us, seeded_us) - seed_s),
        "copy": max(0.0, seed_s - repartition_s),
        "repartition": repartition_s,
        "first_epoch": after_seed_s,
        "catch_up": _s(computed_us, caught_up_us),
        "agree": _s(caught_up_us, ended_us),
    }


def repartition_took_s(text: str) -> float:
    """The seconds that an event of kind ``repartitioned`` tells.

    >>> repartition_took_s("stage 1: state in 1 partitions brought to 2 in 3.2 s")
    3.2
    """
    found = _TOOK.search(text)
    return float(found.group(1)) if found else 0.0


def _s(begun_us: int, ended_us: int) -> float:
    return max(0, ended_us - begun_us) / US_PER_S
