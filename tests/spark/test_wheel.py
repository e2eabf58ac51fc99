"""What people install works where there is no source tree: the README's job, the benches' commands, a new project."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.wheel_environment import ALLOWED, ROOT, WheelEnvironment

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
SIZE, EVERY = timedelta(minutes=1), timedelta(seconds=10)
SCHEMA = "user string, ok boolean, at timestamp"
RUN = ("run", "failed_logins.py", "--until-done", "--replicas", "1", "--set", "spares=0")
"""As in the README, but for a second JVM that would only wait: spares have tests of their own in ``tests/chaos``."""

IMPORTED = """
import json, sys, lockstep
from importlib import import_module
from pkgutil import walk_packages
from lockstep.bench.benches import BENCHES
names = [found.name for found in walk_packages(lockstep.__path__, "lockstep.")]
names = [name for name in names if not name.endswith(("__main__", "testing.fixtures"))]  # the latter is for pytest
extra = ("fastapi", "uvicorn", "httpx2", "starlette", "anyio", "prometheus_client")  # lockstep[serve]
without = []
for name in names:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in extra:
            raise
        without.append(name)
told = {"modules": len(names), "without": without, "path": sys.path, "benches": sorted(BENCHES)}
print(json.dumps({"file": lockstep.__file__, **told}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> WheelEnvironment:
    return WheelEnvironment(tmp_path_factory.mktemp("wheel"))


def _logins() -> list[dict[str, Any]]:
    """Three minutes of them; every third of ann's fails, most of bob's in the second minute do."""
    logins = []
    for second in range(0, 180, 3):
        at = (BEGIN + timedelta(seconds=second)).isoformat()
        logins.append({"user": "ann", "ok": second % 9 > 0, "at": at})
        logins.append({"user": "bob", "ok": not 60 <= second < 110 or second % 4 == 0, "at": at})
    return logins


def _alerts(logins: list[dict[str, Any]]) -> set[tuple[str, datetime, int]]:
    """(user, begin of the window, failures), by looking into every window for itself."""
    starts = [BEGIN - SIZE + EVERY * number for number in range(30)]
    found = set()
    for start in starts:
        failures = Counter(
            one["user"] for one in logins if not one["ok"] and start <= datetime.fromisoformat(one["at"]) < start + SIZE
        )
        found |= {(user, start, count) for user, count in failures.items() if count >= 5}
    return found


def test_the_wheel_holds_the_product_and_needs_only_what_it_declares(
    installed: WheelEnvironment, tmp_path: Path
) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
        metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
        assert "lockstep/py.typed" in wheel.namelist()
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lockstep"}
    assert "# Lockstep" in metadata and "License-Expression: Apache-2.0" in metadata
    found = json.loads(installed.run("-c", IMPORTED, folder=tmp_path))
    assert Path(found["file"]).is_relative_to(installed.site)
    assert not [entry for entry in found["path"] if entry and Path(entry).is_relative_to(ROOT / "src")]
    assert str(ROOT) not in found["path"], "the benchmarks of the source tree are not there either"
    assert found["modules"] > 200
    # What an extra brings is needed where the extra is: the service itself, and nothing that other commands load.
    assert found["without"] and all(name.startswith("lockstep.serve.") for name in found["without"]), found["without"]
    assert not {"lockstep.serve.desk", "lockstep.serve.models"} & set(found["without"]), "commands use them"
    helped = installed.lockstep("bench", "--help", folder=tmp_path)
    assert all(re.search(rf"\b{name}\b", helped) for name in found["benches"])
    with pytest.raises(AssertionError, match="No module named 'matplotlib'"):
        installed.run("-c", "import matplotlib", folder=tmp_path)


def test_the_job_of_the_readme_runs_from_the_wheel(installed: WheelEnvironment, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (job,) = (code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if 'Job("failed-logins")' in code)
    (tmp_path / "failed_logins.py").write_text(job)
    logins = _logins()
    (tmp_path / "logins.jsonl").write_text("".join(json.dumps(one) + "\n" for one in logins))
    put = installed.lockstep("put", "logins", "logins.jsonl", "--schema", SCHEMA, "--json", folder=tmp_path)
    assert json.loads(put)["records"] == len(logins)
    installed.lockstep(*RUN, folder=tmp_path)
    lines = installed.lockstep("tail", "out/alerts", "--json", "--last", "1000", folder=tmp_path).splitlines()
    rows = [json.loads(line)["row"] for line in lines]
    alerts = [(row["user"], datetime.fromisoformat(row["window_start"]), row["failures"]) for row in rows]
    assert len(alerts) == len(set(alerts)) > 10
    assert set(alerts) == _alerts(logins)


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--collect-only"], "1 test collected"), pytest.param([], "1 passed", marks=pytest.mark.long)],
    ids=["found", "passes"],
)
def test_the_test_of_a_new_project_is_found_and_passes(
    installed: WheelEnvironment, tmp_path: Path, options: list[str], says: str
) -> None:
    """That it passes, without the wheel and with a session that is there, is in `test_check_command.py` too."""
    made = installed.lockstep("new", "shop", folder=tmp_path).splitlines()
    shop = tmp_path / "shop"
    assert {tmp_path / file for file in made} == set(shop.iterdir())
    pytest_options = ["-q", "-p", "no:cacheprovider", *options]
    assert says in installed.run("-m", "pytest", *pytest_options, folder=shop, **{ALLOWED: "1"})
