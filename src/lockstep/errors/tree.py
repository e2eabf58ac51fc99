"""The error classes. A class is an area (its code range); the code names the very case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from lockstep.credentials import without_secrets


class LockstepError(Exception):
    """A fact, why it is so, and what to try next, under a code.

    >>> print(PlanError("LS0107", 'unknown column "usr"', why="there are: user, ok, at.", hint='did you mean "user"?'))
    LS0107 unknown column "usr"
      why:  there are: user, ok, at.
      try:  did you mean "user"?
    """

    area: ClassVar[str] = ""

    def __init__(self, code: str, fact: str, *, why: str = "", hint: str = "") -> None:
        if self.area and not code.startswith(self.area):
            raise AssertionError(f"{code} is outside {type(self).__name__}'s range {self.area}xx")
        self.code = code
        self.fact, self.why, self.hint = (without_secrets(text) for text in (fact, why, hint))
        super().__init__(code, self.fact, self.why, self.hint)

    def __str__(self) -> str:
        lines = [f"{self.code} {self.fact}"]
        if self.why:
            lines.append("  why:  " + self.why.replace("\n", "\n        "))
        if self.hint:
            lines.append("  try:  " + self.hint.replace("\n", "\n        "))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.fact, self.why, self.hint))

    def to_wire(self) -> str:
        """One line that survives a trip through Spark's exception texts and log files."""
        return _WIRE_START + json.dumps([self.code, self.fact, self.why, self.hint]) + _WIRE_END


class EnvironmentError_(LockstepError):  # noqa: N801 - Python has an EnvironmentError of its own
    """LS00xx: the machine, the command line, the project folder."""

    area = "LS00"


class PlanError(LockstepError):
    """LS01xx: the job file and the shape of the job."""

    area = "LS01"


class ExpressionError(LockstepError):
    """LS02xx: expressions, types and determinism."""

    area = "LS02"


class FunctionError(LockstepError):
    """LS03xx: Python functions that run inside steps."""

    area = "LS03"


class StoreError(LockstepError):
    """LS04xx: ledger, journals, leases."""

    area = "LS04"


class ConnectError(LockstepError):
    """LS05xx: sources and sinks."""

    area = "LS05"


class RunError(LockstepError):
    """LS06xx: replicas, checkpoints, divergence."""

    area = "LS06"


class ServiceError(LockstepError):
    """LS07xx: what is asked of a job from outside: operations, savepoints, state, REST."""

    area = "LS07"


_WIRE_START = "<<lockstep-error "
_WIRE_END = ">>"
_AREAS = (
    EnvironmentError_,
    PlanError,
    ExpressionError,
    FunctionError,
    StoreError,
    ConnectError,
    RunError,
    ServiceError,
)


def _rebuild(cls: type[LockstepError], code: str, fact: str, why: str, hint: str) -> LockstepError:
    return cls(code, fact, why=why, hint=hint)


@contextmanager
def carried_by_spark(step: str = "") -> Iterator[None]:
    """Let errors out of Spark's Python workers: Spark keeps only the text of an exception, so they travel in there.

    What does not say where it happened gets the step it happened in.

    >>> with carried_by_spark():
    ...     raise StoreError("LS0401", "disk full")
    Traceback (most recent call last):
    ...
    RuntimeError: <<lockstep-error ["LS0401", "disk full", "", ""]>>
    """
    try:
        yield
    except LockstepError as error:
        raise RuntimeError(_placed(error, step).to_wire()) from None


def _placed(error: LockstepError, step: str) -> LockstepError:
    if not step or f'"{step}"' in error.fact:
        return error
    return type(error)(error.code, f'step "{step}": {error.fact}', why=error.why, hint=error.hint)


def from_wire(text: str) -> LockstepError | None:
    """The error that :meth:`LockstepError.to_wire` put into ``text``, or None if there is none.

    >>> error = from_wire("Py4J ... " + StoreError("LS0401", "disk full").to_wire() + " at line 3")
    >>> error.code, error.fact
    ('LS0401', 'disk full')
    """
    start = text.find(_WIRE_START)
    if start < 0:
        return None
    try:
        parts, _ = json.JSONDecoder().raw_decode(text, start + len(_WIRE_START))
        code, fact, why, hint = (str(part) for part in parts)
    except ValueError:
        return None
    return error_class(code)(code, fact, why=why, hint=hint)


def error_class(code: str) -> type[LockstepError]:
    """The class that a code belongs to.

    >>> error_class("LS0740").__name__, error_class("LS9999").__name__
    ('ServiceError', 'LockstepError')
    """
    return next((cls for cls in _AREAS if code.startswith(cls.area)), LockstepError)
