"""What people ask of a job that runs: the same for the command line, REST and Python.

They ask, whoever coordinates the job acts. Nothing here waits for a job or needs one that lives: everything is a word
in its store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lockstep.clock import Clock, wall_us
from lockstep.config import PARTITIONS
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Kind, Operation, Request, Wish
from lockstep.control.start.checkpoints import refuse_at_address
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import DesiredRun, last_run, note_stopped
from lockstep.runtime.steering import pause, resume
from lockstep.store.derived import ORDER
from lockstep.store.protocols import Store

PARTITIONS_MAX = 1_000
REPLICAS_MAX = 16
SPARES_MAX = 4
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Manner:
    """How an operation is asked for: once for each ``key``, and what happens when its time is over."""

    asked_by: str = ""
    key: str = ""
    timeout_s: float = TIMEOUT_S
    at_deadline: Literal["rollback", "commit"] = "rollback"


PLAINLY = Manner()


class JobVerbs:
    """What can be asked of one job."""

    def __init__(self, store: Store, job: str, clock: Clock = wall_us) -> None:
        self._store, self._job, self._clock = store, job, clock
        self.book = OperationBook(store, clock)

    def rescale(
        self,
        *,
        replicas: int | None = None,
        partitions: int | None = None,
        stage: int | None = None,
        cores: int | None = None,
        spares: int | None = None,
        manner: Manner = PLAINLY,
    ) -> Operation:
        """Another number of replicas or spares, or another shape of all of them: partitions of state, cores."""
        before = self.current()
        _check_numbers(replicas, partitions, stage, cores, spares)
        asked = {"replicas": replicas, "partitions": partitions, "stage": stage, "cores": cores, "spares": spares}
        after = before
        if replicas is not None:
            after = with_replicas(after, replicas)
        if spares is not None:
            after = replace(after, settings={**after.settings, "run": {**after.settings["run"], "spares": spares}})
        if partitions is not None:
            refuse_at_address(self._store, self._job, "another number of partitions")
        if partitions is not None or cores is not None:
            after = with_shape(after, partitions, stage, cores)
        return self._ask("rescale", {k: v for k, v in asked.items() if v is not None}, before, after, manner)

    def restart(self, manner: Manner = PLAINLY) -> Operation:
        """Replace every replica by a new process, one at a time."""
        before = self.current()
        return self._ask("restart", {}, before, replace(before, generation=before.generation + 1), manner)

    def move(self, replica: str, host: str, manner: Manner = PLAINLY) -> Operation:
        """Have a replica live on another host, to empty the one that it is on."""
        before = self.current()
        names = [said.replica for said in self._store.progress()]
        if replica not in names:
            raise ServiceError(
                "LS0742",
                f'job "{self._job}" has no replica {replica}',
                why=f"it has {', '.join(names) or 'none'}.",
                hint="`lockstep status` shows them.",
            )
        return self._ask("move", {"replica": replica, "host": host}, before, before, manner)

    def upgrade(
        self, after: DesiredRun, *, same_results: bool, keep_s: float | None = None, manner: Manner = PLAINLY
    ) -> Operation:
        """New code or another environment: ``after`` says which, its generation is counted here.

        ``keep_s`` is how long after a switch one replica with the old results stays, so that it can be taken back.
        """
        before = self.current()
        number = before.generation + 1
        results_of = before.results_of if same_results else number
        after = replace(after, generation=number, results_of=results_of)
        arguments: dict[str, Any] = {"same_results": same_results}
        if after.environment != before.environment:
            arguments |= after.environment
        if keep_s is not None and not same_results:
            arguments["keep_s"] = keep_s
        return self._ask("upgrade", arguments, before, after, manner)

    def settle(self, number: int, wish: Wish) -> Operation:
        """Say of an operation under way that it is to go on (``commit``), or back (``rollback``)."""
        return self.book.update(number, lambda one: replace(one, wish=wish) if one.is_open else _refuse_settled(one))

    def deactivate(self, manner: Manner = PLAINLY) -> Operation:
        """Seal no more epochs; replicas stay as they are, input waits."""
        return self._steered("deactivate", manner)

    def activate(self, manner: Manner = PLAINLY) -> Operation:
        """Go on where :meth:`deactivate` stopped."""
        return self._steered("activate", manner)

    def stop(self) -> None:
        """End the job after the epochs under way."""
        note_stopped(self._store)

    def kill(self) -> None:
        """End the job at once: epochs under way are computed again when it starts."""
        note_stopped(self._store, at_once=True)

    def _steered(self, kind: Literal["activate", "deactivate"], manner: Manner) -> Operation:
        """Done by whoever asks, at once, and also beside an operation that is under way."""
        if kind == "deactivate" and self._store.fact(ORDER) is not None:
            raise ServiceError(
                "LS0749",
                f'job "{self._job}" cannot be deactivated',
                why='its order is "derived": the ends of its epochs follow from the log, and nobody seals them.',
                hint="stop it instead: `lockstep stop`; it goes on where it was.",
            )
        (pause if kind == "deactivate" else resume)(self._store)
        return self.book.note(_request(kind, {}, manner))

    def current(self) -> DesiredRun:
        """What runs now. LS0743 if nothing is to run."""
        order = last_run(self._store)
        if order is None or not order.wanted:
            raise ServiceError(
                "LS0743",
                f'job "{self._job}" is not running',
                why="only a job that runs can be changed while it runs.",
                hint="change lockstep.toml or the options of `lockstep run`, and start it: what it is told then holds.",
            )
        return order

    def _ask(
        self, kind: Kind, arguments: Mapping[str, Any], before: DesiredRun, after: DesiredRun, manner: Manner
    ) -> Operation:
        return self.book.ask(_request(kind, arguments, manner), before.to_json(), after.to_json())


def with_replicas(order: DesiredRun, replicas: int) -> DesiredRun:
    """The same with another number of replicas: nobody has to be replaced for that."""
    run = {**order.settings["run"], "replicas": replicas}
    return replace(order, settings={**order.settings, "run": run})


def with_shape(order: DesiredRun, partitions: int | None, stage: int | None, cores: int | None) -> DesiredRun:
    """The same in another shape: a further generation with the same results."""
    settings = {**order.settings, "spark": dict(order.settings["spark"]), "run": dict(order.settings["run"])}
    if partitions is not None and stage is not None:
        settings["run"]["stage_partitions"] = {**settings["run"].get("stage_partitions", {}), str(stage): partitions}
    elif partitions is not None:
        settings["spark"]["conf"] = {**settings["spark"].get("conf", {}), PARTITIONS: str(partitions)}
        settings["run"]["stage_partitions"] = {}
    if cores is not None:
        settings["spark"]["master"] = _with_cores(settings["spark"]["master"], cores)
    return replace(order, settings=settings, generation=order.generation + 1)


def _with_cores(master: str, cores: int) -> str:
    if not master.startswith("local["):
        raise ServiceError(
            "LS0744",
            f"the cores of master {master} are not Lockstep's to change",
            why="on a cluster Spark's own settings say how many executors a replica has.",
            hint='leave out --cores, and set "spark.cores.max" in [spark] of lockstep.toml.',
        )
    return f"local[{cores}]"


def _check_numbers(
    replicas: int | None, partitions: int | None, stage: int | None, cores: int | None, spares: int | None
) -> None:
    limits = {"replicas": (replicas, REPLICAS_MAX), "partitions": (partitions, PARTITIONS_MAX), "cores": (cores, 1_024)}
    for name, (value, most) in limits.items():
        if value is not None and not 1 <= value <= most:
            raise ServiceError(
                "LS0745", f"{value} {name}", why=f"there can be 1 to {most}.", hint="give another number."
            )
    if spares is not None and not 0 <= spares <= SPARES_MAX:
        raise ServiceError(
            "LS0745", f"{spares} spares", why=f"there can be 0 to {SPARES_MAX}.", hint="give another number."
        )
    if all(value is None for value in (replicas, partitions, cores, spares)):
        raise ServiceError(
            "LS0745",
            "nothing to rescale was given",
            why="a job has a number of replicas, partitions and cores.",
            hint="lockstep rescale JOB --partitions 4, or --replicas 3, or --cores 2.",
        )
    if stage is not None and partitions is None:
        raise ServiceError("LS0745", "a stage was given without partitions", hint="add --partitions N.")


def _refuse_settled(one: Operation) -> Operation:
    raise ServiceError(
        "LS0746",
        f"operation {one.number} is {one.state}",
        why="what is over can be neither gone on with nor taken back.",
        hint="ask for another operation that changes it again.",
    )


def _request(kind: Kind, arguments: Mapping[str, Any], manner: Manner) -> Request:
    return Request(kind, arguments, manner.asked_by, manner.key, manner.timeout_s, manner.at_deadline)
