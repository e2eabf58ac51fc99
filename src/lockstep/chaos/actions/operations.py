"""Operations: what people ask of a running job, asked while it is hurt. Each has to be done, or rolled back, once."""

from __future__ import annotations

from abc import abstractmethod
from random import Random

from lockstep.api.loading import load_job, save_code
from lockstep.chaos.operations import Asked
from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob
from lockstep.config import PARTITIONS
from lockstep.control.operations.model import Operation
from lockstep.control.operations.upgrading import with_code
from lockstep.control.operations.verbs import JobVerbs, Manner
from lockstep.runtime.desired_run import DesiredRun, last_run, wanted_run
from lockstep.store.home import job_folder

TIMEOUT_S = 400.0
"""A rolling change takes about twenty seconds for each replica; this is for a machine that is busy with kills."""
MANNER = Manner(asked_by="chaos", timeout_s=TIMEOUT_S)
KEEP_S = 3.0
"""How long the old results stay beside the new ones after a switch."""
DEACTIVATED_S = (2.0, 7.0)
"""Shorter than the time after which a job in which nothing is published counts as standing still."""


class _Ask(Action):
    """What all operations share: one at a time, followed until it is over. They wait for nobody to be well."""

    takes = frozenset({Part.SHAPE})

    def missing(self, running: RunningJob) -> str | None:
        """Whoever asks needs a job that is to run, and no other operation."""
        if wanted_run(running.store) is None:
            return "the job is stopped"
        if (other := _verbs(running).book.open()) is not None:
            return f"operation {other.number} is under way"
        return super().missing(running)

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Ask for it; it is over when it is neither open nor going back."""
        del draw
        verbs = _verbs(running)
        operation = self.ask(running)
        arguments = ", ".join(f"{name} {value}" for name, value in operation.arguments.items())
        return Deed(
            f"operation {operation.number}: {operation.kind}{f' ({arguments})' if arguments else ''}",
            data=Asked.of(operation).to_json(),
            recovered=lambda: (now := verbs.book.find(operation.number)) is None or not now.is_open,
        )

    @abstractmethod
    def ask(self, running: RunningJob) -> Operation:
        """Write it into the job's store."""


class RescalePartitions(_Ask):
    """State is laid out anew by Spark, and digests have to agree."""

    name = "rescale-partitions"
    title = "rescale the job's state from one partition to two, or back, while it runs"

    def ask(self, running: RunningJob) -> Operation:
        """The other number."""
        verbs = _verbs(running)
        held = verbs.current().settings["spark"]["conf"].get(PARTITIONS, "1")
        return verbs.rescale(partitions=2 if held == "1" else 1, manner=MANNER)


class RescaleReplicas(_Ask):
    """One more than there were, or one less than there are then."""

    name = "rescale-replicas"
    title = "rescale the job by one more replica, or back to as many as it had"

    def ask(self, running: RunningJob) -> Operation:
        """Back, if there is one more than at the beginning."""
        verbs = _verbs(running)
        before = int(verbs.current().settings["run"]["replicas"])
        return verbs.rescale(replicas=before - 1 if before > running.replicas else before + 1, manner=MANNER)


class Restart(_Ask):
    """Every replica by a new process."""

    name = "restart"
    title = "restart every replica, one at a time, beside a further one"

    def ask(self, running: RunningJob) -> Operation:
        """The same again."""
        return _verbs(running).restart(manner=MANNER)


class Upgrade(_Ask):
    """Code that computes the same, and is other code all the same."""

    name = "upgrade"
    title = "upgrade the job to other code with the same results"
    same_results = True

    def ask(self, running: RunningJob) -> Operation:
        """The same code with another last line."""
        verbs = _verbs(running)
        before = verbs.current()
        loaded = load_job(_changed_code(running, before))
        after = with_code(running.store, before, loaded, running.store_folder, same_results=self.same_results)
        return verbs.upgrade(after, same_results=self.same_results, keep_s=KEEP_S, manner=MANNER)


class UpgradeInShadow(Upgrade):
    """New results that turn out to be equal: compared, switched to by one sealed entry, and confirmed."""

    name = "upgrade-in-shadow"
    title = "upgrade the job to code that computes in the shadow until one sealed entry switches to it"
    requires = frozenset({Need.ONE_STAGE})
    same_results = False


def _verbs(running: RunningJob) -> JobVerbs:
    return JobVerbs(running.store, running.job)


def _changed_code(running: RunningJob, before: DesiredRun) -> str:
    """A copy of the job's code that differs in a comment: the job's file, as it is loaded."""
    loaded = load_job(str(job_folder(running.store_folder, running.job) / before.job_file))
    file = save_code(loaded, running.orders.parent / f"code-{before.generation + 1}")
    with file.open("a", encoding="utf-8") as opened:
        opened.write(f"\n# generation {before.generation + 1}\n")
    return f"{file}:{loaded.variable}"


class Deactivate(Action):
    """No epoch is sealed for a while, and input waits."""

    name = "deactivate"
    title = "deactivate the job for seconds, also in the middle of an operation, and activate it again"
    takes = frozenset({Part.SEALING})
    lasts_s_max = DEACTIVATED_S[1]
    weight = 0.4

    def missing(self, running: RunningJob) -> str | None:
        """There has to be a job."""
        return super().missing(running) or (None if last_run(running.store) is not None else "the job never ran")

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Deactivate it, and activate it at the end."""
        verbs, lasts_s = _verbs(running), round(draw.uniform(*DEACTIVATED_S), 1)
        verbs.deactivate(manner=MANNER)

        def undo() -> None:
            verbs.activate(manner=MANNER)

        return Deed(f"no epoch is sealed for {lasts_s} s", lasts_s=lasts_s, undo=undo)


ACTIONS: tuple[Action, ...] = (
    RescalePartitions(),
    RescaleReplicas(),
    Restart(),
    Upgrade(),
    UpgradeInShadow(),
    Deactivate(),
)
