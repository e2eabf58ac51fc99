"""The way of a killed replica back to its first computed epoch, split into its phases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.clock import US_PER_S


@dataclass(frozen=True)
class Step:
    """One step of a start, as the probe noted it."""

    step: str
    begun_us: int
    ended_us: int


def read_steps(path: Path) -> list[Step]:
    """What the probe of one process has noted so far."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # The last line may still be in the making.
    return [Step(**json.loads(line)) for line in lines if line.endswith("\n")]


def is_complete(steps: Sequence[Step]) -> bool:
    """Whether the first epoch was computed, and all about it was noted."""
    return {"first-epoch", "jvm"} <= {one.step for one in steps}


def was_spare(steps: Sequence[Step], kill_us: int) -> bool:
    """Whether the process was there before the kill."""
    return any(one.step == "process" and one.begun_us < kill_us for one in steps)


def phases(steps: Sequence[Step], kill_us: int) -> dict[str, float]:
    """Seconds from the kill to the first computed epoch, phase by phase; they add up to ``total_s``.

    What a spare process had done before the kill costs nothing.

    >>> second = 1_000_000
    >>> noted = [Step("process", 12 * second, 13 * second), Step("jvm", 13 * second, 15 * second),
    ...          Step("session", 13 * second, 16 * second), Step("seed", 18 * second, 19 * second),
    ...          Step("start", 19 * second, 20 * second), Step("first-epoch", 20 * second, 21 * second)]
    >>> phases(noted, kill_us=10 * second)  # doctest: +NORMALIZE_WHITESPACE
    {'noticed_s': 2.0, 'process_s': 1.0, 'jvm_s': 2.0, 'session_s': 1.0, 'warm_up_s': 0.0, 'plan_s': 2.0,
     'seed_s': 1.0, 'start_s': 1.0, 'first_epoch_s': 1.0, 'total_s': 11.0}
    """
    by_name = {one.step: one for one in steps}
    warm_up_s = sum((_s(one.begun_us, one.ended_us, kill_us) for one in steps if one.step == "warm-up"), 0.0)
    first_us = by_name["first-epoch"].ended_us
    edges = _edges(by_name, kill_us, first_us)
    found = {name: _s(begun, ended, kill_us) for name, begun, ended in edges}
    # Warming up lies between the session and the seed, with planning before and after it.
    found["plan_s"] = max(0.0, found["plan_s"] - warm_up_s)
    order = [name for name, _, _ in edges]
    order.insert(order.index("plan_s"), "warm_up_s")
    found["warm_up_s"] = warm_up_s
    return {**{name: found[name] for name in order}, "total_s": _s(kill_us, first_us, kill_us)}


def _edges(by_name: Mapping[str, Step], kill_us: int, first_us: int) -> list[tuple[str, int, int]]:
    """Each phase with its beginning and its end; a step that was not noted takes no time where the next one begins."""
    process = by_name["process"]
    loaded_us = process.ended_us
    jvm_us = max(loaded_us, by_name["jvm"].ended_us) if "jvm" in by_name else loaded_us
    session_us = by_name["session"].ended_us if "session" in by_name else jvm_us
    start = by_name.get("start", Step("start", first_us, first_us))
    seed = by_name.get("seed", Step("seed", start.begun_us, start.begun_us))
    return [
        ("noticed_s", kill_us, process.begun_us),
        ("process_s", process.begun_us, loaded_us),
        ("jvm_s", loaded_us, jvm_us),
        ("session_s", jvm_us, session_us),
        ("plan_s", session_us, seed.begun_us),
        ("seed_s", seed.begun_us, seed.ended_us),
        ("start_s", seed.ended_us, start.ended_us),
        ("first_epoch_s", start.ended_us, first_us),
    ]


def _s(begun_us: int, ended_us: int, kill_us: int) -> float:
    return max(0, ended_us - max(begun_us, kill_us)) / US_PER_S
