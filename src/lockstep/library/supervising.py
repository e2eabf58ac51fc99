"""``python -m lockstep.library.supervising FD``: supervise a job that a Python program has started, for as long as it
wants that.

What `lockstep run` does, in a process of its own: its signals, its errors and its end are not the program's. What is to
run comes as a line of JSON on standard input, then one word a line: "stop" (after the epoch under way) or "kill". Input
that ends means that the program is gone. What came of it is written to the file FD as lines of JSON: {"ready"} or
{"refused"}, then {"ended"}; errors as they travel.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from lockstep.api.loading import load_job
from lockstep.config import load_settings
from lockstep.connect.tables import look_in
from lockstep.control.start.run import PreparedRun, prepare_run, run_job
from lockstep.credentials import RedactedStream
from lockstep.errors import LockstepError, RunError
from lockstep.library.process import KILL, STOP
from lockstep.store.opening import absolute, lock_file


@dataclass
class Owner:
    """The program that has started the job.

    >>> owner = Owner(pid=os.getppid(), temporary=True)
    >>> owner.stops_wanted
    0
    >>> owner.listen([b"stop\\n"])
    >>> owner.stops_wanted
    2
    """

    pid: int
    temporary: bool
    """Whether nobody will ever come for what the job keeps."""
    _words: set[str] = field(default_factory=set)
    _pipe_ended: bool = False

    def listen(self, lines: Iterable[bytes]) -> None:
        """Hear what it says until it is gone."""
        for line in lines:
            self._words.add(line.decode().strip())
        self._pipe_ended = True

    @property
    def is_gone(self) -> bool:
        """Whether nobody is there any more to say something. A process that it has forked may hold its pipe."""
        return self._pipe_ended or os.getppid() != self.pid

    @property
    def stops_wanted(self) -> int:
        """How often the supervisor is to be told to stop: twice means at once."""
        if KILL in self._words or (self.is_gone and self.temporary):
            return 2
        return 1 if STOP in self._words or self.is_gone else 0


def main() -> int:
    """Supervise until the job is over; exit code 0 if it was allowed to run."""
    sys.stderr = RedactedStream(sys.stderr)
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    # Not sys.stdin: a thread that waits in there has its lock, and an interpreter that ends wants it.
    words = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - until this process ends
    order = json.loads(words.readline())
    owner = Owner(order["owner"], order["temporary"])
    threading.Thread(target=owner.listen, args=(words,), name="owner", daemon=True).start()
    try:
        prepared = _prepared(order)
    except LockstepError as error:
        _answer(answers, owner, refused=error.to_wire())
        return 2
    run = prepared.settings.run
    _answer(answers, owner, ready=True, stop_timeout_s=run.stop_timeout_s)
    failure = _supervised(prepared, owner)
    _answer(answers, owner, ended=failure.to_wire() if failure is not None else "", done=prepared.supervisor.done)
    prepared.store.close()
    if owner.is_gone and owner.temporary:
        shutil.rmtree(order["project"], ignore_errors=True)
    return 0


def _prepared(order: Mapping[str, Any]) -> PreparedRun:
    project = Path(order["project"])
    look_in(project)
    loaded = load_job(order["job_file"])
    address = absolute(load_settings(project).store, project)
    if lock_file(address, loaded.job.name) is None:
        raise RunError(
            "LS0625",
            f'job "{loaded.job.name}" was made in a running Python, and its store is shared by hosts',
            why="such a job is packed with what this process has in memory, and that is not sent to other hosts.",
            hint="put the job in a file: `lockstep run job.py --detach`, or `lockstep submit job.py`.",
        )
    return prepare_run(loaded, project, order["run"], order["spark"])


def _supervised(prepared: PreparedRun, owner: Owner) -> LockstepError | None:
    try:
        run_job(prepared, partial(_obey, prepared, owner))
    except LockstepError as error:
        return error
    return None


def _obey(prepared: PreparedRun, owner: Owner) -> None:
    while prepared.supervisor.stops < owner.stops_wanted:
        prepared.supervisor.stop()


def _answer(answers: IO[str], owner: Owner, **said: Any) -> None:
    """Tell the owner, if it is there."""
    try:
        answers.write(json.dumps(said) + "\n")
        answers.flush()
    except BrokenPipeError:
        print(f"process {owner.pid}, which started this job, is gone", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
