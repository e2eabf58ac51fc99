"""Where the service's questions are answered and its orders taken, one method for each. It knows no HTTP.

Routes call it, and so do commands that work on the store themselves; :class:`lockstep.serve.client.Client` has the
same methods for a service that is elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.agent.candidate import LOG
from lockstep.clock import wall_us
from lockstep.config import load_settings
from lockstep.control.operations.book import unknown as unknown_operation
from lockstep.control.operations.model import Operation, Wish
from lockstep.control.operations.verbs import PLAINLY, JobVerbs, Manner
from lockstep.errors import ServiceError, StoreError
from lockstep.runtime.desired_run import LEASE, RUN_BEGAN, DesiredRun, last_run, note_desired
from lockstep.runtime.shadow import comparison, shadowed
from lockstep.runtime.spec import replica_folder
from lockstep.serve import models, submission, views
from lockstep.serve.cluster import cluster
from lockstep.serve.ingestion import Ingestion
from lockstep.serve.limits import Limits
from lockstep.serve.service import Service, unknown_job
from lockstep.store.names import checked_name

if TYPE_CHECKING:
    from lockstep.control.state.savepoints import Place
    from lockstep.control.state.state_query import StateQueries

COORDINATOR = "coordinator"
"""The name of a coordinator's log, beside those of replicas."""
LOOK_S = 0.2
"""How often an operation is looked at while somebody waits for it."""


