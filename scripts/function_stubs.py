"""Writes src/lockstep/api/spark_functions.pyi: what type checkers know of `F`, by the signatures of the pinned pyspark.

``make stubs`` runs it; a test fails while the file is not what it would write.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ForwardRef, Union, get_args, get_origin

from lockstep.api.functions import F, Functions
from lockstep.plan.signatures import signature

TARGET = Path(__file__).parents[1] / "src" / "lockstep" / "api" / "spark_functions.pyi"
HEAD = '''\
"""The functions of `pyspark.sql.functions` as type checkers see them on `F`.

Made by scripts/function_stubs.py from the pinned pyspark: `make stubs`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql.types import DataType

from lockstep.plan.expression import Expression

ColumnOrName: TypeAlias = Expression | str

class SparkFunctions:
'''
_NAMES = {"Column": "Expression", "ColumnOrName": "ColumnOrName", "DataTypeOrString": "DataType | str"}
"""What pyspark calls the types in its annotations, and what they are here."""


class _Verbatim(str):
    """A text that a signature shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def stub() -> str:
    """The whole file: a method for each function that `F` finds by its name."""
    return HEAD + "\n".join(_method(name) for name in dir(F) if name not in vars(Functions)) + "\n"


def _method(name: str) -> str:
    found = signature(name)
    assert found is not None, f"F lists {name}, and pyspark does not have it"
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = inspect.Signature([own, *map(_parameter, found.parameters.values())])
    return f"    def {name}{shown} -> Expression: ..."


def _parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default if parameter.default is parameter.empty else _Verbatim("...")
    return parameter.replace(annotation=_Verbatim(_type(parameter.annotation)), default=default)


def _type(annotation: Any) -> str:
    """An annotation of pyspark's as the stub writes it: Columns are expressions, data types are all one."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _NAMES[annotation]
    if annotation in (Any, inspect.Parameter.empty):
        return "Any"
    if get_origin(annotation) is not None:
        return _composed(get_origin(annotation), get_args(annotation))
    if annotation is type(None):
        return "None"
    if any(base.__name__ == "DataType" for base in annotation.__mro__):
        return "DataType"
    return _NAMES.get(annotation.__name__, str(annotation.__name__))


def _composed(origin: Any, parts: tuple[Any, ...]) -> str:
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(_type, parts)))
    if origin is Callable:
        inputs, result = parts
        return f"Callable[[{', '.join(map(_type, inputs))}], {_type(result)}]"
    return f"{origin.__name__}[{', '.join('...' if part is Ellipsis else _type(part) for part in parts)}]"


def main() -> None:
    """Write the file."""
    TARGET.write_text(stub(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")


if __name__ == "__main__":
    main()
