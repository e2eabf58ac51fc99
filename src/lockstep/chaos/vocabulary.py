"""THE CONTRACT of chaos: what an action is, and what it may ask of the running job.

Everything under ``chaos/actions`` is written against this file, and the planner, the runner and the report know actions
only through it. An action says what it *requires* and which *parts* of the job it *takes* away while it lasts; two
actions whose parts are apart may overlap. So any random sequence that respects the two is legal, and nobody has to
think about pairs of actions. To add one, subclass :class:`Action` in a file of ``chaos/actions`` and name an instance
in that file's ``ACTIONS``:

    class KillDriver(Action):
        name = "kill-driver"
        title = "kill -9 a replica's driver"
        requires = frozenset({Need.OTHER_REPLICA})
        takes = frozenset({Part.REPLICA})

        def begin(self, running: RunningJob, draw: Random) -> Deed:
            victim = draw.choice(running.spare_replicas())
            os.kill(victim.pid, signal.SIGKILL)
            return Deed(f"kill -9 of {victim.name}'s driver", replica=victim.name, data={"pid": victim.pid})

The life of an action: the planner puts it at a time (it knows ``requires``, ``takes``, ``lasts_s_max`` and ``weight``);
the runner waits until every need is met and no part is taken, asks :meth:`Action.missing`, calls
:meth:`Action.begin`, calls ``Deed.undo`` when ``Deed.lasts_s`` have passed (also early, when chaos ends or Ctrl-C
comes), and gives the parts back when the job has recovered: REPLICA when that replica computes again within the lead,
INPUT and SEALING at once after ``undo``, SHAPE when the operation is over (``Deed.recovered``), any other part when all
replicas compute again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

from lockstep.store.protocols import Store


class Part(Enum):
    """What an action can take away. What one action has taken, no other can take until it is given back."""

    REPLICA = "one replica"
    """That replica, named in the deed, until it computes again. At least one replica always stays whole."""
    JOB = "the whole job"
    """Supervisor and all replicas: nothing else that takes a replica, the store, the disk or the network goes on."""
    STORE = "the store"
    """Store operations are slow or fail. Replicas may be lost by it, so no other action takes one meanwhile."""
    DISK = "the disk"
    """Nothing can be written. Everything may stop, so it excludes what JOB excludes."""
    NETWORK = "the network"
    INPUT = "the input"
    """What is fed, or how fast: quiet, late, malformed or more."""
    SHAPE = "the job's shape"
    """An operation is under way. Replicas and whoever supervises them may be killed meanwhile: that is the point."""
    SEALING = "the sealing of epochs"
    """The job is deactivated: nothing is published, and that is no fault."""


class Need(Enum):
    """What has to be there before an action may begin. The planner and the runner see to these themselves."""

    OTHER_REPLICA = "another healthy replica"
    """At least two replicas compute, so one can be lost: for every action that takes REPLICA."""
    ALL_REPLICAS = "all replicas healthy"
    FED = "a journal that chaos feeds"
    EVENT_TIME = "a fed journal with a column of event time"
    CHECKPOINT = "a replica with a checkpoint"
    FAULTS = "the injected fault layer"
    """The job's processes were started with ``LOCKSTEP_FAULTS``; always so in `lockstep chaos run`."""
    NAMESPACE = "a network namespace of the job's own"
    ONE_STAGE = "a job of one stage"


@dataclass(frozen=True)
class Member:
    """A replica as chaos sees it at this moment."""

    name: str
    incarnation: int
    pid: int
    """Its driver's process id; the JVM is a child of it, the Python workers are below the JVM."""
    state: str
    """As in the store: starting, seeding, catching-up, running, diverged, draining, stopped, failed."""
    epoch: int
    """The newest epoch it has committed."""
    folder: Path
    """``.lockstep/jobs/JOB/replicas/NAME``: checkpoint (or checkpoints of stages), log.txt, spec.json."""
    healthy: bool
    """It runs and is within the lead: losing any other replica costs no more than that."""


