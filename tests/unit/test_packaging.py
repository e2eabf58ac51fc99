"""What the package says about itself is so: it imports what it declares, each with a reason, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lockstep"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED = {re.split(r"[<>=!~\[ ]", text, maxsplit=1)[0] for text in PROJECT["dependencies"]}
EXTRAS = {
    re.split(r"[<>=!~\[ ]", text, maxsplit=1)[0].replace("-", "_")
    for extra, wanted in PROJECT["optional-dependencies"].items()
    if extra not in ("dev", "all")
    for text in wanted
}
"""Imported where they are needed, never at the top."""
BROUGHT_ALONG = {
    "py4j": "pyspark",
    "botocore": "boto3",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
    "anyio": "fastapi",
}
"""Modules of packages that another one is made of: they have no version of their own."""
SHARED = {"opentelemetry": {"opentelemetry_sdk", "opentelemetry_exporter_otlp_proto_http"}}
"""Names that several packages put their modules under."""
NOT_IMPORTED = {"pandas", "protobuf"}
"""PySpark needs them and does not say so."""


def _imported(file: Path) -> set[str]:
    """The packages of others that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return {name for name in names if name != "lockstep" and name not in sys.stdlib_module_names}


def test_everything_that_is_imported_is_declared_and_the_other_way_round() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "testing" / "fixtures.py"]
    names = {name for file in files for name in _imported(file)}
    found = set().union(*(SHARED.get(name, {BROUGHT_ALONG.get(name, name)}) for name in names))
    assert found >= EXTRAS
    assert (found - EXTRAS) | NOT_IMPORTED == DECLARED
    # The fixtures are for whoever has pytest.
    assert _imported(PACKAGE / "testing" / "fixtures.py") <= {"pytest", "pyspark"}


def test_all_is_every_other_extra() -> None:
    others = sorted(extra for extra in PROJECT["optional-dependencies"] if extra not in ("dev", "all"))
    assert PROJECT["optional-dependencies"]["all"] == [f"lockstep[{','.join(others)}]"]


@pytest.mark.parametrize("extra", [None, *(extra for extra in PROJECT["optional-dependencies"] if extra != "all")])
def test_every_dependency_has_a_reason(extra: str | None) -> None:
    text = (ROOT / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8")
    wanted = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for requirement in wanted:
        assert f"| {re.split('[<>=!~]', requirement, maxsplit=1)[0]} |" in text
