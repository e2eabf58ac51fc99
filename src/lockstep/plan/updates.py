"""Results that replace earlier ones: where they come from, and where taking them for records would be wrong.

A rolling aggregation gives a new total of a key in every epoch that changes it. Each total replaces the one before, so
adding them up counts records again and again; and where a step lets a new total not through, the old one stays in a
keyed sink. A property of steps says which rows replace which (:func:`updates_of`), and a job is refused where it
matters (:func:`check_updates`). Results after each record (``per_record=True``) are one for each record, and records.

After ``.latest()`` rows that were replaced are taken back, each before its successor comes. Such a stream has
*changes*, and the steps that know how to take a row back (`plan/kinds.py`) get them right (docs/decisions/0044).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

from lockstep.errors import PlanError
from lockstep.plan.accumulated import called_aggregate
from lockstep.plan.aggregates import MEANINGS, moving
from lockstep.plan.columns import referenced_columns
from lockstep.plan.expression import Call, Column, Expression, Literal, Sql, walk
from lockstep.plan.loops import ROUND, LoopHead
from lockstep.plan.steps import (
    WINDOW_COLUMNS,
    Aggregate,
    Drop,
    EventTime,
    Filter,
    Named,
    Rename,
    Select,
    Sink,
    Step,
    Union,
    WithColumns,
    event_times_before,
    upstream,
)

_IDEMPOTENT = frozenset(name for name, meaning in MEANINGS.items() if meaning.repeats and not meaning.ordered)
"""Aggregates to which it is the same whether a value comes once or many times."""
_NUMBER = r"-?\d+(?:\.\d+)?"
_COMPARED = re.compile(rf"\s*`?(\w+)`?\s*(>=?|<=?)\s*{_NUMBER}\s*")
_MIRRORED = re.compile(rf"\s*{_NUMBER}\s*(>=?|<=?)\s*`?(\w+)`?\s*")
_NOT_NULL = re.compile(r"\s*(?:`?(\w+)`?\s+is\s+not\s+null|not\s+`?(\w+)`?\s+is\s+null)\s*", re.IGNORECASE)
_WORDS = re.compile(r"\w+")
_QUOTED = re.compile(r"(`[^`]*`)|'[^']*'")
_JOINED = re.compile(r"\s+(?:and|or)\s+(?=(?:[^']*'[^']*')*[^']*$)", re.IGNORECASE)
"""Outside of quotes."""
_CASE = re.compile(r"\bcase\b", re.IGNORECASE)
_COMPARISONS = {"operator.gt": ">", "operator.ge": ">=", "operator.lt": "<", "operator.le": "<="}
_HAS_VALUE = "is not null"
_MIRROR = str.maketrans("<>", "><")
_NO_COLUMN = ""
"""Stands for the epoch time among what is read: no column is called so, hence none of a key."""


@dataclass(frozen=True)
class Updates:
    """What is known of rows that replace earlier ones."""

    by: Step
    """The step that gives them."""
    key: frozenset[str]
    """Columns that are the same in all rows that replace each other."""
    rising: frozenset[str] = frozenset()
    """Columns that are never smaller in a newer row."""
    falling: frozenset[str] = frozenset()
    """Columns that are never larger."""
    hidden_by: Step | None = None
    """A step that may keep a newer row back when it has let the older one through."""
    identity: frozenset[str] | None = None
    """Columns by which a row is found that another one replaces: no two that hold are alike. None if not known."""
    taken_back: bool = False
    """Whether rows that hold no longer are taken back: then these are changes."""

    def renamed(self, old_names: Mapping[str, str]) -> Updates:
        """The same after a step whose columns are these old ones under new names."""

        def kept(names: frozenset[str]) -> frozenset[str]:
            return frozenset(new for new, old in old_names.items() if old in names)

        wanted = self.identity
        identity = None if wanted is None or not wanted <= set(old_names.values()) else kept(wanted)
        return replace(
            self, key=kept(self.key), rising=kept(self.rising), falling=kept(self.falling), identity=identity
        )


@singledispatch
def updates_of(step: Step) -> Updates | None:  # noqa: ARG001
    """What is known of a step's rows if they replace earlier ones; None if each stands for itself.

    Functions in Python, process functions and bolts see every update, and what they make of it is theirs to know.
    """
    return None


@dataclass(frozen=True)
class Added:
    """How a step adds records up."""

    keys: Named
    aggregates: Named
    in_windows: bool = False
    """Whether an event time (or a count of records) decides too what is added to what."""


@singledispatch
def aggregation_of(step: Step) -> Added | None:  # noqa: ARG001
    """How a step adds records up; None if it does not."""
    return None


@singledispatch
def pairs_records(step: Step) -> bool:  # noqa: ARG001
    """Whether a step remembers the rows it reads and compares them with others: each is a fact to it."""
    return False


def rolling_updates(step: Step, keys: Iterable[str], aggregates: Named, *, one_row: bool = True) -> Updates | None:
    """The updates of a step that gives new totals of these keys. A round of a loop comes once, and is final.

    ``one_row`` says whether a key has one row that holds, so that each new one replaces it.
    """
    names = frozenset(keys)
    if ROUND in names and any(isinstance(before, LoopHead) for before in upstream(step)):
        return None
    called = {name: called_aggregate(value) for name, value in aggregates}
    functions = {name: found[0] for name, found in called.items() if found is not None}
    rising = frozenset(name for name, function in functions.items() if function in moving("up"))
    falling = frozenset(name for name, function in functions.items() if function in moving("down"))
    return Updates(step, names, rising, falling, identity=names if one_row else None)


@updates_of.register
def _aggregate(step: Aggregate) -> Updates | None:
    if step.window is not None and not step.updates:
        return None
    window = WINDOW_COLUMNS if step.window is not None else ()
    return rolling_updates(step, (*(name for name, _ in step.keys), *window), step.aggregates)


@aggregation_of.register
def _(step: Aggregate) -> Added:
    return Added(step.keys, step.aggregates, in_windows=step.window is not None)


@updates_of.register(EventTime)
@updates_of.register(Sink)
@updates_of.register(Drop)
def _same(step: EventTime | Sink | Drop) -> Updates | None:
    found = updates_of(step.input)
    return found and found.renamed({name: name for name in step.columns})


@updates_of.register
def _rename(step: Rename) -> Updates | None:
    found = updates_of(step.input)
    return found and found.renamed(dict(zip(step.columns, step.input.columns, strict=True)))


@updates_of.register
def _select(step: Select) -> Updates | None:
    return _computed(step.input, dict(step.selection))


@updates_of.register
def _with_columns(step: WithColumns) -> Updates | None:
    kept: dict[str, Expression] = {name: Column(name) for name in step.input.columns}
    return _computed(step.input, {**kept, **dict(step.additions)})


def _computed(before: Step, values: Mapping[str, Expression]) -> Updates | None:
    found = updates_of(before)
    if found is None:
        return None
    plain = {new: value.name for new, value in values.items() if isinstance(value, Column)}
    of_keys = frozenset(new for new, value in values.items() if _reads(value, before) <= found.key)
    return replace(found.renamed(plain), key=of_keys)


@updates_of.register
def _filter(step: Filter) -> Updates | None:
    found = updates_of(step.input)
    if found is None or found.taken_back:
        return found
    if all(_stays_true(part, step.input, found) for part in _parts(step.condition)):
        return found
    return replace(found, hidden_by=found.hidden_by or step)


@updates_of.register
def _union(step: Union) -> Updates | None:
    found = [one for one in map(updates_of, step.streams) if one is not None]
    if not found:
        return None
    hidden_by = next((one.hidden_by for one in found if one.hidden_by is not None), None)
    key = frozenset.intersection(*(one.key for one in found))
    taken_back = any(one.taken_back for one in found)
    return Updates(found[0].by, key, hidden_by=hidden_by, taken_back=taken_back)


def check_updates(steps: Iterable[Step]) -> None:
    """Refuse to add up what replaces itself (LS0126), and keyed sinks that would keep what was replaced (LS0127)."""
    for step in steps:
        found = counted_again(step)
        if found is not None:
            raise _added_again(step, found)
        held = kept_too_long(step)
        if held is not None and held.hidden_by is not None:
            raise _kept_too_long(step, held, held.hidden_by)


def counted_again(step: Step) -> Updates | None:
    """The updates of which a step would count every one beside those that it replaces; None if there are none.

    Changes are not among them: a step that reads those knows about rows that are taken back, or is refused.
    """
    added = aggregation_of(step)
    found = next((one for one in map(updates_of, step.inputs) if one is not None), None)
    if found is None or found.taken_back:
        return None
    is_wrong = pairs_records(step) or (added is not None and not _is_right(added, step.inputs[0], found))
    return found if is_wrong else None


def kept_too_long(step: Step) -> Updates | None:
    """The updates of which a keyed sink would keep a row that another one has replaced; None if there are none."""
    if not isinstance(step, Sink) or not step.spec.key:
        return None
    found = updates_of(step.input)
    return found if found is not None and found.hidden_by is not None else None


def _is_right(added: Added, before: Step, found: Updates) -> bool:
    """Whether an aggregation of updates is that of the newest of them: if old ones add nothing that new ones do not."""
    if found.hidden_by is not None or not all(_reads(value, before) <= found.key for _, value in added.keys):
        return False
    if added.in_windows and not _stays_in_window(before, found):
        return False
    return all(_adds_nothing(value, before, found) for _, value in added.aggregates)


def _adds_nothing(aggregate: Expression, before: Step, found: Updates) -> bool:
    """Whether an aggregate is the same without the rows that were replaced: of keys, or the top of what only rises."""
    function, arguments = called_aggregate(aggregate) or ("", ())
    read = _reads(aggregate, before)
    if function in _IDEMPOTENT and read and read <= found.key:
        return True
    # Of an expression over a rising column nobody knows which way it moves: 100 - n falls.
    moved = {"max": found.rising, "min": found.falling}.get(function, frozenset())
    return len(arguments) == 1 and isinstance(arguments[0], Column) and _is_one_of(arguments[0].name, moved)


def _stays_in_window(before: Step, found: Updates) -> bool:
    """Whether a row falls into the window of those that it replaces: its event time is made of their key."""
    declared = [time for time in event_times_before(before) if found.by in upstream(time)]
    return all((made := updates_of(time)) is not None and _reads(time.time, time) <= made.key for time in declared)


def _reads(value: Expression, before: Step) -> frozenset[str]:
    """The columns that an expression reads; of a text in SQL all that it could."""
    read = set(referenced_columns(value))
    if any(isinstance(part, Call) and part.name.startswith("lockstep.") for part in walk(value)):
        read.add(_NO_COLUMN)
    texts = [_without_constants(part.text) for part in walk(value) if isinstance(part, Sql)]
    words = {word.lower() for text in texts for word in _WORDS.findall(text)}
    return frozenset(read | {name for name in before.columns if words.issuperset(_WORDS.findall(name.lower()))})


def _without_constants(text: str) -> str:
    """A text in SQL without the texts in it, unless it is hard to tell where these end."""
    return text if set('"\\') & set(text) else _QUOTED.sub(r"\1 ", text)


def _is_one_of(column: str, names: Iterable[str]) -> bool:
    """Whether a column is one of these: to Spark case does not count."""
    return column.lower() in {name.lower() for name in names}


def _parts(condition: Expression) -> list[Expression]:
    """The conditions that AND and OR join, as far as it is easy to see: if each stays true, all together do."""
    if isinstance(condition, Call) and condition.name in ("operator.and", "operator.or"):
        return [part for one in condition.children for part in _parts(one)]
    if isinstance(condition, Sql) and not set('"()') & set(condition.text) and not _CASE.search(condition.text):
        return [Sql(part) for part in _JOINED.split(condition.text)]
    return [condition]


def _stays_true(part: Expression, before: Step, found: Updates) -> bool:
    """Whether a condition that holds for a row holds for every newer one."""
    if _reads(part, before) <= found.key:
        return True
    column, sign = _compared_text(part.text) if isinstance(part, Sql) else _compared_call(part)
    # What only rises or only falls passes over nulls, so a value never becomes null again.
    if sign == _HAS_VALUE:
        return _is_one_of(column, found.rising | found.falling)
    return _is_one_of(column, found.rising if sign.startswith(">") else found.falling)


def _compared_text(text: str) -> tuple[str, str]:
    """The column that a text compares with a number, and how, as if the column stood on the left; else nothing."""
    if (compared := _COMPARED.fullmatch(text)) is not None:
        return compared[1], compared[2]
    if (mirrored := _MIRRORED.fullmatch(text)) is not None:
        return mirrored[2], mirrored[1].translate(_MIRROR)
    not_null = _NOT_NULL.fullmatch(text)
    return ("", "") if not_null is None else (not_null[1] or not_null[2], _HAS_VALUE)


def _compared_call(part: Expression) -> tuple[str, str]:
    """The same of what operators and methods build."""
    match part:
        case Call("column.isNotNull" | "isnotnull", (Column(name),)):
            return name, _HAS_VALUE
        case Call("isnotnull", (str(name),)):
            return name, _HAS_VALUE
        case Call(name, (Column(column), Literal())) if name in _COMPARISONS:
            return column, _COMPARISONS[name]
        case Call(name, (Literal(), Column(column))) if name in _COMPARISONS:
            return column, _COMPARISONS[name].translate(_MIRROR)
        case _:
            return "", ""


def _added_again(step: Step, found: Updates) -> PlanError:
    events = ".as_events() means every result, as a record of its own"
    latest = ".latest() before it means the row that each key has now"
    return PlanError(
        "LS0126",
        f'{step.where} takes the results of "{found.by.id}", which replace each other, for records',
        why=f'"{found.by.id}" gives a new row of a key in every epoch that changes it. Every row would count beside '
        "those it replaces.",
        # Nobody can take back a pair that was found.
        hint=f"{events}: put it before." if pairs_records(step) else f"{latest}; {events}.",
    )


def _kept_too_long(sink: Step, found: Updates, hides: Step) -> PlanError:
    return PlanError(
        "LS0127",
        f'the sink "{sink.id}" would keep rows that "{hides.id}" does not let through any more',
        why=f'the results of "{found.by.id}" replace each other. When a new one does not come as far as the sink, the '
        "row of its key there is still the old one.",
        hint=f'.latest() right after "{found.by.id}" has the sink delete such rows; .as_events() there keeps the last '
        "row that came through. Or write to a sink without key=, which takes every result.",
    )
