"""Rolling results by key in Python: each record changes what its key has so far, in the order of the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.plan.accumulated import Accumulated, Layout, accumulated, lay_out
from lockstep.plan.columns import check_known
from lockstep.plan.determinism import check_scalar
from lockstep.plan.draw import words
from lockstep.plan.encode import details, function_name, named_json
from lockstep.plan.expression import Call, Column, Expression
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Field, Schema, check_names
from lockstep.plan.steps import Named
from lockstep.plan.updates import Added, Updates, aggregation_of, rolling_updates, updates_of
from lockstep.plan.windowed import check_two_arguments


@dataclass(frozen=True, eq=False)
class _OfOneStream(KeyedStep):
    """A keyed step over one stream whose results begin with the keys."""

    @property
    def computed_keys(self) -> Named:
        """The keys that are no columns: computed as values too, so that their types are known."""
        return tuple((f"__key_{name}", value) for name, value in self.keys[0] or () if not self._is_column(value))

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """The keys that are no columns."""
        return self.computed_keys

    def key_places(self) -> tuple[int, ...]:
        """Where a record's values have the keys."""
        after = len(self.record_columns) + self.computed(0).index(self.computed_keys[0]) if self.computed_keys else 0
        places = []
        for _, value in self.keys[0] or ():
            if isinstance(value, Column) and self._is_column(value):
                places.append(self.record_columns.index(value.name))
            else:
                places.append(after)
                after += 1
        return tuple(places)

    def _is_column(self, value: Expression) -> bool:
        return isinstance(value, Column) and value.name in self.record_columns

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns of the records that come in."""
        return self.streams[0].columns

    def _key_fields(self) -> tuple[Field, ...] | None:
        """The keys' types, None if one is not known."""
        before = self.streams[0].schema_hint
        fields = []
        for name, value in self.keys[0] or ():
            if before is None or not isinstance(value, Column) or value.name not in before.names:
                return None
            fields.append(Field(name, before.type_of(value.name)))
        return tuple(fields)


@dataclass(frozen=True, eq=False)
class _Rolling(_OfOneStream):
    """One result for each key and epoch that brought records of it, or ``per_record``, one for each record."""

    per_record: bool


@dataclass(frozen=True, eq=False)
class _WholeRecords(_Rolling):
    """A rolling step whose results are records of the stream's columns, the keys first."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys, then the other columns of the records."""
        return (*self.key_names, *(name for name in self.record_columns if name not in self.key_names))

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the stream."""
        keys, before = self._key_fields(), self.streams[0].schema_hint
        if keys is None or before is None:
            return None
        return Schema((*keys, *(field for field in before.fields if field.name not in self.key_names)))


@dataclass(frozen=True, eq=False)
class RollingReduce(_WholeRecords):
    """Puts the records of a key together, two by two, with a Python function."""

    stateful = True
    runs_python = True
    function: Callable[[Any, Any], Any]

    def _check(self) -> None:
        super()._check()
        check_two_arguments(self.function, f"the function of {self.where}")
        check_names(self.columns, self.where)


@dataclass(frozen=True, eq=False)
class RollingExtreme(_WholeRecords):
    """The record of a key with the smallest or largest value; among equals the first in the order of records."""

    stateful = True
    runs_python = True
    calls_user_code = False
    by: Expression
    largest: bool

    def _check(self) -> None:
        super()._check()
        check_scalar(self.by, self.where)
        check_known(self.by, self.record_columns, self.id)

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """The keys that are no columns; what the records are compared by comes last."""
        return (*self.computed_keys, ("__by", self.by))


@dataclass(frozen=True, eq=False)
class RollingFold(_Rolling):
    """Lets the records of a key change an accumulator, one after the other, with a Python function."""

    stateful = True
    runs_python = True
    initial: Any
    function: Callable[[Any, Any], Any]
    schema: Schema

    def _check(self) -> None:
        super()._check()
        check_two_arguments(self.function, f"the function of {self.where}")
        check_names(self.columns, self.where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys, then the fields of the schema."""
        return (*self.key_names, *self.schema.names)

    @property
    def schema_hint(self) -> Schema | None:
        """The schema, behind the keys where their types are known."""
        keys = self._key_fields()
        return None if keys is None else Schema((*keys, *self.schema.fields))


