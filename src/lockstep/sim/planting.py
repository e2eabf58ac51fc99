"""What a planted bug is: one rule that is replaced while it is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from lockstep.sim.scenario import Scenario

Plant = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Bug:
    """One broken rule."""

    name: str
    sentence: str
    promise: str
    """The promise that the simulator finds broken."""
    plant: Plant
    scenario: Scenario | None = None
    """Where it shows; None: in what the seeds draw."""
    on_hosts: Scenario | None = None
    """Where it shows if hosts are simulated; None: in what the seeds draw then."""


def swapped(*changes: tuple[object, str, object]) -> Plant:
    """Replace attributes for a while."""

    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, value in changes:
                before = vars(owner).get(name, _INHERITED)
                stack.callback(_put_back, owner, name, before)
                setattr(owner, name, value)
            yield

    return planted


_INHERITED = object()


def _put_back(owner: object, name: str, before: object) -> None:
    if before is _INHERITED:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
