"""What type checkers know of Lockstep: every function of F, every method, a public name for all that a user holds."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest

import lockstep
import lockstep.testing
import lockstep.typing
from tests.unit.guide_modules import write_modules

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = {"simulator.md"}
"""Pages whose examples look into Lockstep itself, beyond what is public."""
PAGES = [page for page in (*(ROOT / "docs" / "guide").glob("*.md"), ROOT / "README.md") if page.name not in INTERNALS]
STUB = ROOT / "src" / "lockstep" / "api" / "spark_functions.pyi"
PUBLIC = (lockstep, lockstep.testing, lockstep.typing)
CALLED_BY_PYTHON = {"__call__", "__enter__", "__getitem__", "__iter__"}
PARTS_ARE_INTERNAL = {
    "Graph": "a job as the compiler takes it: made by Job.graph(), looked at by tools",
    "ReplicaHere": "a replica inside a test, for Lockstep's own tests",
    **dict.fromkeys(("State", "ListState", "MapState", "ReducingState", "ValueState"), "declared, not called by users"),
}
"""What a user can be handed and passes on as a whole."""
PROGRAM = """\
import lockstep as ls
from lockstep import F
from lockstep.testing import Trail  # error: attr-defined
from lockstep.typing import FiredTimer, MapState, NamedRecord, ProcessContext, Recrod  # error: attr-defined

job = ls.Job("typed")
logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
logins.fliter("ok")  # error: attr-defined
logins.key_by("user").agregate(n="count(*)")  # error: attr-defined
logins.event_time("at").key_by("user").window(ls.tumblin("1 minute"))  # error: attr-defined
logins.event_time("at").window(ls.tumbling("1 minute")).agg(n=F.count("*")).tosink(ls.console())  # error: attr-defined
logins.filter(F.lowr("user") == "ann")  # error: attr-defined
logins.filter(F.lower() == "ann")  # error: call-arg
logins.filter(F.col("user").startwith("a"))  # error: attr-defined
reveal_type(F.count("*"))  # type: Expression
reveal_type(F.date_add("at", 1))  # type: Expression


class Count(ls.Process):
    seen = ls.value_state(int)
    pages = ls.map_state(str, int)
    times = ls.list_state("timestamp")
    most = ls.reducing_state(float, max)
    named: MapState[str, float] = ls.map_state("string", "double")

    def on_record(self, record: NamedRecord, ctx: ProcessContext) -> None:
        reveal_type(self.seen.get())  # type: int | None
        reveal_type(self.seen.get(0))  # type: int
        reveal_type(self.pages["/"])  # type: int
        reveal_type(self.times.get())  # type: list[Any]
        reveal_type(self.most.add(1.5))  # type: float
        reveal_type(self.named.items())  # type: list[tuple[str, float]]
        reveal_type(ctx.epoch_time)  # type: datetime
        reveal_type(record.anything)  # type: Any
        self.seen.set("three")  # error: arg-type
        self.seen.put(3)  # error: attr-defined
        ctx.emitt(user=ctx.key.user)  # error: attr-defined

    def on_timer(self, timer: FiredTimer, ctx: ProcessContext) -> None:
        reveal_type(timer.at)  # type: datetime
