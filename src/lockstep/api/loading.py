"""Job files: find the job in one, and keep the very code it was made from.

A replica runs a copy of the code that was taken when the job was started, so editing the file while the job runs
changes nothing; the new code counts from the next start on.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from lockstep.api.job import Job
from lockstep.errors import LockstepError, PlanError

_WITH_VARIABLE = re.compile(r"(?P<path>.*\.py):(?P<variable>\w+)")
_executing: list[Path] = []
"""The job files that are being loaded now."""
_loaded_names: set[str] = set()
"""Modules that earlier loads brought in: a second job may have a module of the same name in its own folder."""


@dataclass(frozen=True)
class LoadedJob:
    """A job, and the code it came from.

    ``modules`` holds the job file and every module it imported from its own folder, as (path relative to that folder,
    content), sorted by path; ``module_names`` are their names in ``sys.modules`` (nothing but this process can import
    them, so whoever pickles functions for another process has to pickle these modules by value).
    """

    job: Job
    path: Path
    variable: str
    modules: tuple[tuple[str, bytes], ...]
    module_names: tuple[str, ...]
    code_hash: str


def load_job(path_text: str) -> LoadedJob:
    """The job in a file: ``"job.py"``, or ``"job.py:variable"`` if the file holds several.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "hello.py")
    >>> _ = file.write_text("import lockstep as ls\\njob = ls.Job('hello')\\n")
    >>> load_job(str(file)).job.name
    'hello'
    >>> folder.cleanup()
    """
    path, variable = _split(path_text)
    folder = path.parent
    _forget_earlier_modules()
    before = set(sys.modules)
    if sys.path[:1] != [str(folder)]:
        # Stays there: a job's functions may import their neighbours when they are called.
        sys.path.insert(0, str(folder))
    try:
        module = _execute(path)
    finally:
        new = set(sys.modules) - before
        _loaded_names.update(name for name in new if _is_own(sys.modules.get(name), folder))
    chosen = _choose(module, path, variable)
    names = sorted(name for name, found in list(sys.modules.items()) if name != "__main__" and _is_own(found, folder))
    files = {Path(str(sys.modules[name].__file__)).resolve() for name in names} | {path}
    contents = _with_later_imports(folder, {file: file.read_bytes() for file in files})
    modules = tuple(sorted((file.relative_to(folder).as_posix(), content) for file, content in contents.items()))
    job = _as_job(getattr(module, chosen))
    assert job is not None, "only variables with jobs are chosen"
    return LoadedJob(job, path, chosen, modules, tuple(names), _hash(modules))


def being_loaded() -> Path | None:
    """The job file that this process is loading at this moment."""
    return _executing[-1] if _executing else None


def is_user_module(module: object) -> bool:
    """Whether a module is the user's own: a file that is neither installed nor Lockstep's.

    >>> import json
    >>> is_user_module(json), is_user_module(sys.modules["lockstep"])
    (False, False)
    """
    file, name = getattr(module, "__file__", None), str(getattr(module, "__name__", ""))
    if not file or name.partition(".")[0] == "lockstep":
        return False
    path = Path(file).resolve()
    libraries = [
        Path(prefix).resolve() / lib for prefix in (sys.prefix, sys.base_prefix) for lib in ("lib", sys.platlibdir)
    ]
    installed = any(path.is_relative_to(library) for library in libraries)
    return path.suffix == ".py" and "site-packages" not in path.parts and not installed


def save_code(loaded: LoadedJob, folder: Path) -> Path:
    """Copy the job's code into ``folder``; the path of the job file there, which :func:`load_job` takes."""
    # A job that was packed by value holds whatever its functions refer to: nobody else's business.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for relative, content in loaded.modules:
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder / loaded.path.name


def _hash(modules: tuple[tuple[str, bytes], ...]) -> str:
    digest = hashlib.sha256()
    for relative, content in modules:
        # Lengths first: moving a line from one file to the next must not give the same hash.
        digest.update(f"{len(relative)} {len(content)} {relative}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _split(path_text: str) -> tuple[Path, str | None]:
    match = _WITH_VARIABLE.fullmatch(path_text)
    text, variable = (match["path"], match["variable"]) if match else (path_text, None)
    path = Path(text).resolve()
    if not path.is_file():
        raise _missing(text, path)
    return path, variable


def _missing(text: str, path: Path) -> PlanError:
    there = sorted(file.name for file in path.parent.glob("*.py")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, there, n=3, cutoff=0.5)
    if path.is_dir():
        why, near = "it is a folder; a job is a Python file.", sorted(file.name for file in path.glob("*.py"))[:5]
    elif not path.parent.is_dir():
        why = f"the folder {path.parent} does not exist."
    else:
        why = f"{path.parent} has: {', '.join(there[:10])}." if there else f"{path.parent} has no Python file."
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "give the path of the job's file, e.g. lockstep plan job.py."
    )
    return PlanError("LS0123", f"no job file {text}", why=why, hint=hint)


def _with_later_imports(folder: Path, contents: dict[Path, bytes]) -> dict[Path, bytes]:
    """The files, and those that their functions will import when they are called: a replica has only the copy."""
    waiting = list(contents)
    while waiting:
        for name in _imported_names(contents[waiting.pop()]):
            base = folder.joinpath(*name.split("."))
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and file not in contents:
                    contents[file] = file.read_bytes()
                    waiting.append(file)
    return contents


