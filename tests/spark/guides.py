"""Runs the examples of a Markdown page.

- The ```python blocks of a page share one namespace and run in order.
- A block that begins with ``# file: NAME.py`` is that file: it is written and imported, its names are there afterwards.
- Functions called ``test_*`` are called, with the fixtures they name.
- A ```text block right after a ```python block is what that block prints.
- ```python raises: the block ends with an error of Lockstep's; the ```text block is what it says.
- ```python no-run is only to be read.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError

_FENCE = re.compile(r"^```(?P<language>\w+)?(?P<words>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (?P<name>[\w/]+\.py)\s*\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: what it is, what it says, and the line of the page where it begins."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int
    expected: str | None = None

    @property
    def is_run(self) -> bool:
        return self.language == "python" and "no-run" not in self.words

    @property
    def raises(self) -> bool:
        return "raises" in self.words


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page; each ```python block with the output that is shown right after it."""
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(page):
        between, end = page[end : match.start()], match.end()
        language = match["language"] or ""
        if language == "text" and found and found[-1].is_run and not between.strip():
            last = found.pop()
            found.append(Block(last.language, last.words, last.text, last.line, match["text"]))
            continue
        line = page.count("\n", 0, match.start("text"))
        found.append(Block(language, tuple(match["words"].split()), match["text"], line))
    return found


def run_page(path: Path, folder: Path, fixtures: Mapping[str, Any]) -> int:
    """Run the blocks of a page in ``folder``; how many there were. Fails where one fails or prints something else."""
    namespace: dict[str, Any] = {"__name__": f"page_{path.stem.replace('-', '_')}"}
    run = [block for block in blocks_of(path.read_text(encoding="utf-8")) if block.is_run]
    with own_modules(folder), contextlib.chdir(folder):
        for block in run:
            said = _output(block, path, folder, namespace, fixtures)
            if block.expected is not None:
                assert _lines(said) == _lines(block.expected), f"{path}:{block.line}: it prints\n{said}"
    return len(run)


def _output(block: Block, path: Path, folder: Path, namespace: dict[str, Any], fixtures: Mapping[str, Any]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            made = _executed(block, path, folder, namespace)
            for name, function in made.items():
                if name.startswith("test_") and callable(function):
                    _call(function, fixtures)
        except LockstepError as error:
            if not block.raises:
                raise
            return str(error)
    assert not block.raises, f"{path}:{block.line}: it raises nothing"
    return said.getvalue()


def _executed(block: Block, path: Path, folder: Path, namespace: dict[str, Any]) -> dict[str, Any]:
    """The names that a block has made; they are in the namespace from then on."""
    file = _FILE.match(block.text)
    if file is not None:
        target = folder / file["name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
        importlib.invalidate_caches()
        made = dict(vars(importlib.import_module(file["name"].removesuffix(".py").replace("/", "."))))
    else:
        before = dict(namespace)
        # Line numbers of the page, in tracebacks too.
        exec(compile("\n" * block.line + block.text, str(path), "exec"), namespace)
        made = {name: value for name, value in namespace.items() if before.get(name) is not value}
    public = {name: value for name, value in made.items() if not name.startswith("__")}
    namespace.update(public)
    return public


def _call(function: Callable[..., Any], fixtures: Mapping[str, Any]) -> None:
    function(**{name: fixtures[name] for name in inspect.signature(function).parameters})


@contextlib.contextmanager
def own_modules(folder: Path) -> Iterator[None]:
    """The files of a folder can be imported in here, and are forgotten after it: another page has a job.py too."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]
