"""A service that is elsewhere, from Python: a method for each thing that can be asked, typed like the service's own."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from lockstep.control.operations.verbs import TIMEOUT_S
from lockstep.errors import LockstepError, ServiceError
from lockstep.errors.tree import error_class
from lockstep.serve import models
from lockstep.serve.submission import from_file
from lockstep.store.names import checked_name

if TYPE_CHECKING:
    import httpx2

TOKEN_VARIABLE = "LOCKSTEP_SERVICE_TOKEN"  # noqa: S105 - a name, not a token
API = "/api/v1"
WAIT_S = 30.0
"""How long one request waits for an operation; :meth:`Client.wait` asks again."""
_TIMEOUT_S = 30.0
_SUBMIT_TIMEOUT_S = 200.0

Answer = TypeVar("Answer")


class Client:
    """A service, by its address; ``token`` is needed once tokens were made there.

    >>> import lockstep as ls
    >>> with ls.Client("http://127.0.0.1:8470", token="...") as elsewhere:
    ...     elsewhere.url
    'http://127.0.0.1:8470'

    Errors are those of the service, with their codes:

    >>> client.describe("nobody")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ServiceError: LS0760 there is no job "nobody"
      why:  the jobs here are: logins.
      try:  `lockstep list` shows them; `lockstep submit job.py` makes one.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = _TIMEOUT_S, http: httpx2.Client | None = None
    ) -> None:
        self.url = url.rstrip("/")
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Neither proxies nor a .netrc of the environment: a token goes to the service that was named, and nowhere else.
        self._http = http or library().Client(
            base_url=self.url, headers=headers, timeout=timeout_s, follow_redirects=False, trust_env=False
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def jobs(self) -> list[models.JobSummary]:
        """All jobs.

        >>> [(one.job, one.head_epoch) for one in client.jobs()]
        [('logins', 4)]
        """
        return _parsed(list[models.JobSummary], self._ask("GET", "/jobs"))

    def cluster(self) -> models.Cluster:
        """What the jobs run on: the store, who coordinates, hosts, executors.

        >>> there = client.cluster()
        >>> there.store.kind, there.store.answers, [(one.job, one.term) for one in there.coordinators]
        ('sqlite', True, [('logins', 0)])
        """
        return self._one(models.Cluster, "GET", "/cluster")

    def describe(self, job: str) -> models.JobDescription:
        """All about a job.

        >>> [(one.replica, one.epoch) for one in client.describe("logins").replicas]
        [('r0', 4), ('r1', 4)]
        """
        return self._one(models.JobDescription, "GET", f"/jobs/{job}")

    def replicas(self, job: str) -> list[models.Replica]:
        """The replicas of a job.

        >>> [one.state for one in client.replicas("logins")]
        ['running', 'running']
        """
        return _parsed(list[models.Replica], self._ask("GET", f"/jobs/{job}/replicas"))

    def stages(self, job: str) -> list[models.Stage]:
        """The stages of a job.

        >>> [(one.stage, one.partitions) for one in client.stages("logins")]
        [(0, 1)]
        """
        return _parsed(list[models.Stage], self._ask("GET", f"/jobs/{job}/stages"))

    def plan(self, job: str) -> models.Plan:
        """The graph of a job, and where it is computed.

        >>> client.plan("logins").text
        'logins -> out'
        """
        return self._one(models.Plan, "GET", f"/jobs/{job}/plan")

    def epochs(self, job: str, before: int | None = None, limit: int = 50) -> models.Epochs:
        """The newest epochs, or those before one of them.

        >>> page = client.epochs("logins", limit=2)
        >>> [one.epoch for one in page.epochs], [one.epoch for one in client.epochs("logins", page.before).epochs]
        ([4, 3], [2, 1, 0])
        """
        return self._one(models.Epochs, "GET", f"/jobs/{job}/epochs", {"before": before, "limit": limit})

    def events(self, job: str, after: int = 0, limit: int = 100) -> models.Events:
        """What happened to a job after one of its events; :meth:`follow` waits for more.

        >>> [one.kind for one in client.events("logins").events]
        ['replica-started', 'seeded']
        """
        return self._one(models.Events, "GET", f"/jobs/{job}/events", {"after": after, "limit": limit})

    def follow(self, job: str, after: int = 0) -> Iterator[models.Event]:
        """Events as they happen, without an end. Where a connection breaks, it goes on after the last one.

        >>> next(client.follow("logins")).text  # doctest: +SKIP
        'pid 1, start 1'
        """
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            try:
                with self._http.stream(
                    "GET", f"{API}/jobs/{job}/events", headers=headers, timeout=2 * WAIT_S
                ) as response:
                    if response.status_code != 200:
                        response.read()
                        raise _problem(response, self.url)
                    for event in _events(response.iter_lines()):
                        after = event.id
                        yield event
            except library().TransportError:
                time.sleep(1.0)

    def log(self, job: str, name: str = "coordinator", lines: int = 100) -> models.Log:
        """The end of the log of a replica, or of the coordinator.

        >>> client.log("logins", "r0").lines
        []
        """
        return self._one(models.Log, "GET", f"/jobs/{job}/logs", {"replica": name, "lines": lines})

    def spec(self, job: str) -> models.Spec:
        """What is to run.

        >>> client.spec("logins").replicas
        2
        """
        return self._one(models.Spec, "GET", f"/jobs/{job}/spec")

    def etag(self, job: str) -> str:
        """Which spec that is, for :meth:`change_spec`."""
        return str(self._ask("GET", f"/jobs/{job}/spec").headers["etag"])

    def change_spec(self, job: str, change: models.SpecChange, if_match: str) -> models.Operation:
        """Change what is to run, unless somebody else has since the ETag was read.

        >>> tag = client.etag("logins")
        >>> client.change_spec("logins", models.SpecChange(replicas=3), tag).arguments
        {'replicas': 3}
        """
        body = change.model_dump(exclude_none=True)
        answer = self._ask("PUT", f"/jobs/{job}/spec", json=body, headers={"If-Match": if_match})
        return _parsed(models.Operation, answer)

    def operations(self, job: str) -> list[models.Operation]:
        """The newest operations of a job, oldest first.

        >>> client.operations("logins")
        []
        """
        return _parsed(list[models.Operation], self._ask("GET", f"/jobs/{job}/operations"))

    def operation(self, job: str, number: int) -> models.Operation:
        """One of them, as it is now.

        >>> client.operation("logins", client.restart("logins").number).kind
        'restart'
        """
        return self._one(models.Operation, "GET", f"/jobs/{job}/operations/{number}")

    def wait(self, job: str, number: int, wait_s: float = TIMEOUT_S) -> models.Operation:
        """An operation when it is over, or after so many seconds as it is then.

        >>> client.wait("logins", client.deactivate("logins").number).state
        'done'
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, min(WAIT_S, deadline_s - time.monotonic()))
            query = {"wait": round(left_s, 1)}
            answer = self._ask("GET", f"/jobs/{job}/operations/{number}", query, timeout_s=_TIMEOUT_S + WAIT_S)
            found = _parsed(models.Operation, answer)
            if not found.open or time.monotonic() >= deadline_s:
                return found

    def ask(self, job: str, request: models.OperationRequest, *, key: str = "", asked_by: str = "") -> models.Operation:
        """Ask for an operation. Asked again with the same ``key``, since the answer got lost, it is the same one.

        >>> asked = models.OperationRequest(kind="restart")
        >>> client.ask("logins", asked, key="k1").number, client.ask("logins", asked, key="k1").number
        (1, 1)
        """
        del asked_by  # the service knows by the token
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        body = request.model_dump(exclude_none=True)
        return _parsed(models.Operation, self._ask("POST", f"/jobs/{job}/operations", json=body, headers=headers))

    def rescale(
        self,
        job: str,
        *,
        replicas: int | None = None,
        partitions: int | None = None,
        stage: int | None = None,
        cores: int | None = None,
    ) -> models.Operation:
        """Another number of replicas, or another shape of all of them, without a pause.

        >>> client.rescale("logins", partitions=4).arguments
        {'partitions': 4}
        """
        return self.ask(
            job,
            models.OperationRequest(kind="rescale", replicas=replicas, partitions=partitions, stage=stage, cores=cores),
        )

    def restart(self, job: str) -> models.Operation:
        """Replace every replica by a new process, one at a time.

        >>> client.restart("logins").state
        'asked'
        """
        return self.ask(job, models.OperationRequest(kind="restart"))

    def move(self, job: str, replica: str, host: str) -> models.Operation:
        """Have a replica live on another host.

        >>> client.move("logins", "r1", "host-2").arguments
        {'replica': 'r1', 'host': 'host-2'}
        """
        return self.ask(job, models.OperationRequest(kind="move", replica=replica, host=host))

    def activate(self, job: str) -> models.Operation:
        """Go on where :meth:`deactivate` stopped.

        >>> client.activate("logins").state
        'done'
        """
        return self.ask(job, models.OperationRequest(kind="activate"))

    def deactivate(self, job: str) -> models.Operation:
        """Seal no more epochs; replicas stay, input waits.

        >>> client.deactivate("logins").state
        'done'
        """
        return self.ask(job, models.OperationRequest(kind="deactivate"))

    def settle(self, job: str, number: int, wish: Literal["commit", "rollback"]) -> models.Operation:
        """Say of an operation under way that it is to go on, or back.

        >>> client.settle("logins", client.restart("logins").number, "rollback").wish
        'rollback'
        """
        return self._one(models.Operation, "POST", f"/jobs/{job}/operations/{number}/{wish}")

    def savepoints(self, job: str) -> list[models.Savepoint]:
        """The savepoints of a job, oldest first.

        >>> client.savepoints("logins")
        []
        """
        return _parsed(list[models.Savepoint], self._ask("GET", f"/jobs/{job}/savepoints"))

    def take_savepoint(self, job: str, name: str, *, pinned: bool = True) -> models.Savepoint:
        """Keep the state of a job under a name; it is whole and checked when this returns."""
        body = {"name": name, "pinned": pinned}
        answer = self._ask("POST", f"/jobs/{job}/savepoints", json=body, timeout_s=_SUBMIT_TIMEOUT_S)
        return _parsed(models.Savepoint, answer)

    def check_savepoint(self, job: str, name: str) -> None:
        """Refuse the name of a savepoint that is there already, or that is none."""
        checked_name("savepoint", name)
        if any(one.name == name for one in self.savepoints(job)):
            raise ServiceError("LS0721", f'job "{job}" has a savepoint "{name}" already', hint="choose another name.")

    def delete_savepoint(self, job: str, name: str) -> None:
        """Forget a savepoint."""
        self._ask("DELETE", f"/jobs/{job}/savepoints/{name}")

    def state_steps(self, job: str) -> dict[str, str]:
        """The steps that keep state, and why one of them cannot be asked for it ("" if it can)."""
        return _parsed(dict[str, str], self._ask("GET", f"/jobs/{job}/state"))

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
        """What a step keeps while the job runs: for a key, for a range of the key's first part, or for all."""
        query = {"key": list(key or []), "first": first, "last": last, "limit": limit, "savepoint": savepoint}
        return self._one(models.StateRows, "GET", f"/jobs/{job}/state/{step}", query)

    def stop(self, job: str) -> models.Asked:
        """End a job after the epochs under way. It is over when ``describe(job).coordinator`` is None.

        >>> client.stop("logins").wanted
        False
        """
        return self._one(models.Asked, "POST", f"/jobs/{job}/stop")

    def kill(self, job: str) -> models.Asked:
        """End a job at once; nothing is lost.

        >>> client.kill("logins").wanted
        False
        """
        return self._one(models.Asked, "POST", f"/jobs/{job}/kill")

    def start(self, job: str) -> models.Asked:
        """Let a job that was stopped go on where it was.

        >>> _ = client.stop("logins")
        >>> client.start("logins").wanted
        True
        """
        return self._one(models.Asked, "POST", f"/jobs/{job}/start")

    def delete(self, job: str, *, force: bool = False) -> None:
        """Forget a job that has stopped, with its state; what it has published stays.

        ``force``: also if a host that has state of it does not answer; what is there is left.

        >>> _ = client.stop("logins")
        >>> client.delete("logins")
        >>> client.jobs()
        []
        """
        self._ask("DELETE", f"/jobs/{job}", {"force": force})

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
        """Send a job's code (``job.py``, or ``job.py:variable``) with the modules that it imports, and have it run.

        With a ``savepoint`` of the service (JOB/NAME) a job that is new goes on from there.
        """
        sent = from_file(job_file, replicas=replicas, master=master, settings=settings, spark_conf=spark_conf)
        query = {
            "file": sent.file,
            "variable": sent.variable,
            "master": master,
            "from": savepoint,
            "set": [f"{key}={value if isinstance(value, str) else dumps(value)}" for key, value in sent.run.items()],
            "spark-conf": [f"{key}={value}" for key, value in sent.spark["conf"].items()],
        }
        headers = {"Lockstep-Digest": sent.sha256, "Content-Type": "application/zip"}
        answer = self._ask("POST", "/jobs", query, content=sent.bundle, headers=headers, timeout_s=_SUBMIT_TIMEOUT_S)
        return _parsed(models.Submitted, answer)

    def upgrade(
        self,
        job: str,
        job_file: str | Path,
        request: models.UpgradeRequest | None = None,
        *,
        key: str = "",
        asked_by: str = "",
    ) -> models.Operation:
        """Have a running job go on with other code (``job.py``, or ``job.py:variable``).

        Unless it is said to have the same results, it computes in the shadow until they are equal, or committed.
        """
        del asked_by  # the service knows who asks
        sent, wanted = from_file(job_file), (request or models.UpgradeRequest()).model_dump(exclude={"at_deadline"})
        headers = {"Lockstep-Digest": sent.sha256, "Content-Type": "application/zip"}
        headers |= {"Idempotency-Key": key or secrets.token_hex(16)}
        query = {"file": sent.file, "variable": sent.variable, **wanted}
        path = f"/jobs/{job}/upgrade"
        answer = self._ask("POST", path, query, content=sent.bundle, headers=headers, timeout_s=_SUBMIT_TIMEOUT_S)
        return _parsed(models.Operation, answer)

    def change_environment(
        self,
        job: str,
        name: str,
        request: models.EnvironmentRequest | None = None,
        *,
        key: str = "",
        asked_by: str = "",
    ) -> models.Operation:
        """Have a running job go on in an environment that the service's lockstep.toml names.

        Replicas of both run side by side; it is rolled back if their results differ.
        """
        del asked_by  # the service knows who asks
        wanted = request or models.EnvironmentRequest()
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        path = f"/jobs/{job}/environments/{name}"
        return _parsed(
            models.Operation,
            self._ask("POST", path, json=wanted.model_dump(), headers=headers, timeout_s=_SUBMIT_TIMEOUT_S),
        )

    def difference(self, job: str) -> models.Difference:
        """How the new results of an upgrade differ from those that were published."""
        return _parsed(models.Difference, self._ask("GET", f"/jobs/{job}/difference"))

    def ingest(self, journal: str, records: bytes | Iterable[Mapping[str, Any]], *, key: str = "") -> models.Ingested:
        """Append records, or JSON lines; they are on disk when this returns.

        LS0767 asks to send the same again a little later. With a ``key``, what was appended under it is not again; it
        is what :meth:`lockstep.Journal.put` calls ``once``.

        >>> client.ingest("logins", [{"user": "ann", "ok": True}, {"user": "bob"}]).positions
        {'0': (0, 2)}
        """
        lines = records if isinstance(records, bytes) else "\n".join(map(dumps, records)).encode()
        headers = {"Content-Type": "application/x-ndjson", **({"Idempotency-Key": key} if key else {})}
        return _parsed(models.Ingested, self._ask("POST", f"/ingest/{journal}", content=lines, headers=headers))

    def _one(self, kind: type[Answer], method: str, path: str, query: Mapping[str, Any] | None = None) -> Answer:
        return _parsed(kind, self._ask(method, path, query))

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> httpx2.Response:
        given = {name: value for name, value in (query or {}).items() if value not in (None, "", [])}
        try:
            request = self._http.build_request(
                method,
                f"{API}{path}",
                params=given,
                json=json,
                content=content,
                headers=dict(headers or {}),
                timeout=timeout_s,
            )
            response = self._http.send(request)
        except (library().TransportError, library().InvalidURL) as error:
            raise _away(self.url, f"{type(error).__name__}: {error}") from None
        if response.status_code >= 300:
            raise _problem(response, self.url)
        return response


def library() -> ModuleType:
    """httpx2, LS0762 if it is not installed."""
    try:
        import httpx2
    except ImportError as error:
        raise not_installed(error) from None
    return httpx2


def not_installed(error: ImportError) -> ServiceError:
    """The packages of the service are missing."""
    return ServiceError(
        "LS0762",
        "the service's packages are not installed",
        why=f"{error}.",
        hint="pip install 'lockstep[serve]'",
    )


def _parsed(kind: type[Answer], response: httpx2.Response) -> Answer:
    try:
        return TypeAdapter(kind).validate_json(response.content)
    except ValidationError as error:
        raise _away(str(response.url), f"it answered something else: {str(error)[:500]}") from None


def _problem(response: httpx2.Response, url: str) -> LockstepError:
    """The error that the service has met, as if it had happened here."""
    try:
        said = models.Problem.model_validate_json(response.content)
    except ValidationError:
        return _away(url, f"it answered {response.status_code}, which is nothing that a service says")
    return error_class(said.code)(said.code, said.title, why=said.detail, hint=said.hint)


def _away(url: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0775",
        f"no service answers at {url}",
        why=f"{why}.",
        hint="look whether `lockstep serve` runs there, and at --service or LOCKSTEP_SERVICE.",
    )


def _events(lines: Iterable[str]) -> Iterator[models.Event]:
    """The events of a stream: each has its whole body in one line of data."""
    for line in lines:
        if line.startswith("data: "):
            yield models.Event.model_validate_json(line.removeprefix("data: "))
