"""A stream in branches: each record goes to the first whose condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lockstep.api.arguments import step_name
from lockstep.errors import PlanError
from lockstep.plan.columns import Condition, value_of
from lockstep.plan.columns import condition as as_condition
from lockstep.plan.explode import Explode
from lockstep.plan.expression import Alias, Call, Column, Expression, Literal, unaliased
from lockstep.plan.schema import did_you_mean

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

REST = "rest"


class Branches:
    """The branches of a stream by name, as attributes or items; ``rest`` has the records that fit none.

    >>> from lockstep.api.job import Job
    >>> import lockstep as ls
    >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint"))
    >>> branches = calls.split(fast="ms < 100", slow="ms < 1000")
    >>> branches.fast, branches["rest"], list(branches)
    (<stream split_fast: path, ms>, <stream split_rest: path, ms>, ['fast', 'slow', 'rest'])
    """

    def __init__(self, named: Mapping[str, Stream], rest: Callable[[], Stream]) -> None:
        self._named = dict(named)
        self._rest = rest

    def __getitem__(self, name: str) -> Stream:
        if name == REST and REST not in self._named:
            self._named[REST] = self._rest()
        if name in self._named:
            return self._named[name]
        raise PlanError(
            "LS0174",
            f'there is no branch "{name}"',
            why=f"the branches are: {', '.join(self)}.",
            hint=did_you_mean(name, list(self)),
        )

    def __getattr__(self, name: str) -> Stream:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._named, REST)))

    def __repr__(self) -> str:
        return f"<branches {', '.join(self)}>"


def split(stream: Stream, conditions: Mapping[str, Condition], name: str | None) -> Branches:
    """The branches of ``stream``: filters that exclude each other."""
    _check_names(conditions)
    # A null condition does not hold, and its opposite has to hold then.
    holds = [Call("coalesce", (as_condition(value, stream.columns), Literal(False))) for value in conditions.values()]

    def branch(called: str, conditions: list[Expression]) -> Stream:
        step_id = f"{name}_{called}" if name is not None else stream._id(f"split_{called}", None)
        return stream.filter(_all(conditions), name=step_id)

    named = {
        called: branch(called, [*(~earlier for earlier in holds[:number]), holds[number]])
        for number, called in enumerate(conditions)
    }
    return Branches(named, lambda: branch(REST, [~one for one in holds]))


def explode(
    stream: Stream,
    value: Any,
    as_: str | tuple[str, str] | None,
    named: Mapping[str, Any],
    name: str | None,
    *,
    outer: bool,
) -> Stream:
    """A record for each element of an array or a map."""
    given = [(as_, value)] if value is not None else []
    given += list(named.items())
    if len(given) != 1 or (value is None and as_ is not None):
        raise PlanError(
            "LS0175",
            f".explode(...) was given {len(given)} arrays" if len(given) != 1 else ".explode(...) was given two names",
            why="it makes a record for each element of one array.",
            hint='.explode("items", as_="item") or .explode(item="items"); one after the other for several arrays.',
        )
    names, array = given[0]
    expression = value_of(array, stream.columns)
    if names is None:
        names = _own_name(expression)
    step_id = stream._id("explode", step_name(name, stream.columns, "explode"))
    called = (names,) if isinstance(names, str) else tuple(names)
    return stream._then(Explode(step_id, stream._step, unaliased(expression), called, outer))


def _own_name(expression: Expression) -> str:
    if isinstance(expression, Alias | Column):
        return expression.name.split(".")[-1].strip("`")
    raise PlanError(
        "LS0175",
        "the elements of .explode(...) have no name",
        why=f"it was given: {expression}.",
        hint=".explode(word=\"split(text, ' ')\")",
    )


def _all(conditions: list[Expression]) -> Expression:
    made = conditions[0]
    for condition in conditions[1:]:
        made = made & condition
    return made


def _check_names(conditions: Mapping[str, Condition]) -> None:
    if not conditions:
        raise PlanError("LS0174", ".split() was given no branches", hint='.split(fast="ms < 100", slow="ms >= 100")')
    for name in conditions:
        if name == REST or not name.isidentifier() or name.startswith("_"):
            raise PlanError(
                "LS0174",
                f'a branch cannot be called "{name}"',
                why="branches are attributes; rest is the branch of the records that fit no other.",
                hint='.split(fast="ms < 100").fast',
            )
