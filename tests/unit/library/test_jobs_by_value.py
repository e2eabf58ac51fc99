"""A job goes to its replicas as it is: another process, which has none of the code around it, finds the same job."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import lockstep as ls
from lockstep.api.loading import load_job
from lockstep.connect.tables import Table, copies_in, copy_tables, look_in
from lockstep.errors import LockstepError
from lockstep.library.code import job_file
from lockstep.plan.joins import TableJoin
from lockstep.store.sqlite_store import open_store
from tests.matrix.case import Given
from tests.matrix.life import EPOCHS
from tests.matrix.table import CASES

LOADED = """
import json, sys
from lockstep.api.loading import load_job

def described(file):
    graph = load_job(file).job.graph()
    return [graph.version("code"), graph.fingerprint(), [step.id for step in graph.steps]]

print(json.dumps([described(file) for file in sys.argv[1:]]))
"""
CALLED = """
import json, sys
from lockstep.api.loading import load_job

step = next(step for step in load_job(sys.argv[1]).job.graph().steps if step.id == "clean")
print(json.dumps(step.function({"user": " Ann "})))
"""


@pytest.fixture(autouse=True)
def path_is_put_back() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    look_in(Path())


def _written(job: ls.Job, folder: Path, name: str = "job") -> Path:
    file = folder / f"{name}.py"
    file.write_text(job_file(job), encoding="utf-8")
    return file


def _elsewhere(program: str, folder: Path, *arguments: str) -> object:
    """What a process prints that can import Lockstep and nothing of the tests."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_job_of_the_matrix_is_the_same_job_in_another_process(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    jobs = [case.job(Given(case.inputs(Random(1), EPOCHS), project)) for case in CASES]
    files = [str(_written(job, tmp_path, f"job{number}")) for number, job in enumerate(jobs)]
    graphs = [job.graph() for job in jobs]
    expected = [[graph.version("code"), graph.fingerprint(), [step.id for step in graph.steps]] for graph in graphs]
    assert _elsewhere(LOADED, tmp_path, *files) == json.loads(json.dumps(expected))


def test_functions_travel_with_modules_that_only_this_process_can_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "beside")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "words_beside.py").write_text("SUFFIX = '!'\ndef plain(text):\n    return text.strip()\n")
    import words_beside  # type: ignore[import-not-found]

    words_beside.SUFFIX = "?"
    greeting = "hello "

    def clean(record: dict[str, str]) -> dict[str, str]:
        return {"user": greeting + words_beside.plain(record["user"]) + words_beside.SUFFIX}

    job = ls.Job("travels")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    users.map(clean, schema="user string", name="clean").to(ls.files("out"))
    there = tmp_path / "there"
    there.mkdir()
    # What this process has in memory counts, not what stands in a file.
    assert _elsewhere(CALLED, there, str(_written(job, there))) == {"user": "hello Ann?"}


def test_what_cannot_leave_the_process_is_refused_with_the_step_that_holds_it() -> None:
    lock = threading.Lock()
    job = ls.Job("locked")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    users.filter("user <> ''").map(lambda record: lock and record, schema="user string", name="held").to(
        ls.files("out")
    )
    with pytest.raises(LockstepError) as caught:
        job_file(job)
    assert caught.value.code == "LS0137"
    assert 'step "held"' in caught.value.fact and "lock" in caught.value.why


def test_what_is_not_installed_where_the_job_runs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text("class Setting:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import elsewhere  # type: ignore[import-not-found]

    # As an installed module is: packed by its name.
    monkeypatch.setattr("lockstep.library.code.is_user_module", lambda module: False)
    job = ls.Job("imports")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    setting = elsewhere.Setting()
    users.map(lambda record: setting and record, schema="user string").to(ls.files("out"))
    file = _written(job, tmp_path)
    (tmp_path / "elsewhere.py").unlink()
    monkeypatch.delitem(sys.modules, "elsewhere")
    with pytest.raises(LockstepError) as caught:
        load_job(str(file))
    assert (caught.value.code, "elsewhere" in caught.value.why) == ("LS0137", True)


def test_two_processes_that_make_the_same_job_write_the_same_file(tmp_path: Path) -> None:
    """Otherwise every start of a script in a project would count as new code."""
    script = tmp_path / "script.py"
    script.write_text(
        "import hashlib, json, lockstep as ls\nfrom lockstep.library.code import job_file\n"
        "job = ls.Job('same')\n"
        "users = job.source('users', ls.journal('users', schema='user string'))\n"
        "users.map(lambda r: {'user': r['user'].upper()}, schema='user string').to(ls.files('out'))\n"
        "counts = 'select user, count(*) as n from users group by user'\n"
        "job.sql(f'select n, count(*) as times from ({counts}) where n > 1 group by n').to(ls.files('more'))\n"
        "print(json.dumps(hashlib.sha256(job_file(job).encode()).hexdigest()))\n"
    )
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    first, second = (_elsewhere(run, tmp_path, str(script)) for _ in range(2))
    assert first == second


def test_a_table_is_the_copy_of_the_run_where_the_job_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("user,name\nann,Ann\n")
    job = ls.Job("tables")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    users.join(ls.table(file, schema="user string, name string"), on="user").to(ls.files("out"))
    written = _written(job, tmp_path)
    store = open_store(tmp_path / ".lockstep", "tables")
    step = next(step for step in job.graph().steps if isinstance(step, TableJoin))
    assert isinstance(step.table, Table)
    copy_tables([step.table], store, tmp_path / "tables")
    file.write_text("user,name\nann,Another\n")
    look_in(tmp_path, copies_in(store, tmp_path / "tables"))
    store.close()
    loaded = next(step for step in load_job(str(written)).job.graph().steps if isinstance(step, TableJoin))
    copied = getattr(loaded.table, "copy", None)
    assert copied is not None and copied.is_relative_to(tmp_path / "tables")


def test_steps_that_are_made_where_the_job_is_loaded_come_after_its_own(tmp_path: Path) -> None:
    job = ls.Job("later")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    users.to(ls.files("out"))
    loaded = load_job(str(_written(job, tmp_path))).job
    made = loaded.source("more", ls.collection([{"user": "bob"}], schema="user string"))
    assert made._step.order > max(step.order for step in loaded.graph().steps)
