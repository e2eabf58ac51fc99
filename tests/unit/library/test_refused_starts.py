"""What cannot be started from Python is refused before any process is, with what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.api.loading import being_loaded, load_job
from lockstep.errors import LockstepError
from lockstep.library import running

SCHEMA = "user string"


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def no_process(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(running, "SupervisorProcess", no_process)
    before = list(sys.path)
    yield
    sys.path[:] = before


def _job(source: object) -> ls.Job:
    job = ls.Job("refused")
    job.source("users", source).to(ls.files("out"))  # type: ignore[arg-type]
    return job


def _refused(start: Callable[[], object]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        start()
    return caught.value


@pytest.mark.parametrize("call", ["job.run()", "job.start()"])
def test_a_file_that_starts_its_job_while_it_is_loaded_is_refused_with_the_line(call: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "import lockstep as ls\n"
        "job = ls.Job('script')\n"
        "job.source('users', ls.collection([], schema='user string')).to(ls.files('out'))\n"
        f"{call}\n"
    )
    error = _refused(lambda: load_job(str(file)))
    assert error.code == "LS0125"
    assert f"script.py, line 4: {call}" in error.why
    assert being_loaded() is None


def test_the_same_file_is_loaded_if_it_starts_its_job_as_a_program_only(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "import lockstep as ls\n"
        "job = ls.Job('script')\n"
        "job.source('users', ls.collection([], schema='user string')).to(ls.files('out'))\n"
        "if __name__ == '__main__':\n"
        "    job.run()\n"
    )
    assert load_job(str(file)).job.name == "script"


def test_a_temporary_folder_has_nothing_to_read() -> None:
    files = _job(ls.files("in", schema=SCHEMA))
    journal = _job(ls.journal("users", schema=SCHEMA))
    for start, said in ((files.run, "folder in"), (files.start, "folder in"), (journal.run, "journal users")):
        error = _refused(start)
        assert error.code == "LS0695" and said in error.why


@pytest.mark.parametrize(
    "job",
    [_job(ls.journal("users", schema=SCHEMA)), _job(ls.files("/somewhere", schema=SCHEMA))],
    ids=["a journal that is fed", "files at an absolute path"],
)
def test_what_is_there_without_a_project_is_not_refused(job: ls.Job) -> None:
    with pytest.raises(AssertionError, match="a process was started"):
        job.start()


def test_options_are_checked_as_those_of_a_job_are() -> None:
    job = _job(ls.collection([{"user": "ann"}], schema=SCHEMA))
    error = _refused(lambda: job.start(replica=2))
    assert error.code == "LS0104" and "replicas" in error.hint
    assert _refused(lambda: job.run(replicas=99)).code == "LS0104"


def test_a_job_without_a_sink_is_refused_here_and_not_by_a_process() -> None:
    assert _refused(ls.Job("empty").start).code == "LS0115"