class Desk:
    """One for a service."""

    def __init__(self, service: Service, limits: Limits | None = None) -> None:
        self.service = service
        self.limits = limits or Limits()
        self._ingestion = Ingestion(service, self.limits)
        self._submitting = threading.Lock()
        self._states: dict[str, StateQueries] = {}
        self._states_lock = threading.Lock()

    def close(self) -> None:
        """Give everything back."""
        self._forget_states(*self._states)
        self._ingestion.close()
        self.service.close()

    def jobs(self) -> list[models.JobSummary]:
        """All jobs."""
        return [self._summary(job) for job in self.service.jobs()]

    def _summary(self, job: str) -> models.JobSummary:
        try:
            return views.summary(job, self.service.store(job), self.service.look(job))
        except StoreError as error:
            # One job whose store cannot be read must not hide the others.
            return models.JobSummary(
                job=job,
                state="unknown",
                reason=f"{error.code} {error.fact}",
                wanted=False,
                active=False,
                coordinator=None,
                replicas_wanted=0,
                head_epoch=-1,
                published_epoch=-1,
                rows_per_s=0.0,
                generation=1,
            )

    def cluster(self) -> models.Cluster:
        """What the jobs run on: the store, who coordinates, hosts, executors."""
        return cluster(self.service)

    def describe(self, job: str) -> models.JobDescription:
        """All about a job."""
        seen = self.service.look(job)
        return views.description(job, self.service.store(job), seen, self.service.verbs(job).book.open())

    def replicas(self, job: str) -> list[models.Replica]:
        """The replicas of a job."""
        return [views.replica(one) for one in self.service.look(job).health.replicas]

    def stages(self, job: str) -> list[models.Stage]:
        """The stages of a job."""
        store = self.service.store(job)
        return views.stages(store, last_run(store))

    def plan(self, job: str) -> models.Plan:
        """The graph of a job, and where it is computed."""
        store = self.service.store(job)
        return views.plan(store, last_run(store))

    def epochs(self, job: str, before: int | None = None, limit: int = 50) -> models.Epochs:
        """The newest epochs of a job, or those before one of them."""
        return views.epochs(self.service.store(job), before, limit)

    def events(self, job: str, after: int = 0, limit: int = 100) -> models.Events:
        """What happened to a job after one of its events."""
        return views.events(self.service.store(job), after, limit)

    def log(self, job: str, name: str = COORDINATOR, lines: int = 100) -> models.Log:
        """The end of the log of a replica on this host, or of the coordinator. LS0742 if there is no such replica."""
        store = self.service.store(job)
        if name == COORDINATOR:
            return views.log(name, self.service.folder(job) / LOG, lines)
        names = sorted({one.replica for one in store.progress()})
        if name not in names:
            raise ServiceError(
                "LS0742",
                f'job "{job}" has no replica {name[:20]}',
                why=f"it has {', '.join(names) or 'none yet'}.",
                hint=f'"{COORDINATOR}" has a log, too.',
            )
        return views.log(name, replica_folder(self.service.home, job, name) / "log.txt", lines)

    def spec(self, job: str) -> models.Spec:
        """What is to run. LS0743 if the job never ran."""
        return views.spec(self._order(job))

    def etag(self, job: str) -> str:
        """Which spec that is: it changes with every change of it."""
        return _etag(self._order(job))

    def change_spec(
        self, job: str, change: models.SpecChange, if_match: str, manner: Manner = PLAINLY
    ) -> models.Operation:
        """Change what is to run, unless somebody else has meanwhile (LS0764)."""
        if if_match not in ("*", self.etag(job)):
            raise _stale(job)
        verbs = self.service.verbs(job)
        asked = verbs.rescale(**change.model_dump(), manner=manner)
        # Somebody may have been quicker between the look and the request: the operation says what it began with.
        if if_match != "*" and asked.before is not None and _etag(DesiredRun(**asked.before)) != if_match:
            verbs.settle(asked.number, "rollback")
            raise _stale(job)
        return views.operation(asked)

    def operations(self, job: str) -> list[models.Operation]:
        """The operations of a job, oldest first."""
        return [views.operation(one) for one in self.service.verbs(job).book.all()]

    def operation(self, job: str, number: int) -> models.Operation:
        """One of them. LS0741 if there is none of that number."""
        return views.operation(self._operation(job, number))

    def ask(self, job: str, request: models.OperationRequest, *, key: str = "", asked_by: str = "") -> models.Operation:
        """Ask for an operation, once for each key."""
        verbs = self.service.verbs(job)
        manner = Manner(asked_by, key, request.timeout_s, request.at_deadline)
        return views.operation(_asked(verbs, request, manner))

    def upgrade(
        self,
        job: str,
        job_file: str | Path,
        request: models.UpgradeRequest | None = None,
        *,
        key: str = "",
        asked_by: str = "",
    ) -> models.Operation:
        """Have a running job go on with the code in a file of this host."""
        sent = submission.from_file(job_file)
        return self.take_upgrade(job, sent, request or models.UpgradeRequest(), key=key, asked_by=asked_by)

    def take_upgrade(
        self, job: str, sent: submission.Submission, request: models.UpgradeRequest, *, key: str, asked_by: str
    ) -> models.Operation:
        """Have a running job go on with code that was sent."""
        self.service.store(job)
        asked = {"job": job, "key": key, "asked_by": asked_by, **request.model_dump()}
        with self._submitting:
            number = submission.upgrade(sent, self.service.project, asked)
        return self.operation(job, number)

    def change_environment(
        self,
        job: str,
        name: str,
        request: models.EnvironmentRequest | None = None,
        *,
        key: str = "",
        asked_by: str = "",
    ) -> models.Operation:
        """Have a running job go on in an environment that lockstep.toml names."""
        from lockstep.control.operations.environments import named_environment

        # Read anew: whoever is told that a name is missing adds it, and asks again.
        found = named_environment(load_settings(self.service.project).environments, name)
        return self.change_environment_to(job, found.python, found.java, request, key=key, asked_by=asked_by)

    def change_environment_to(
        self,
        job: str,
        python: str,
        java: str,
        request: models.EnvironmentRequest | None = None,
        *,
        key: str = "",
        asked_by: str = "",
    ) -> models.Operation:
        """Have a running job go on in another Python, or on another Java, by their paths on this host."""
        from lockstep.control.operations.environments import with_environment

        verbs, wanted = self.service.verbs(job), request or models.EnvironmentRequest()
        after = with_environment(verbs.current(), python, java)
        manner = Manner(asked_by, key, wanted.timeout_s, wanted.at_deadline)
        return views.operation(verbs.upgrade(after, same_results=True, manner=manner))

    def difference(self, job: str) -> models.Difference:
        """How the new results of an upgrade differ from those that were published."""
        found = [one for one in self.service.verbs(job).book.all() if one.kind == "upgrade"]
        newest = max((one.number for one in found), default=None)
        held = comparison(self.service.store(job), shadowed(self.service.store(job)))
        samples = [models.DifferenceSample(epoch=one.epoch, sink=one.sink, text=one.text) for one in held.samples]
        return models.Difference(
            operation=newest,
            replica=held.replica,
            first_epoch=held.first_epoch,
            last_epoch=held.last_epoch,
            epochs=held.epochs,
            differing=held.differing,
            samples=samples,
        )

    def settle(self, job: str, number: int, wish: Wish) -> models.Operation:
        """Say of an operation under way that it is to go on (``commit``), or back (``rollback``)."""
        return views.operation(self.service.verbs(job).settle(number, wish))

    def wait(self, job: str, number: int, wait_s: float) -> models.Operation:
        """An operation when it is over, or after so many seconds as it is then."""
        deadline_s = time.monotonic() + wait_s
        while (found := self.operation(job, number)).open and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        return found

    def savepoints(self, job: str) -> list[models.Savepoint]:
        """The savepoints of a job on this host, oldest first."""
        from lockstep.control.state.savepoints import list_savepoints

        return [views.savepoint(one) for one in list_savepoints(self._place(job))]

    def take_savepoint(self, job: str, name: str, *, pinned: bool = True) -> models.Savepoint:
        """Keep the state of a job under a name; it is whole and checked when this returns."""
        from lockstep.control.state.savepoints import take

        return views.savepoint(take(self._place(job), name, pinned=pinned))

    def check_savepoint(self, job: str, name: str) -> None:
        """Refuse a savepoint that could not be taken, whatever the job does."""
        from lockstep.control.state.savepoints import check_takeable

        check_takeable(self._place(job), name)

    def delete_savepoint(self, job: str, name: str) -> None:
        """Forget a savepoint."""
        from lockstep.control.state.savepoints import delete

        delete(self._place(job), name)

    def state_steps(self, job: str) -> dict[str, str]:
        """The steps that keep state, and why one of them cannot be asked for it ("" if it can)."""
        return self._state(job).steps()

    def state(
        self,
        job: str,
        step: str,
        *,
        key: Sequence[str] | None = None,
        first: str | None = None,
        last: str | None = None,
        limit: int = 100,
        savepoint: str | None = None,
    ) -> models.StateRows:
        """What a step keeps: for a key, for a range of the key's first part, or for all."""
        from lockstep.control.state.state_query import Wanted

        # A name alone: what the command line takes as a path must not come from elsewhere.
        named = f"{job}/{checked_name('savepoint', savepoint)}" if savepoint else None
        wanted = Wanted(tuple(key) if key else None, first, last, limit)
        return views.state_rows(self._state(job).ask(step, wanted, savepoint=named))

    def stop(self, job: str) -> models.Asked:
        """End a job after the epochs under way."""
        self.service.verbs(job).stop()
        return self._wanted(job)

    def kill(self, job: str) -> models.Asked:
        """End a job at once; nothing is lost, epochs under way are computed again by the next start."""
        self.service.verbs(job).kill()
        return self._wanted(job)

    def start(self, job: str) -> models.Asked:
        """Let a job that was stopped go on where it was, with its code and settings. LS0763 if it runs."""
        from lockstep.control.operations.deleting import job_runs

        store, order = self.service.store(job), self._order(job)
        if order.wanted or store.holder(LEASE) is not None:
            raise job_runs(job, "started")
        note_desired(store, replace(order, wanted=True, at_once=False))
        store.set_fact(RUN_BEGAN, str(wall_us()))
        return self._wanted(job)

    def delete(self, job: str, *, force: bool = False) -> None:
        """Forget a job that has stopped: its ledger, state, logs and dead letters, on all hosts. Journals that it reads
        and all that it has published stay. LS0763 if it runs, or if a host that has state of it does not answer; with
        ``force`` what that host has is left there."""
        from lockstep.control.operations.deleting import Deletion

        checked_name("job", job)
        if job not in self.service.jobs():
            raise unknown_job(job, self.service.jobs())
        self._forget_states(job)
        service = self.service
        deletion = Deletion(
            job,
            service.address,
            service.home,
            service.settings.hosts,
            lambda: service.store(job),
            lambda: service.forget(job),
        )
        deletion.run(force=force)

    def submit(
        self,
        job_file: str | Path,
        *,
        replicas: int | None = None,
        master: str = "",
        settings: Mapping[str, Any] | None = None,
        spark_conf: Mapping[str, str] | None = None,
        savepoint: str = "",
    ) -> models.Submitted:
        """Take a job in a file of this host, and have it run; from a savepoint (JOB/NAME) if it is new."""
        return self.take(
            submission.from_file(
                job_file,
                replicas=replicas,
                master=master,
                settings=settings,
                spark_conf=spark_conf,
                savepoint=savepoint,
            )
        )

    def take(self, sent: submission.Submission) -> models.Submitted:
        """Take a job that was sent, and have it run."""
        with self._submitting:
            job = submission.order(sent, self.service.project)
        return models.Submitted(job=job, bundle=sent.sha256.lower())

    def ingest(self, journal: str, body: bytes, key: str = "") -> models.Ingested:
        """Append JSON lines to a journal; on disk when this returns."""
        return self._ingestion.append(journal, body, key)

    def _place(self, job: str) -> Place:
        # Imported late, like all that has to do with checkpoints: it loads PySpark, and `lockstep list` needs none.
        from lockstep.control.state.savepoints import Place

        self.service.store(job)  # LS0760 if there is no such job: opening its store would make one
        return Place(self.service.home, self.service.address, job, self.service.settings)

    def _state(self, job: str) -> StateQueries:
        from lockstep.control.state.state_query import StateQueries

        place = self._place(job)
        with self._states_lock:
            if job not in self._states:
                self._states[job] = StateQueries(place)
            return self._states[job]

    def _forget_states(self, *jobs: str) -> None:
        with self._states_lock:
            for held in [self._states.pop(job) for job in jobs if job in self._states]:
                held.close()

    def _wanted(self, job: str) -> models.Asked:
        store = self.service.store(job)
        order = last_run(store)
        return models.Asked(job=job, wanted=order is not None and order.wanted, coordinator=store.holder(LEASE))

    def _operation(self, job: str, number: int) -> Operation:
        found = self.service.verbs(job).book.find(number)
        if found is None:
            raise unknown_operation(number)
        return found

    def _order(self, job: str) -> DesiredRun:
        order = last_run(self.service.store(job))
        if order is None:
            raise unknown_job(job, self.service.jobs())
        return order


def _asked(verbs: JobVerbs, request: models.OperationRequest, manner: Manner) -> Operation:
    if request.kind == "rescale":
        return verbs.rescale(
            replicas=request.replicas,
            partitions=request.partitions,
            stage=request.stage,
            cores=request.cores,
            manner=manner,
        )
    if request.kind == "move":
        return verbs.move(request.replica, request.host, manner)
    simple = {"restart": verbs.restart, "activate": verbs.activate, "deactivate": verbs.deactivate}
    return simple[request.kind](manner)


def _etag(order: DesiredRun) -> str:
    text = json.dumps(order.to_json(), sort_keys=True)
    return f'"{order.generation}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"'


def _stale(job: str) -> ServiceError:
    return ServiceError(
        "LS0764",
        f'the spec of job "{job}" has changed meanwhile',
        why="somebody else has changed it since it was read.",
        hint=f"read it again (GET /api/v1/jobs/{job}/spec) and send its new ETag as If-Match.",
    )