class _Aggregating(_OfOneStream):
    """What steps have in common that add up aggregates in Python."""

    aggregates: Named

    @property
    def accumulated(self) -> tuple[Accumulated, ...]:
        """What is added up, in order."""
        return tuple(accumulated(value, name, self.where) for name, value in self.aggregates)

    @property
    def layout(self) -> Layout:
        """Where the aggregates find their inputs."""
        return lay_out(self.accumulated, self.record_columns)


@dataclass(frozen=True, eq=False)
class RollingAggregate(_Rolling, _Aggregating):
    """Aggregates with a result for each record: added up in the order of the records, by Lockstep itself."""

    stateful = True
    runs_python = True
    calls_user_code = False
    aggregates: Named

    def _check(self) -> None:
        super()._check()
        check_names(self.columns, self.where)
        assert self.accumulated, "an aggregation without aggregates"

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """The inputs of the aggregates that are no columns, then such keys."""
        return (*self.layout.computed, *self.computed_keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys, then the aggregates."""
        return (*self.key_names, *(name for name, _ in self.aggregates))


@words.register(RollingReduce)
@words.register(RollingFold)
@words.register(RollingExtreme)
@words.register(RollingAggregate)
def _(step: _Rolling) -> str:
    match step:
        case RollingReduce():
            what = f"reduce {function_name(step.function)}"
        case RollingFold():
            what = f"fold {function_name(step.function)}: {step.schema.ddl()}"
        case RollingExtreme():
            what = f"{'max' if step.largest else 'min'}_by {step.by}"
        case RollingAggregate():
            what = "aggregate " + ", ".join(f"{name} = {value}" for name, value in step.aggregates)
    often = "a result for each record" if step.per_record else "a result for each epoch"
    return f"{what} by {', '.join(step.key_names)}, {often}"


@details.register(RollingReduce)
@details.register(RollingFold)
@details.register(RollingExtreme)
@details.register(RollingAggregate)
def _(step: _Rolling) -> dict[str, Any]:
    common = {"keys": named_json(step.keys[0] or ()), "per_record": step.per_record}
    match step:
        case RollingReduce():
            return {**common, "function": function_name(step.function), "record": list(step.record_columns)}
        case RollingFold():
            initial = {"initial": repr(step.initial), "schema": step.schema.to_json()}
            return {**common, "function": function_name(step.function), **initial}
        case RollingExtreme():
            largest = {"largest": step.largest, "record": list(step.record_columns)}
            return {**common, "by": step.by.to_json(), **largest}
        case RollingAggregate():
            return {**common, "aggregates": named_json(step.aggregates)}
        case _:
            raise AssertionError(f"no details for {type(step).__name__}")


@updates_of.register(RollingReduce)
@updates_of.register(RollingFold)
@updates_of.register(RollingExtreme)
@updates_of.register(RollingAggregate)
def _(step: _Rolling) -> Updates | None:
    """Results after each record are records of their own."""
    aggregates = step.aggregates if isinstance(step, RollingAggregate) else ()
    return None if step.per_record else rolling_updates(step, step.key_names, aggregates)


@aggregation_of.register
def _(step: RollingExtreme) -> Added:
    """Of rows that are alike in what they are compared by the first stays, so all else in them has to be the same."""
    compared = Call("max" if step.largest else "min", (step.by,))
    by = step.by.name if isinstance(step.by, Column) else ""
    others = tuple((name, Call("collect_set", (Column(name),))) for name in step.record_columns if name != by)
    return Added(step.keys[0] or (), (("__by", compared), *others))


@aggregation_of.register
def _(step: RollingAggregate) -> Added:
    return Added(step.keys[0] or (), step.aggregates)