class Feeding(Protocol):
    """The input that chaos makes; several journals are fed at once, each at the same rate."""

    def set_rate(self, factor: float) -> None:
        """Multiply the rate by this from now on: 0 is quiet, 1 is normal, 3 is load."""

    def late(self, records: int) -> int:
        """Feed this many records whose event time is long past; how many were acknowledged."""

    def malformed(self, records: int) -> int:
        """Offer records that break the schema, as a careless client would; how many were *accepted* (should be 0)."""


class RunningJob(Protocol):
    """The running job as chaos sees it: what an action may look at and touch, and nothing else."""

    project: Path
    """The temporary copy of the project in which `lockstep run` runs."""
    store_folder: Path
    """Its ``.lockstep``."""
    job: str
    """The job's name."""
    replicas: int
    """How many it began with, and has at least."""
    orders: Path
    """The folder named by ``LOCKSTEP_FAULTS``: order files in it tell the job's processes how to fail."""

    @property
    def feeding(self) -> Feeding:
        """The input, as far as chaos makes it."""

    @property
    def store(self) -> Store:
        """The job's store, opened by chaos itself (never disturbed by faults)."""

    def members(self) -> list[Member]:
        """All replicas that have ever said a word, by name."""

    def spare_replicas(self) -> list[Member]:
        """Healthy replicas, or none if there are fewer than two: each of these can be lost now."""

    def supervisor_pid(self) -> int | None:
        """The process of `lockstep run`, None while it is not running."""

    def has(self, need: Need) -> bool:
        """Whether a need is met now."""

    def stop_job(self) -> None:
        """SIGTERM to `lockstep run`, which then ends gracefully; does not wait for that."""

    def start_job(self) -> None:
        """Start `lockstep run` again when it has ended, as a service manager would; does not wait for the replicas."""

    def note(self, text: str) -> None:
        """One more line in the timeline, for a consequence that only the action can know."""


@dataclass(frozen=True)
class Deed:
    """What an action did, to whom."""

    text: str
    """One line for the timeline: what was done, with names and numbers."""
    replica: str | None = None
    """The replica it took; needed exactly if the action takes REPLICA."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The same as plain data (JSON), for `--json`."""
    lasts_s: float = 0.0
    """When to call ``undo``; at most the action's ``lasts_s_max``."""
    undo: Callable[[], None] | None = None
    """Ends what was begun (continue a stopped process, remove an order). Called exactly once, also early."""
    happened: Callable[[], bool] | None = None
    """For what happens later or not at all (a crash in a window): whether it did. Asked before ``undo`` and after.

    Once it is True, ``undo`` is called at once; an action that never happened is marked so in the report."""
    ended: Callable[[], bool] | None = None
    """For what goes on after it has happened (a process that stands still): whether it is over by itself. ``undo`` is
    called then, or when ``lasts_s`` have passed."""
    recovered: Callable[[], bool] | None = None
    """Whether what was taken can be given back, where the action knows better than the rule above."""


class Action(ABC):
    """One word of the vocabulary."""

    name: ClassVar[str]
    """For the command line, with hyphens: ``kill-driver``."""
    title: ClassVar[str]
    """What it does, as a sentence without its full stop."""
    requires: ClassVar[frozenset[Need]] = frozenset()
    takes: ClassVar[frozenset[Part]] = frozenset()
    lasts_s_max: ClassVar[float] = 0.0
    """No deed of it lasts longer; the planner leaves this much room."""
    weight: ClassVar[float] = 1.0
    """How often the planner chooses it, against others."""

    def impossible(self) -> str | None:
        """Why this machine can never do it (a tool or a permission is missing), or None. Must be quick."""
        return None

    def missing(self, running: RunningJob) -> str | None:
        """Why it cannot be done to this job now, beyond ``requires``; or None."""
        for need in self.requires:
            if not running.has(need):
                return f"it needs {need.value}"
        return None

    @abstractmethod
    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Do it; every choice (which replica, how long) comes from ``draw``. Quick: it never waits for effects."""


Actions = Sequence[Action]
