"""What `pyspark.sql.functions` offers: names and signatures, read when first asked for (no JVM needed)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from lockstep.errors import ExpressionError

_COLUMN_OR_NAME = "ColumnOrName"


@dataclass(frozen=True)
class Reading:
    """Which arguments of a function pyspark takes as a column's name when they are plain strings."""

    positional: tuple[bool, ...] = ()
    rest: bool = False
    named: Mapping[str, bool] = field(default_factory=dict)

    def reads_column(self, key: int | str) -> bool:
        """Whether the argument at this position, or with this name, may name a column."""
        if isinstance(key, str):
            return self.named.get(key, False)
        return self.positional[key] if key < len(self.positional) else self.rest


@cache
def function_names() -> tuple[str, ...]:
    """All function names of `pyspark.sql.functions`, sorted.

    >>> "lower" in function_names()
    True
    """
    module = import_module("pyspark.sql.functions")
    return tuple(sorted(name for name in module.__all__ if inspect.isfunction(getattr(module, name))))


@cache
def signature(name: str) -> inspect.Signature | None:
    """The signature of a function, None if there is no such function."""
    if name not in function_names():
        return None
    return inspect.signature(getattr(import_module("pyspark.sql.functions"), name))


@cache
def reading(name: str) -> Reading:
    """How a function reads its string arguments; one that is not known reads none as a column."""
    found = signature(name)
    if found is None:
        return Reading()
    positional: list[bool] = []
    rest, named = False, {}
    for parameter in found.parameters.values():
        reads = _COLUMN_OR_NAME in str(parameter.annotation)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = reads
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(reads)
        named[parameter.name] = reads
    return Reading(tuple(positional), rest, named)


def check_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit the function's signature (LS0222)."""
    found = signature(name)
    if found is None:
        return
    try:
        found.bind(*args, **kwargs)
    except TypeError as error:
        parameters = ", ".join(str(p).split(":")[0].split("=")[0].strip() for p in found.parameters.values())
        raise ExpressionError(
            "LS0222", f"the arguments of F.{name} do not fit", why=f"{error}.", hint=f"write F.{name}({parameters})."
        ) from None


def column_strings(name: str, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """The plain strings among the arguments that pyspark takes as column names.

    >>> list(column_strings("concat_ws", ["-", "first", "last"], []))
    ['first', 'last']
    """
    how = reading(name)
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs]
    for key, value in given:
        if not how.reads_column(key):
            continue
        for item in value if isinstance(value, (list, tuple, set)) else (value,):
            if isinstance(item, str):
                yield item
