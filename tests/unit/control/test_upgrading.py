"""What code a running job can take over: the rest is refused before anything runs, with what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.api.loading import load_job, save_code
from lockstep.config import Settings
from lockstep.control.operations.environments import with_environment
from lockstep.control.operations.upgrading import with_code
from lockstep.errors import ServiceError
from lockstep.machine import find_java
from lockstep.runtime.desired_run import DesiredRun
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Store

BEFORE = """
import lockstep as ls
from lockstep import F
job = ls.Job("counts")
numbers = job.source("numbers", ls.rate(10))
numbers.filter("seq % 2 = 0").with_columns(k=F.col("seq") % 3).key_by("k").agg(n=F.count("*")).to(ls.files("out"))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(address_in(tmp_path / ".lockstep"), "counts")
    yield opened
    opened.close()


def running(tmp_path: Path, order: str = "agreed") -> DesiredRun:
    (tmp_path / "before.py").write_text(BEFORE)
    loaded = load_job(str(tmp_path / "before.py"))
    folder = tmp_path / ".lockstep" / "jobs" / "counts"
    file = save_code(loaded, folder / "code" / loaded.code_hash[:16])
    settings = Settings.model_validate({"run": {"order": order}}).model_dump(mode="json")
    name = f"{file.relative_to(folder)}:job"
    return DesiredRun("counts", name, loaded.code_hash, f"sqlite:{tmp_path / '.lockstep'}", settings)


def upgraded(
    tmp_path: Path, store: Store, code: str, *, same_results: bool = False, order: str = "agreed"
) -> DesiredRun:
    before = running(tmp_path, order)
    (tmp_path / "after.py").write_text(code)
    loaded = load_job(str(tmp_path / "after.py"))
    return with_code(store, before, loaded, tmp_path / ".lockstep", same_results=same_results)


def test_other_code_around_the_same_state_is_taken_and_put_where_replicas_find_it(tmp_path: Path, store: Store) -> None:
    after = upgraded(tmp_path, store, BEFORE.replace("seq % 2 = 0", "seq % 5 = 0"))
    assert after.code_hash != running(tmp_path).code_hash
    copied = load_job(str(tmp_path / ".lockstep" / "jobs" / "counts" / after.job_file))
    assert copied.job.graph().name == "counts"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("key_by", "key_by"), ""),
        (('F.count("*")', 'F.sum("seq")'), "agg"),
        (('.agg(n=F.count("*"))', '.agg(n=F.count("*")).filter("n > 1")'), ""),
        (("ls.rate(10)", "ls.rate(20)"), "sources differ: numbers"),
        (('ls.files("out")', 'ls.files("elsewhere")'), "sinks differ"),
        (('ls.Job("counts")', 'ls.Job("others")'), 'job "others"'),
    ],
)
def test_what_state_or_ledger_cannot_follow_is_refused(
    tmp_path: Path, store: Store, change: tuple[str, str], why: str
) -> None:
    code = BEFORE.replace(*change)
    if not why:
        upgraded(tmp_path, store, code)
        return
    with pytest.raises(ServiceError) as refused:
        upgraded(tmp_path, store, code)
    assert refused.value.code == "LS0747"
    assert why in refused.value.why


def test_results_cannot_change_where_no_entry_could_switch_them(tmp_path: Path, store: Store) -> None:
    code = BEFORE.replace("seq % 2 = 0", "seq % 5 = 0")
    with pytest.raises(ServiceError, match="derived"):
        upgraded(tmp_path, store, code, order="derived")
    assert upgraded(tmp_path, store, code, same_results=True, order="derived").code_hash


def test_an_environment_has_to_be_there(tmp_path: Path) -> None:
    before = running(tmp_path)
    with pytest.raises(ServiceError, match="LS0748"):
        with_environment(before, python=str(tmp_path / "none"))
    with pytest.raises(ServiceError, match="LS0748"):
        with_environment(before, python="python3")
    assert with_environment(before, python=sys.executable).environment == {"python": sys.executable}


def test_what_is_not_named_of_an_environment_stays(tmp_path: Path) -> None:
    before = with_environment(running(tmp_path), python=sys.executable)
    java = str(find_java().home)
    assert with_environment(before, java=java).environment == {"python": sys.executable, "java": java}


def test_a_python_without_lockstep_and_a_java_that_does_not_answer_are_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    python, java = tmp_path / "python", tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'lockstep'\" >&2; exit 1\n")
    java.write_text("#!/bin/sh\nexit 1\n")
    for path in (python, java):
        path.chmod(0o755)
    with pytest.raises(ServiceError, match="No module named 'lockstep'"):
        with_environment(running(tmp_path), python=str(python))
    with pytest.raises(ServiceError, match="does not answer"):
        with_environment(running(tmp_path), java=str(tmp_path / "jdk"))
