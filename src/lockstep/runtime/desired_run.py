"""What is to run: the same for every host, and kept in the store, so that whoever coordinates next goes on with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lockstep.runtime.spec import ReplicaSpec

if TYPE_CHECKING:
    from lockstep.config import Settings
    from lockstep.store.protocols import Store

LEASE = "supervisor"
"""Whoever holds it coordinates the job."""
DESIRED = "desired"
"""Fact: the newest :class:`DesiredRun`, and whether it is still wanted."""
RUN_BEGAN = "run-began-us"
"""Fact: when the newest run was ordered (us since 1970): it tells one run from another."""


@dataclass(frozen=True)
class DesiredRun:
    """One `lockstep run` of a job."""

    job: str
    job_file: str
    """``code/HASH/job.py:job``, below the job's folder on every host."""
    code_hash: str
    """Of the code and of the tables."""
    store: str
    settings: dict[str, Any]
    wanted: bool = True
    """False once somebody has stopped it."""
    generation: int = 1
    """Counts the changes that replace replicas: code, shape or settings."""
    results_of: int = 1
    """The generation with which results last changed: a new shape or a restart computes what the one before did."""
    environment: dict[str, str] = field(default_factory=dict)
    """Another Python or Java than that of the hosts' agents (:attr:`ReplicaSpec.environment`)."""
    at_once: bool = False
    """Whether it is not to finish its epochs when it stops."""

    def parsed_settings(self) -> Settings:
        """The settings as they were validated by whoever ordered the run."""
        from lockstep.config import Settings

        return Settings.model_validate(self.settings)

    def template(self) -> ReplicaSpec:
        """What all its replicas are started with."""
        return ReplicaSpec(
            project="",
            home="",
            address=self.store,
            job=self.job,
            job_file=self.job_file,
            code_hash=self.code_hash,
            replica="",
            seed="auto",
            settings=self.settings,
            generation=self.generation,
            results_of=self.results_of,
            environment=self.environment,
        )

    def to_json(self) -> dict[str, Any]:
        """For the store, and for the agents of hosts."""
        return asdict(self)


def wanted_run(store: Store) -> DesiredRun | None:
    """What is to run, None if nothing is (any more)."""
    order = last_run(store)
    return order if order is not None and order.wanted else None


def note_desired(store: Store, order: DesiredRun) -> None:
    """From now on this is to run."""
    store.set_fact(DESIRED, json.dumps(order.to_json(), sort_keys=True))


def last_run(store: Store) -> DesiredRun | None:
    """What was to run last, wanted or not; None if the job never ran."""
    said = store.fact(DESIRED)
    return DesiredRun(**json.loads(said)) if said else None


def note_changed(store: Store, after: DesiredRun) -> DesiredRun:
    """What is to run has changed; if it was stopped meanwhile, it stays stopped."""
    return _swapped(store, lambda last: replace(after, wanted=last.wanted, at_once=last.at_once)) or after


def note_stopped(store: Store, *, at_once: bool = False) -> None:
    """Nothing is to run any more: whoever coordinates the job stops it, and nobody takes it up again."""
    _swapped(store, lambda last: replace(last, wanted=False, at_once=at_once or last.at_once))


def _swapped(store: Store, change: Callable[[DesiredRun], DesiredRun]) -> DesiredRun | None:
    """Change what is to run, as it is now; None if the job never ran."""
    while (held := store.fact(DESIRED)) is not None:
        before = DesiredRun(**json.loads(held))
        after = change(before)
        if after == before or store.swap_fact(DESIRED, held, json.dumps(after.to_json(), sort_keys=True)):
            return after
    return None
