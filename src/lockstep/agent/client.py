"""Talking to an agent: every call has a timeout, and says whether the agent is silent or gone."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from lockstep.agent.description import Description
from lockstep.agent.hosting import Listed
from lockstep.agent.server import TERM_HEADER
from lockstep.errors import RunError, from_wire
from lockstep.runtime.spec import ReplicaSpec

LOOK_TIMEOUT_S = 1.0
"""For a look at all processes, ten times a second: what was seen before holds meanwhile."""
ACT_TIMEOUT_S = 20.0
"""For a command. Ending a process waits until it is gone, five seconds at most; the rest is for a busy machine."""


ENDING = "LS0682"


class AgentSilent(RunError):
    """It is there and does not answer in time, or cannot now: it may have done what it was told."""


class _Broken(AgentSilent):
    """A connection broke: one that was idle may have been closed, and a new one tells whether anybody listens."""


class AgentGone(RunError):
    """Nobody listens any more."""


class AgentClient:
    """One agent and one job, with the term of whoever commands; 0 may only look."""

    def __init__(self, description: Description, term: int = 0) -> None:
        self.description = description
        self.term = term
        self._connection: http.client.HTTPConnection | None = None

    def about(self) -> dict[str, Any]:
        """What the agent says of itself and its host."""
        return self._ask("GET", "/agent", timeout_s=ACT_TIMEOUT_S)

    def is_ending(self, timeout_s: float = ACT_TIMEOUT_S) -> bool:
        """Whether it will not be there in a moment; asked without commanding."""
        return bool(self._ask("GET", f"/jobs/{quote(self.description.job, safe='')}", timeout_s=timeout_s)["ending"])

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
        self._ask("POST", f"/jobs/{quote(self.description.job, safe='')}/end")

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, handle: str = "", what: str = "") -> str:
        parts = ["", "jobs", quote(self.description.job, safe=""), "processes", handle, what]
        return "/".join(parts).rstrip("/")

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = ACT_TIMEOUT_S
    ) -> dict[str, Any]:
        had_one = self._connection is not None
        try:
            return self._asked(method, path, body, timeout_s)
        except (AgentGone, _Broken):
            if not had_one:
                raise
            # It may have been closed while nothing was said on it: a new one tells whether anybody listens.
            return self._asked(method, path, body, timeout_s)

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        text = json.dumps(body or {}).encode()
        headers = {"Authorization": f"Bearer {self.description.token}", TERM_HEADER: str(self.term)}
        try:
            connection = self._connected(timeout_s)
            connection.request(method, path, text, headers)
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
        said = from_wire(answer.get("error", ""))
        if said is not None and said.code == ENDING:
            # It drains, and is gone in a moment; until then nothing can be told to it.
            raise AgentSilent(said.code, said.fact, why=said.why, hint=said.hint)
        raise said or OSError(f"the agent refused: {answer.get('trouble', answer)}")

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = _UnixConnection(self.description.socket, timeout_s)
            self._connection.connect()
        self._connection.sock.settimeout(timeout_s)
        return self._connection

    def silence(self, timeout_s: float) -> AgentSilent:
        """The error to raise when it has not answered for so long."""
        return AgentSilent(
            "LS0680",
            f'the agent of job "{self.description.job}" has not answered for {timeout_s:.0f} s',
            why="its process hangs or is stopped, or the machine is very busy. Its replicas go on.",
            hint=f"see {self.description.folder}/agent.log; if it does not come back, end it: "
            f"kill -9 $(cat {self.description.folder}/agent.pid)",
        )

    def _trouble(self, error: Exception) -> AgentSilent:
        fact = f'the agent of job "{self.description.job}" cannot do what it is asked now'
        return AgentSilent("LS0680", fact, why=f"{error}.", hint=f"see {self.description.folder}/agent.log.")

    def _broken(self, error: Exception) -> _Broken:
        fact = f'the connection to the agent of job "{self.description.job}" broke'
        why = f"{type(error).__name__}: {error}."
        return _Broken("LS0680", fact, why=why, hint=f"see {self.description.folder}/agent.log.")

    def _gone(self, error: Exception) -> AgentGone:
        return AgentGone(
            "LS0681",
            f'the agent of job "{self.description.job}" is gone',
            why=f"nobody listens at {self.description.socket} ({error}).",
            hint=f"`lockstep run` starts another one; see {self.description.folder}/agent.log for the end of this one.",
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._socket_path = path

    def connect(self) -> None:
        """To the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)
