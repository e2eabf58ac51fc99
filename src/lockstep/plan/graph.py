"""A whole job: its sinks and everything before them, checked as one; and what a checkpoint has to remember of it."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from lockstep.errors import PlanError
from lockstep.plan.encode import canonical, step_json
from lockstep.plan.fingerprints import differences, fingerprint
from lockstep.plan.keyed import BUCKETS_AT_FIRST
from lockstep.plan.kinds import check_kinds
from lockstep.plan.loops import LoopHead
from lockstep.plan.stages import Boundary, Stage, cut
from lockstep.plan.steps import EventTime, Sink, Source, Step, upstream

__all__ = ["Graph", "differences", "duplicated_id"]

_Kind = TypeVar("_Kind", bound=Step)


@dataclass(frozen=True, eq=False)
class Graph:
    """A job's steps as far as a sink needs them. ``declared`` are all that were made, to find what leads nowhere."""

    name: str
    sinks: tuple[Sink, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    declared: tuple[Step, ...] = ()
    buckets: int = BUCKETS_AT_FIRST
    """Into how many parts the keys of each keyed step are divided, for as long as the job has state."""

    def __post_init__(self) -> None:
        if not self.sinks:
            raise PlanError(
                "LS0115",
                f'job "{self.name}" has no sink',
                why="nothing it computes would be seen.",
                hint='end a stream with .to(ls.files("out/result")), or with .to(ls.console()) to look at it.',
            )
        _check_ids(self.steps)
        _check_targets(self.sinks)
        check_kinds(self.steps)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every step that a sink needs, each after its inputs, in order of creation."""
        reached = {id(step): step for sink in self.sinks for step in upstream(sink)}
        return tuple(sorted(reached.values(), key=lambda step: step.order))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the records come from."""
        return self._of(Source)

    @property
    def event_times(self) -> tuple[EventTime, ...]:
        """Where event times are declared."""
        return self._of(EventTime)

    @property
    def loops(self) -> tuple[LoopHead, ...]:
        """Where loops begin."""
        return self._of(LoopHead)

    @cached_property
    def _cut(self) -> tuple[tuple[Stage, ...], tuple[Boundary, ...]]:
        return cut(self.steps, self.sinks)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What runs as Spark queries, earlier ones first; most jobs have one."""
        return self._cut[0]

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """The journals between the stages."""
        return self._cut[1]

    @property
    def python_steps(self) -> tuple[Step, ...]:
        """The steps that call Python functions: those that cannot be proven deterministic."""
        return tuple(step for step in self.steps if step.runs_python)

    @property
    def unused(self) -> tuple[str, ...]:
        """Ids of streams that no sink reads: their last steps."""
        # By their ids: a query's steps may have been made anew (`plan/sql_meaning.py`).
        known = {step.id for step in self.steps} | {before.id for step in self.declared for before in step.inputs}
        return tuple(step.id for step in self.declared if step.id not in known)

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint of this job depends on; compare two with :func:`differences`."""
        return fingerprint(self.steps, self.stages, self.buckets)

    def with_buckets(self, buckets: int) -> Graph:
        """The same job, its keys divided into so many parts."""
        return replace(self, buckets=buckets)

    def version(self, code_hash: str) -> str:
        """The version of the job: a hash of its plan and of the code around it."""
        plan = canonical({"job": self.name, "steps": [step_json(step) for step in self.steps]})
        return hashlib.sha256(f"{plan}\n{code_hash}".encode()).hexdigest()

    def _of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        return tuple(step for step in self.steps if isinstance(step, kind))


def duplicated_id(step_id: str) -> PlanError:
    """The error for two steps with one id."""
    return PlanError(
        "LS0116",
        f'two steps are called "{step_id}"',
        why="a step's id is how state, metrics and errors know it.",
        hint="give one of them another name=.",
    )


def _check_ids(steps: Iterable[Step]) -> None:
    seen: set[str] = set()
    for step in steps:
        if step.id in seen:
            raise duplicated_id(step.id)
        seen.add(step.id)


def _check_targets(sinks: tuple[Sink, ...]) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for sink in sinks:
        target = _target(sink)
        if target is None:
            continue
        if target in seen:
            raise PlanError(
                "LS0135",
                f'the sinks "{seen[target]}" and "{sink.id}" write to the same place',
                why=f"{sink.spec.describe()}: a place holds each epoch once.",
                hint="give them different places, or .union(...) the streams into one sink.",
            )
        seen[target] = sink.id


def _target(sink: Sink) -> tuple[str, ...] | None:
    """The place a sink fills, None if it fills none (the console)."""
    data = sink.spec.to_json()
    if "path" not in data:
        return None
    return (sink.spec.kind, posixpath.normpath(str(data["path"])), str(data.get("table", "")))
