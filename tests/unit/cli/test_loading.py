"""Job files: which job is meant, what goes wrong while loading, and keeping the code as it was."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.api.loading import load_job, save_code
from lockstep.errors import LockstepError

JOB = """
import lockstep as ls
job = ls.Job("alerts")
"""


@pytest.fixture(autouse=True)
def path_is_put_back() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())
    return str(path)


def _refused(path: str) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        load_job(path)
    return caught.value


def test_the_only_job_of_a_file_needs_no_name(tmp_path: Path) -> None:
    loaded = load_job(_file(tmp_path, "job.py", JOB + "also_the_job = job\n"))
    assert (loaded.job.name, loaded.variable, loaded.path) == ("alerts", "job", tmp_path / "job.py")


def test_one_of_several_jobs_is_named_after_a_colon(tmp_path: Path) -> None:
    path = _file(tmp_path, "jobs.py", JOB + 'other = ls.Job("billing")\n')
    assert load_job(path + ":other").job.name == "billing"
    error = _refused(path)
    assert error.code == "LS0122"
    assert 'job ("alerts"), other ("billing")' in error.why
    assert error.hint == "say which one: jobs.py:job or jobs.py:other."


def test_a_name_that_is_no_job_lists_those_there_are(tmp_path: Path) -> None:
    error = _refused(_file(tmp_path, "job.py", JOB) + ":ls")
    assert (error.code, error.why) == ("LS0121", "its jobs are: job.")


def test_a_file_without_a_job_is_told_how_to_make_one(tmp_path: Path) -> None:
    error = _refused(_file(tmp_path, "empty.py", "x = 1\n"))
    assert error.code == "LS0121"
    assert "ls.Job" in error.hint


def test_a_syntax_error_shows_the_line_and_a_caret_under_the_place(tmp_path: Path) -> None:
    error = _refused(_file(tmp_path, "job.py", "x = 1\nif x:\n    y = (1 +\n"))
    assert error.code == "LS0120"
    assert error.fact == "job.py has a syntax error"
    line, source, caret = error.why.split("\n")
    assert line == "line 3: '(' was never closed"
    assert source[caret.index("^")] == "("


def test_a_syntax_error_in_a_neighbour_names_the_neighbour(tmp_path: Path) -> None:
    _file(tmp_path, "rules.py", "def (:\n")
    error = _refused(_file(tmp_path, "job.py", "import rules\n" + JOB))
    assert (error.code, error.fact) == ("LS0120", "rules.py has a syntax error")


@pytest.mark.parametrize("content", [b"x = '\xff'\n", b"x = 1\0\n"])
def test_bytes_that_are_no_source_are_a_syntax_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job.py").write_bytes(content)
    assert _refused(str(tmp_path / "job.py")).code in {"LS0120", "LS0124"}


def test_a_missing_file_suggests_the_one_that_was_meant(tmp_path: Path) -> None:
    _file(tmp_path, "alerts.py", JOB)
    error = _refused(str(tmp_path / "alert.py"))
    assert (error.code, error.hint) == ("LS0123", "did you mean alerts.py?")
    assert _refused(str(tmp_path)).why.startswith("it is a folder")
    assert "does not exist" in _refused(str(tmp_path / "no" / "job.py")).why


def test_an_exception_while_loading_shows_the_users_line(tmp_path: Path) -> None:
    _file(tmp_path, "rules.py", "def limit(text):\n    return int(text)\n")
    error = _refused(_file(tmp_path, "job.py", "import rules\nx = rules.limit('many')\n"))
    assert error.code == "LS0124"
    assert "rules.py, line 2: return int(text)" in error.why
    assert "ValueError: invalid literal" in error.why


def test_an_error_of_lockstep_keeps_its_code_and_gains_the_line(tmp_path: Path) -> None:
    error = _refused(_file(tmp_path, "job.py", "import lockstep as ls\n\njob = ls.Job('Not A Name')\n"))
    assert error.code == "LS0102"
    assert "(job.py, line 3: job = ls.Job('Not A Name'))" in error.why


def test_a_module_that_is_not_installed_is_named(tmp_path: Path) -> None:
    assert "install surely_not_there" in _refused(_file(tmp_path, "job.py", "import surely_not_there\n")).hint


def test_a_file_that_exits_is_told_where_programs_go(tmp_path: Path) -> None:
    assert "__main__" in _refused(_file(tmp_path, "job.py", "raise SystemExit(3)\n")).hint


def test_the_code_is_the_file_and_the_neighbours_it_needs_and_nothing_else(tmp_path: Path) -> None:
    _file(tmp_path, "rules/__init__.py", "from rules import limits\n")
    _file(tmp_path, "rules/limits.py", "import json\nimport helpers\n")
    _file(tmp_path, "helpers.py", "")
    _file(tmp_path, "unused.py", "raise RuntimeError\n")
    _file(tmp_path, "later.py", "")
    loaded = load_job(_file(tmp_path, "job.py", JOB + "import rules\ndef f():\n    import later\n"))
    assert [path for path, _ in loaded.modules] == [
        "helpers.py", "job.py", "later.py", "rules/__init__.py", "rules/limits.py",
    ]  # fmt: skip
    assert all((tmp_path / path).read_bytes() == content for path, content in loaded.modules)


def test_the_hash_follows_the_code_and_only_the_code(tmp_path: Path) -> None:
    _file(tmp_path, "rules.py", "LIMIT = 1\n")
    path = _file(tmp_path, "job.py", "import rules\n" + JOB)
    first = load_job(path)
    assert load_job(path).code_hash == first.code_hash
    (tmp_path / "notes.txt").write_text("not code")
    assert load_job(path).code_hash == first.code_hash
    _file(tmp_path, "rules.py", "LIMIT = 22\n")
    assert load_job(path).code_hash != first.code_hash


def test_saved_code_is_what_was_loaded_even_after_an_edit(tmp_path: Path) -> None:
    _file(tmp_path / "app", "rules/names.py", 'NAME = "before"\n')
    path = _file(
        tmp_path / "app", "job.py", "import lockstep as ls\nfrom rules.names import NAME\njob = ls.Job(NAME)\n"
    )
    loaded = load_job(path)
    copy = save_code(loaded, tmp_path / "copy")
    _file(tmp_path / "app", "rules/names.py", 'NAME = "after"\n')
    again = load_job(str(copy))
    assert (again.job.name, again.code_hash) == ("before", loaded.code_hash)
    assert load_job(path).job.name == "after"


def test_jobs_in_two_folders_may_have_neighbours_of_the_same_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _file(tmp_path / name, "names.py", f'NAME = "{name}"\n')
        _file(tmp_path / name, "job.py", "import lockstep as ls, names\njob = ls.Job(names.NAME)\n")
    assert [load_job(str(tmp_path / name / "job.py")).job.name for name in ("one", "two", "one")] == [
        "one",
        "two",
        "one",
    ]


def test_dataclasses_of_a_job_file_work(tmp_path: Path) -> None:
    text = """
    from __future__ import annotations
    from dataclasses import dataclass
    import lockstep as ls
    @dataclass
    class Rule:
        limit: int = 3
    job = ls.Job("alerts")
    """
    loaded = load_job(_file(tmp_path, "job.py", text))
    module = sys.modules[loaded.module_names[0]]
    assert dataclasses.asdict(module.Rule()) == {"limit": 3}


def test_the_folder_of_an_installed_environment_beside_the_job_is_not_its_code(tmp_path: Path) -> None:
    _file(tmp_path, ".venv/lib/python3/site-packages/installed_thing.py", "")
    path = _file(tmp_path, "job.py", JOB + "import installed_thing\n")
    sys.path.append(str(tmp_path / ".venv/lib/python3/site-packages"))
    assert [name for name, _ in load_job(path).modules] == ["job.py"]


PIPELINE = """
import lockstep as ls
from lockstep import F

job = ls.Job("failed-logins")
(job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
    .event_time("at", out_of_order="5 seconds")
    .filter(~F.col("ok"))
    .map(lambda record: record, schema="user string, ok boolean, at timestamp", name="enrich")
    .key_by("user").agg(failures=F.count("*"))
    .to(ls.files("out/alerts")))
"""


def test_plan_draws_a_job_without_java(tmp_path: Path) -> None:
    _file(tmp_path, "job.py", PIPELINE)
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "plan", "job.py"],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "failed-logins" in done.stdout
    assert "enrich" in done.stdout
    assert "Python" in done.stdout
