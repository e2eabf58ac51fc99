"""The examples of the documentation as modules that a type checker can read.

The blocks of a page share a namespace and may use a name for something else later on, which no module may do. So each
block becomes a module of its own, which imports what it uses from the blocks before it. Lines keep their numbers.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Mapping
from pathlib import Path

from tests.spark.guides import Block, blocks_of

_FILE = re.compile(r"# file: (?P<name>\w+)\.py\s*\n")


def write_modules(page: Path, package: Path) -> None:
    """Write the blocks of a page that are run into the folder of a package, which bears its name."""
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    homes: dict[str, str] = {}
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if not block.is_run or block.raises:
            continue
        file = _FILE.match(block.text)
        name = file["name"] if file is not None else f"line_{block.line}"
        text = _module(block, {} if file is not None else homes, package)
        (package / f"{name}.py").write_text(text, encoding="utf-8")
        homes |= dict.fromkeys(_bound(block.text), f"{_dotted(package)}.{name}")


def _module(block: Block, homes: Mapping[str, str], package: Path) -> str:
    """The block with its imports in the first line, and itself in the lines in which it stands on the page."""
    files = "|".join(path.stem for path in package.glob("*.py") if not path.stem.startswith(("line_", "__"))) or "-"
    text = re.sub(rf"^(\s*from )({files})( import )", rf"\1{_dotted(package)}.\2\3", block.text, flags=re.MULTILINE)
    bound, before = _bound(text), _used_before_bound(text)
    imports = []
    for name in sorted(_used(text) & homes.keys()):
        if name not in bound:
            imports.append(f"from {homes[name]} import {name}")
        elif name in before:
            imports += [f"from {homes[name]} import {name} as {name}_before", f"{name} = {name}_before"]
    return "; ".join(imports) + "\n" * block.line + text


def _dotted(package: Path) -> str:
    return f"{package.parent.name}.{package.name}"


def _bound(text: str) -> set[str]:
    """The names that a block makes."""
    table = symtable.symtable(text, "block", "exec")
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def _used(text: str) -> set[str]:
    """The names that a block reads, in its functions too."""
    tables = [symtable.symtable(text, "block", "exec")]
    found: set[str] = set()
    while tables:
        table = tables.pop()
        top = table.get_type() == "module"
        found |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
        tables += table.get_children()
    return found


def _used_before_bound(text: str) -> set[str]:
    """The names that a block reads before it makes them anew: ``sales = sales.filter(...)``."""
    bound: set[str] = set()
    before: set[str] = set()
    for statement in ast.parse(text).body:
        # What a loop goes over is read before its variables are made, its body after it.
        first = statement.iter if isinstance(statement, ast.For) else statement
        before |= _names(first, ast.Load) - bound
        bound |= _names(statement, ast.Store)
    return before


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)}