"""


def test_the_stub_of_f_is_what_the_pinned_pyspark_has() -> None:
    made: str = runpy.run_path(str(ROOT / "scripts" / "function_stubs.py"))["stub"]()
    assert STUB.read_text(encoding="utf-8") == made, "run 'make stubs'"


def test_everything_that_public_signatures_name_can_be_imported() -> None:
    known = {
        value for package in PUBLIC for name in package.__all__ if inspect.isclass(value := getattr(package, name))
    }
    unknown = {
        f"{cls.__module__}.{cls.__qualname__} (in {where})"
        for package in PUBLIC
        for name in package.__all__
        if name not in PARTS_ARE_INTERNAL
        for where, cls in _named_classes(getattr(package, name))
        if cls not in known
    }
    assert sorted(unknown) == []


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str, str]]:
    """What mypy says about the pages and the program: file, line, kind, text."""
    folder = tmp_path_factory.mktemp("typing")
    package = folder / "guides"
    for page in PAGES:
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts).lower().replace("-", "_")
        write_modules(page, package / name)
    (package / "__init__.py").touch()
    (package / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--hide-error-context", str(package)],
        cwd=ROOT,
        env={"MYPYPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = re.findall(r"^(?:.*/)?guides/(\S+?):(\d+): (error|note): (.*)$", done.stdout, re.MULTILINE)
    assert lines, done.stdout + done.stderr
    return [(file, int(line), kind, text) for file, line, kind, text in lines]


def test_the_examples_of_the_guides_have_no_type_errors(found: list[tuple[str, int, str, str]]) -> None:
    assert [each for each in found if each[0] != "program.py"] == []


def test_misspelt_names_and_wrong_values_are_type_errors_and_state_has_types(
    found: list[tuple[str, int, str, str]],
) -> None:
    said = {}
    for _, line, kind, text in (each for each in found if each[0] == "program.py"):
        if kind == "error":
            said[line] = f"error: {text.rpartition('[')[2].rstrip(']')}"
        elif text.startswith("Revealed type"):
            said[line] = f"type: {re.sub(r'(?:[a-z_]+[.])+', '', text.partition('is ')[2].strip(chr(34)))}"
    expected = {
        number: comment for number, line in enumerate(PROGRAM.splitlines(), 1) if (comment := line.partition("  # ")[2])
    }
    assert said == expected


def _named_classes(public: Any) -> Iterator[tuple[str, type]]:
    """Lockstep's own classes in the annotations of a public function, or of a class's fields and methods."""
    for where, module, annotation in _annotations(public):
        for cls in _classes(annotation, module):
            yield where, cls


def _annotations(public: Any) -> Iterator[tuple[str, str, str]]:
    if inspect.isfunction(public):
        yield from ((public.__name__, public.__module__, text) for text in public.__annotations__.values())
    elif inspect.isclass(public):
        owners = [owner for owner in public.__mro__ if owner.__module__.startswith("lockstep")]
        for owner in owners:
            fields = vars(owner).get("__annotations__", {})
            yield from ((owner.__name__, owner.__module__, text) for name, text in fields.items() if name[0] != "_")
            for name, value in vars(owner).items():
                plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(plain) and (not name.startswith("_") or name in CALLED_BY_PYTHON):
                    where = f"{owner.__name__}.{name}"
                    yield from ((where, plain.__module__, text) for text in plain.__annotations__.values())


def _classes(annotation: Any, module: str) -> Iterator[type]:
    """The classes of Lockstep that an annotation names, whether it is a text or an object."""
    if isinstance(annotation, type) and not get_args(annotation):
        if annotation.__module__.startswith("lockstep"):
            yield annotation
    elif isinstance(annotation, str):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name):
                yield from _classes(_resolved(node.id, module, annotation), module)
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _classes(part, module)


def _resolved(name: str, module: str, annotation: str) -> Any:
    """What a name in an annotation of a module stands for, also if it is imported for type checkers only."""
    found = vars(sys.modules[module]).get(name, vars(builtins).get(name))
    if found is None:
        found = _checked_imports(module).get(name)
    assert found is not None or name == "None", f"{module}: {name} in {annotation}"
    return object if isinstance(found, ModuleType) else found


@cache
def _checked_imports(module: str) -> dict[str, Any]:
    """What a module imports for type checkers only."""
    imported: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lockstep"):
            for alias in node.names:
                __import__(node.module)
                imported[alias.asname or alias.name] = getattr(sys.modules[node.module], alias.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported |= {(alias.asname or alias.name).partition(".")[0]: object for alias in node.names}
    return imported
