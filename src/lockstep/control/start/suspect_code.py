"""What in a Python function's code may make two replicas compute different results.

Nobody can prove that a function is deterministic. What can be done is to read its code, and that of the functions it
calls in the same modules, for the usual suspects.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

_CLOCK = "reads a clock; use a time that is in the record, or a column made with ls.epoch_time()"
_RANDOM = "is random; derive the value from the record, e.g. a hash of its key"
_OUTSIDE = "asks the outside, which may answer each replica differently; bring the data in as a source"
_HOST = "depends on where it runs; make it a constant of the job"
_KEEPS = "keeps a value between calls, and replicas call it in different processes; use keyed steps for state"

_MODULES = {
    "time": _CLOCK,
    "random": _RANDOM,
    "secrets": _RANDOM,
    "uuid": _RANDOM,
    "socket": _OUTSIDE,
    "requests": _OUTSIDE,
    "httpx": _OUTSIDE,
    "urllib": _OUTSIDE,
    "http": _OUTSIDE,
    "subprocess": _OUTSIDE,
    "sqlite3": _OUTSIDE,
    "platform": _HOST,
    "getpass": _HOST,
}
_ATTRIBUTES = {
    ("datetime", "now"): _CLOCK,
    ("datetime", "utcnow"): _CLOCK,
    ("datetime", "today"): _CLOCK,
    ("date", "today"): _CLOCK,
    ("Timestamp", "now"): _CLOCK,
    ("os", "urandom"): _RANDOM,
    ("os", "environ"): _HOST,
    ("os", "getenv"): _HOST,
    ("os", "getpid"): _HOST,
    ("numpy", "random"): _RANDOM,
}
_PURE = frozenset(
    {
        ("time", "gmtime"),
        ("time", "strftime"),
        ("time", "strptime"),
        ("urllib", "parse"),
        ("uuid", "UUID"),
        ("uuid", "uuid3"),
        ("uuid", "uuid5"),
        *(("uuid", f"NAMESPACE_{name}") for name in ("DNS", "OID", "URL", "X500")),
    }
)
_FUNCTIONS_MAX = 100
"""Functions followed from one step: a bound, not a limit that a job should meet."""


@dataclass(frozen=True)
class Suspicion:
    """Something that a person should look at: where in the code, and what to do instead."""

    what: str
    line: int
    advice: str


def suspicions(function: Callable[..., Any]) -> list[Suspicion]:
    """What in ``function`` looks as if replicas could differ; an empty list proves nothing.

    >>> import time
    >>> def stamp(record):
    ...     return {**record, "at": time.time()}
    >>> [found.what for found in suspicions(stamp)]
    ['time.time']
    """
    waiting = [_plain(function)]
    seen: list[CodeType] = []
    found: dict[tuple[str, int], Suspicion] = {}
    while waiting and len(seen) < _FUNCTIONS_MAX:
        one = waiting.pop()
        if one is None or one.__code__ in seen:
            continue
        seen.append(one.__code__)
        for code in _nested(one.__code__):
            for suspicion in _in_code(code, one.__globals__):
                found[suspicion.what, suspicion.line] = suspicion
            waiting += [_plain(value) for value in _globals_of(code, one) if _same_module(value, one)]
    return sorted(found.values(), key=lambda suspicion: (suspicion.line, suspicion.what))


def _plain(function: Any) -> FunctionType | None:
    """The function behind a partial, a method, a decorated function or an object that can be called."""
    for name in ("func", "__wrapped__", "__func__"):
        function = getattr(function, name, function)
    if not isinstance(function, FunctionType):
        function = vars(type(function)).get("__call__")
    return function if isinstance(function, FunctionType) else None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _in_code(code: CodeType, names: dict[str, Any]) -> Iterator[Suspicion]:
    instructions = list(dis.get_instructions(code))
    for index, one in enumerate(instructions):
        line = (one.positions.lineno if one.positions else None) or code.co_firstlineno
        if one.opname == "STORE_GLOBAL":
            yield Suspicion(f"global {one.argval}", line, _KEEPS)
        elif one.opname == "IMPORT_NAME":
            first, _, rest = one.argval.partition(".")
            if first in _MODULES and (first, rest) not in _PURE:
                yield Suspicion(one.argval, line, _MODULES[first])
        elif one.opname == "LOAD_GLOBAL":
            found = _of_name(one.argval, names.get(one.argval), _attributes_after(instructions, index))
            if found is not None:
                yield Suspicion(found[0], line, found[1])


def _attributes_after(instructions: list[dis.Instruction], index: int) -> list[str]:
    """``["datetime", "now"]`` for what follows ``dt`` in ``dt.datetime.now()``."""
    following = itertools.takewhile(lambda one: one.opname in ("LOAD_ATTR", "LOAD_METHOD"), instructions[index + 1 :])
    return [one.argval for one in following]


def _of_name(name: str, value: Any, attributes: list[str]) -> tuple[str, str] | None:
    """(what to name, advice) if a global name, or something taken of it, is a suspect."""
    if name == "open" and value is None:
        return name, _OUTSIDE
    shown = name
    while True:
        attribute = attributes[0] if attributes else ""
        home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
        own = attribute if isinstance(value, ModuleType) else str(getattr(value, "__name__", ""))
        first = home.partition(".")[0]
        if first in _MODULES:
            return None if (first, own) in _PURE else (f"{shown}.{attribute}".rstrip("."), _MODULES[first])
        if advice := _ATTRIBUTES.get((str(getattr(value, "__name__", "")), attribute)):
            return f"{shown}.{attribute}", advice
        if not attributes or not isinstance(value, ModuleType | type):
            return None
        value, shown, attributes = getattr(value, attribute, None), f"{shown}.{attribute}", attributes[1:]


def _globals_of(code: CodeType, function: FunctionType) -> list[Any]:
    return [function.__globals__[name] for name in code.co_names if name in function.__globals__]


def _same_module(value: Any, function: FunctionType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == function.__module__
