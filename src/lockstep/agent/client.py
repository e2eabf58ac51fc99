"""Talking to an agent: every call has a timeout, and says whether the agent is silent or gone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from lockstep.agent.bundles import DIGEST_HEADER
from lockstep.agent.contact import Contact
from lockstep.agent.hosting import Listed
from lockstep.agent.server import BUNDLES, TERM_HEADER
from lockstep.errors import RunError, from_wire
from lockstep.runtime.spec import ReplicaSpec

LOOK_TIMEOUT_S = 1.0
"""For a look at all processes, ten times a second: what was seen before holds meanwhile."""
ACT_TIMEOUT_S = 20.0
"""For a command. Ending a process waits until it is gone, five seconds at most; the rest is for a busy machine."""
ACT_ELSEWHERE_TIMEOUT_S = 7.0
"""On another host, which may be cut off: whoever commands has a lease to renew meanwhile."""
UPLOAD_TIMEOUT_S = 60.0
"""For each piece of a bundle to be taken, and for it to be unpacked."""


ENDING = "LS0682"


class AgentSilent(RunError):
    """It is there and does not answer in time, or cannot now: it may have done what it was told."""


class _Broken(AgentSilent):
    """A connection broke: one that was idle may have been closed, and a new one tells whether anybody listens."""


class AgentGone(RunError):
    """Nobody listens any more."""


class AgentClient:
    """One agent and one job, with the term of whoever commands; 0 may only look."""

    def __init__(self, contact: Contact, job: str, term: int = 0) -> None:
        self.contact = contact
        self.job = job
        self.term = term
        self._connection: http.client.HTTPConnection | None = None

    def about(self) -> dict[str, Any]:
        """What the agent says of itself and its host."""
        return self._ask("GET", "/agent", timeout_s=ACT_TIMEOUT_S)

    def is_ending(self, timeout_s: float = ACT_TIMEOUT_S) -> bool:
        """Whether it will not be there in a moment; asked without commanding."""
        return bool(self._ask("GET", self._job_path(), timeout_s=timeout_s)["ending"])

    def take_up(self, order: Mapping[str, Any]) -> None:
        """Tell it what is to run: it keeps a process that can coordinate the job, and takes orders for it."""
        self._ask("PUT", self._job_path(), {"order": order})

    def delete(self) -> None:
        """Have that host remove all that it has of a job that runs nowhere."""
        self._ask("DELETE", self._job_path(), timeout_s=UPLOAD_TIMEOUT_S)

    def has_bundle(self, name: str) -> bool:
        """Whether it has the job's code and tables."""
        return bool(self._ask("GET", f"{self._job_path()}/bundles/{name}")["there"])

    def put_bundle(self, name: str, file: Path, digest: str) -> None:
        """Send it the job's code and tables."""
        headers = {"Content-Length": str(file.stat().st_size), DIGEST_HEADER: digest}
        with file.open("rb") as body:
            self._asked("PUT", f"{BUNDLES}{quote(self.job, safe='')}/{name}", body, UPLOAD_TIMEOUT_S, headers)

    def begin_with(self, replica: str, state: str) -> None:
        """Have state that was sent in a bundle be a replica's checkpoints there."""
        self._ask("POST", f"{self._job_path()}/begin", {"replica": replica, "state": state}, UPLOAD_TIMEOUT_S)

    def probe(self, place: str, name: str, act: str) -> bool:
        """``write``, ``look`` for or ``remove`` a file in a place of that host; whether it is there then."""
        return bool(self._ask("POST", f"{self._job_path()}/probe", {"place": place, "name": name, "act": act})["there"])

    def standings(self, stages: int) -> dict[str, tuple[int, ...]]:
        """The newest epoch that each stage of each replica has computed, by the checkpoints on that host."""
        found = self._ask("GET", f"{self._job_path()}/standings/{stages}")["standings"]
        return {name: tuple(epochs) for name, epochs in found.items()}

    def listed(self, timeout_s: float = LOOK_TIMEOUT_S) -> tuple[list[Listed], int]:
        """All processes, and how much memory is free on that host."""
        try:
            answer = self._ask("GET", self._path(), timeout_s=timeout_s)
        except OSError as error:
            raise self._trouble(error) from None
        return [Listed(**one) for one in answer["processes"]], int(answer["memory_free_bytes"])

    def start(self, handle: str, spec: ReplicaSpec, shape: Mapping[str, Any], *, spare: bool, gently: bool) -> Listed:
        """Start a process. A repeated order with the same handle starts no second one."""
        body = {"spec": asdict(spec), "shape": shape, "spare": spare, "gently": gently}
        try:
            return Listed(**self._ask("PUT", self._path(handle), body))
        except AgentSilent:
            return Listed(**self._ask("PUT", self._path(handle), body))

    def become(self, handle: str, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell a spare which replica it is; whether it was there to listen."""
        return bool(self._ask("POST", self._path(handle, "become"), {"spec": asdict(spec), "gently": gently})["heard"])

    def cpu_s(self, handle: str) -> float:
        """The processor time of one process."""
        return float(self._ask("GET", self._path(handle, "cpu"), timeout_s=LOOK_TIMEOUT_S)["cpu_s"])

    def command(self, handle: str, what: str) -> None:
        """``drain``, ``kill`` (which also acknowledges that it has ended) or ``full-speed``."""
        try:
            self._ask("POST", self._path(handle, what))
        except OSError as error:
            raise self._trouble(error) from None

    def end(self) -> None:
        """Have the agent end all that is left and then itself."""
        self._ask("POST", f"{self._job_path()}/end")

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _job_path(self) -> str:
        return f"/jobs/{quote(self.job, safe='')}"

    def _path(self, handle: str = "", what: str = "") -> str:
        return "/".join([self._job_path(), "processes", handle, what]).rstrip("/")

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        if timeout_s is None:
            timeout_s = ACT_ELSEWHERE_TIMEOUT_S if self.contact.host else ACT_TIMEOUT_S
        had_one = self._connection is not None
        text = json.dumps(body or {}).encode()
        try:
            return self._asked(method, path, text, timeout_s)
        except (AgentGone, _Broken):
            if not had_one:
                raise
            # It may have been closed while nothing was said on it: a new one tells whether anybody listens.
            return self._asked(method, path, text, timeout_s)

    def _asked(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes],
        timeout_s: float,
        more_headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.contact.token}", TERM_HEADER: str(self.term)}
        try:
            connection = self._connected(timeout_s)
            connection.request(method, path, body, {**headers, **(more_headers or {})})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except TimeoutError:
            # What it would still say belongs to this request, and to no other.
            self.close()
            raise self.silence(timeout_s) from None
        except (ConnectionRefusedError, FileNotFoundError) as error:
            self.close()
            raise self._gone(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # No sign that nobody is there: this process may have no more files, or the agent no more threads.
            self.close()
            raise self._broken(error) from None
        if response.status == http.HTTPStatus.OK:
            return answer
        if response.status == http.HTTPStatus.NOT_FOUND and self.contact.host:
            # Nobody commanded it for long, and it has ended the job's processes: as one that is gone.
            raise self._gone(LookupError(answer.get("trouble", "")))
        said = from_wire(answer.get("error", ""))
        if said is not None and said.code == ENDING:
            # It drains, and is gone in a moment; until then nothing can be told to it.
            raise AgentSilent(said.code, said.fact, why=said.why, hint=said.hint)
        raise said or OSError(f"the agent refused: {answer.get('trouble', answer)}")

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self.contact.connection(timeout_s)
            self._connection.connect()
        self._connection.sock.settimeout(timeout_s)
        return self._connection

    def silence(self, timeout_s: float) -> AgentSilent:
        """The error to raise when it has not answered for so long."""
        return AgentSilent(
            "LS0680",
            f"{self._who} has not answered for {timeout_s:.0f} s",
            why="its process hangs or is stopped, its host cannot be reached, or it is very busy. Its replicas go on.",
            hint=f"see {self.contact.log}; if it does not come back, end it (kill -9).",
        )

    def _trouble(self, error: Exception) -> AgentSilent:
        fact = f"{self._who} cannot do what it is asked now"
        return AgentSilent("LS0680", fact, why=f"{error}.", hint=f"see {self.contact.log}.")

    def _broken(self, error: Exception) -> _Broken:
        fact = f"the connection to {self._who} broke"
        why = f"{type(error).__name__}: {error}."
        return _Broken("LS0680", fact, why=why, hint=f"see {self.contact.log}.")

    def _gone(self, error: Exception) -> AgentGone:
        return AgentGone(
            "LS0681",
            f"{self._who} is gone",
            why=f"nobody listens at {self.contact.address} ({error}).",
            hint=f"`lockstep run` starts another one, on another host `lockstep agent` does; see {self.contact.log}.",
        )

    @property
    def _who(self) -> str:
        host = self.contact.host
        return f"the agent of host {host}" if host else f'the agent of job "{self.job}"'
