"""What a job has been told so far: its steps and sinks, and the ids that are taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.plan.graph import duplicated_id
from lockstep.plan.steps import Sink, Step, check_id


@dataclass
class Registry:
    """The steps of one job in order of creation; shared by all its streams."""

    job: str
    steps: list[Step] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    queried: dict[str, None] = field(default_factory=dict)
    """The ids of the steps that queries in SQL made. Not a set: a packed job has to be the same bytes anywhere."""

    def new_id(self, kind: str, name: str | None) -> str:
        """The user's ``name`` if there is one (LS0116 if it is taken), else ``kind``, ``kind_2``, ..."""
        taken = {step.id for step in (*self.steps, *self.sinks)}
        if name is not None:
            check_id(name, "step")
            if name in taken:
                raise duplicated_id(name)
            return name
        number, found = 1, kind
        while found in taken:
            number += 1
            found = f"{kind}_{number}"
        return found

    def add(self, step: Step) -> None:
        """Keep a new step."""
        if isinstance(step, Sink):
            self.sinks.append(step)
        else:
            self.steps.append(step)