def _imported_names(source: bytes) -> set[str]:
    """Every dotted name that an absolute import in ``source`` may mean, packages on the way included."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {".".join(parts[:end]) for name in names for parts in [name.split(".")] for end in range(1, len(parts) + 1)}


def _forget_earlier_modules() -> None:
    for name in _loaded_names:
        sys.modules.pop(name, None)
    _loaded_names.clear()


def _is_own(module: ModuleType | None, folder: Path) -> bool:
    """Whether a module's file lies in the job's folder and is the user's: not installed there, not Lockstep itself."""
    file = getattr(module, "__file__", None)
    if module is None or not file or module.__name__.partition(".")[0] == "lockstep":
        return False
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return False
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    in_prefix = any(path.is_relative_to(prefix) and not folder.is_relative_to(prefix) for prefix in installed)
    return "site-packages" not in path.parts and not in_prefix


def _execute(path: Path) -> ModuleType:
    name = f"lockstep_job_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        # Dataclasses and pickling look a module up by its name while it is still being executed.
        sys.modules[name] = module
        _executing.append(path)
        exec(code, module.__dict__)  # noqa: S102 - the user's own file, run at the user's request
    except SyntaxError as error:
        raise _syntax_error(error, path) from None
    except LockstepError as error:
        raise _located(error, path) from error
    except (Exception, SystemExit) as error:
        raise _raised(error, path) from error
    finally:
        _executing[:] = [one for one in _executing if one != path]
    return module


def _syntax_error(error: SyntaxError, path: Path) -> PlanError:
    file = Path(error.filename or str(path))
    shown = [f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)]
    if error.text:
        line = error.text.rstrip("\n")
        indent = len(line) - len(line.lstrip())
        shown.append(f"  {line.strip()}")
        width = max(1, (error.end_offset or 0) - (error.offset or 1)) if error.end_lineno == error.lineno else 1
        shown.append("  " + " " * max(0, (error.offset or 1) - 1 - indent) + "^" * width)
    return PlanError(
        "LS0120",
        f"{file.name} has a syntax error",
        why="\n".join(shown),
        hint=f"mend {file}{f', line {error.lineno}' if error.lineno else ''}.",
    )


def _user_frame(error: BaseException, path: Path) -> traceback.FrameSummary | None:
    """The last line of the user's own code that the exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent) and not _installed(frame)]
    return own[-1] if own else None


def _installed(frame: traceback.FrameSummary) -> bool:
    return "site-packages" in frame.filename or Path(frame.filename).is_relative_to(Path(__file__).parents[1])


def _where(frame: traceback.FrameSummary) -> str:
    return f"{Path(frame.filename).name}, line {frame.lineno}: {frame.line}"


def _located(error: LockstepError, path: Path) -> LockstepError:
    """The same error, with the user's line added: the error itself knows what is wrong, but not where."""
    frame = _user_frame(error, path)
    if frame is None:
        return error
    why = "\n".join(part for part in (error.why, f"({_where(frame)})") if part)
    return type(error)(error.code, error.fact, why=why, hint=error.hint)


def _raised(error: BaseException, path: Path) -> PlanError:
    frame = _user_frame(error, path)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        hint = f"install {error.name} into the environment that runs lockstep, or mend the import."
    elif isinstance(error, SystemExit):
        hint = 'a job file only describes the job: put what it does as a program under if __name__ == "__main__".'
    else:
        hint = f"mend {path.name}; `python {path}` shows the whole traceback."
    why = f"{_where(frame)}\n{said}" if frame else said
    return PlanError("LS0124", f"{path.name} failed while it was loaded", why=why, hint=hint)


def _choose(module: ModuleType, path: Path, variable: str | None) -> str:
    """The variable that holds the job."""
    jobs = {name: job for name, value in vars(module).items() if (job := _as_job(value)) is not None}
    if variable is not None:
        if variable in jobs:
            return variable
        raise _no_job(path, f'"{variable}" is not a job there', list(jobs))
    distinct = {id(value): name for name, value in reversed(jobs.items())}
    if not distinct:
        raise _no_job(path, "there is no job in it", [])
    if len(distinct) > 1:
        raise PlanError(
            "LS0122",
            f"{path.name} has {len(distinct)} jobs",
            why="it defines "
            + ", ".join(f'{name} ("{jobs[name].name}")' for name in reversed(distinct.values()))
            + ".",
            hint="say which one: " + " or ".join(f"{path.name}:{name}" for name in reversed(distinct.values())) + ".",
        )
    return next(iter(distinct.values()))


def _as_job(value: object) -> Job | None:
    """The job that a variable holds: itself, or what a topology is built into."""
    if isinstance(value, Job):
        return value
    build = getattr(type(value), "_lockstep_job", None)
    return None if build is None else build(value)


def _no_job(path: Path, fact: str, there: list[str]) -> PlanError:
    why = f"its jobs are: {', '.join(there)}." if there else "no variable of the file holds an ls.Job."
    hint = (
        "say " + " or ".join(f"{path.name}:{name}" for name in there) + "."
        if there
        else 'make one at the top level of the file: job = ls.Job("my-job").'
    )
    return PlanError("LS0121", f"{path.name}: {fact}", why=why, hint=hint)
