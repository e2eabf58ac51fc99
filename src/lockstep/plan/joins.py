"""Steps that bring two streams together, or a stream and a table: frozen data, checked when it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from lockstep.durations import duration_text
from lockstep.errors import PlanError
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Field, Schema, check_names, unknown_column
from lockstep.plan.specs import TableSpec
from lockstep.plan.steps import WINDOW_COLUMNS, OutputMode, Step, event_times_before
from lockstep.plan.updates import Updates, pairs_records, updates_of
from lockstep.plan.windows import Sliding, Tumbling

Pairs = tuple[tuple[str, str], ...]
"""Columns that have to be equal: (name on the left, name on the right)."""

Side = Literal["left", "right"]
JoinKind = Literal["inner", "left", "right", "full"]
TableJoinKind = Literal["inner", "left"]
JoinWindow = Tumbling | Sliding

BOUND_PRECISION_US = 1000
"""Spark's watermark counts milliseconds: a bound finer than that would let a record go a little too early."""


class Joined(NamedTuple):
    """One column that is no key: where it comes from and what it is called afterwards."""

    side: Side
    column: str
    name: str


@dataclass(frozen=True, eq=False)
class _Join(Step):
    """What all joins of two inputs have in common: equal columns, and names that do not clash."""

    between: ClassVar[tuple[str, ...]] = ()
    """Columns that stand between the keys and the rest."""

    left: Step
    on: Pairs
    how: JoinKind
    suffixes: tuple[str, str] | None

    def _check(self) -> None:
        self._check_how(get_args(JoinKind))
        self._check_keys()
        self._check_clashes()
        check_names(self.columns, self.where)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of what stands on the right."""
        raise NotImplementedError

    @property
    def right_where(self) -> str:
        """What stands on the right, as errors name it."""
        raise NotImplementedError

    @property
    def joined(self) -> tuple[Joined, ...]:
        """The columns that are no keys: the left one's, then the right one's."""
        return tuple(self._named("left")) + tuple(self._named("right"))

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys once, then the left one's columns, then the right one's."""
        return (*(left for left, _ in self.on), *self.between, *(column.name for column in self.joined))

    def _rest(self, side: Side) -> tuple[str, ...]:
        columns = self.left.columns if side == "left" else self.right_columns
        keys = {pair[0 if side == "left" else 1] for pair in self.on}
        return tuple(name for name in columns if name not in keys)

    def _clashing(self) -> list[str]:
        """Names (in lower case) that would be there twice."""
        names = [*(left for left, _ in self.on), *self.between, *self._rest("left"), *self._rest("right")]
        return [name for name, times in Counter(name.lower() for name in names).items() if times > 1]

    def _named(self, side: Side) -> Iterator[Joined]:
        clashing = self._clashing()
        suffix = (self.suffixes or ("", ""))[0 if side == "left" else 1]
        for name in self._rest(side):
            yield Joined(side, name, name + suffix if name.lower() in clashing else name)

    def _check_how(self, known: Sequence[str]) -> None:
        if self.how not in known:
            raise PlanError(
                "LS0180",
                f'{self.where} has how="{self.how}"',
                why=f"here it is one of: {', '.join(known)}.",
                hint='how="inner" gives only pairs, how="left" also the left records that found no partner.',
            )

    def _check_keys(self) -> None:
        if not self.on:
            raise PlanError(
                "LS0180",
                f"{self.where} has no key",
                why="records are brought together by equal keys: without one each would meet all others.",
                hint='on="order_id", on=["shop", "order_id"], or on={"id": "order_id"} if their names differ.',
            )
        for left, right in self.on:
            if left not in self.left.columns:
                raise unknown_column(left, self.left.columns, self.where)
            if right not in self.right_columns:
                raise unknown_column(right, self.right_columns, f"{self.where}, {self.right_where}")

    def _check_clashes(self) -> None:
        clashing = self._clashing()
        if not clashing or self.suffixes is not None:
            return
        names = [name for name in self._rest("right") if name.lower() in clashing] or list(clashing)
        renames = ", ".join(f'{name}="{name}_2"' for name in names)
        raise PlanError(
            "LS0183",
            f"{self.where} would have these columns twice: {', '.join(names)}",
            why="a record has each column once; only the key columns are merged into one.",
            hint=f'.rename({renames}) on one side, or suffixes=("_left", "_right").',
        )


@dataclass(frozen=True, eq=False)
class _StreamJoin(_Join):
    """A join of two streams by event time, as Spark does it natively."""

    right: Step

    def _check(self) -> None:
        super()._check()
        for side, stream in (("left", self.left), ("right", self.right)):
            if not event_times_before(stream):
                raise PlanError(
                    "LS0181",
                    f'the {side} stream of {self.where}, "{stream.id}", has no event time',
                    why="records wait for their partner until event time has passed, on both sides.",
                    hint='.event_time("at", out_of_order="5 seconds") on both streams before the join.',
                )

    @property
    def inputs(self) -> tuple[Step, ...]:
        """Left, then right."""
        return (self.left, self.right)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right stream."""
        return self.right.columns

    @property
    def right_where(self) -> str:
        """The right stream."""
        return f'right stream "{self.right.id}"'

    @property
    def output_mode(self) -> OutputMode | None:
        """A pair is final: Spark joins streams in append mode."""
        return "append"


@dataclass(frozen=True, eq=False)
class IntervalJoin(_StreamJoin):
    """Pairs whose right record happened between ``lower_us`` and ``upper_us`` after the left one, both included."""

    stateful = True
    runs_python = False
    lower_us: int
    upper_us: int

    def _check(self) -> None:
        super()._check()
        if self.lower_us > self.upper_us:
            raise PlanError(
                "LS0182",
                f"{self.where} is between {signed_text(self.lower_us)} and {signed_text(self.upper_us)}",
                why="the first is later than the second: no record could match.",
                hint='between=("-5 minutes", "10 minutes"): the right record 5 minutes before to 10 minutes after.',
            )
        for bound in (self.lower_us, self.upper_us):
            if bound % BOUND_PRECISION_US:
                raise PlanError(
                    "LS0182",
                    f"{self.where} has a bound of {signed_text(bound)}",
                    why="event time moves on in milliseconds, and a bound cannot be finer.",
                    hint="give the bounds in whole milliseconds.",
                )


@dataclass(frozen=True, eq=False)
class WindowJoin(_StreamJoin):
    """Pairs that are in the same window of event time."""

    stateful = True
    runs_python = False
    between: ClassVar[tuple[str, ...]] = WINDOW_COLUMNS
    window: JoinWindow

    def _check(self) -> None:
        super()._check()
        check_join_window(self.window, self.where)


@dataclass(frozen=True, eq=False)
class TableJoin(_Join):
    """A stream with columns added from a table that is the same for the whole run. Keeps no state."""

    stateful = False
    runs_python = False
    table: TableSpec

    def _check(self) -> None:
        super()._check()
        self._check_how(get_args(TableJoinKind))
        self._check_key_types()

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The stream; the table is part of the step."""
        return (self.left,)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the table."""
        return self.table.schema.names

    @property
    def right_where(self) -> str:
        """The table."""
        return self.table.describe()

    @property
    def schema_hint(self) -> Schema | None:
        """Known if the stream's types are."""
        before = self.left.schema_hint
        if before is None:
            return None
        keys = [(name, before.type_of(name)) for name, _ in self.on]
        rest = [
            (one.name, (before if one.side == "left" else self.table.schema).type_of(one.column)) for one in self.joined
        ]
        return Schema(tuple(Field(name, kind) for name, kind in (*keys, *rest)))

    def _check_key_types(self) -> None:
        before = self.left.schema_hint
        for left, right in self.on if before is not None else ():
            assert before is not None
            check_key_types(self.where, (left, before.type_of(left)), (right, self.table.schema.type_of(right)))


@dataclass(frozen=True, eq=False)
class CoGroup(KeyedStep):
    """A Python function called with all records of both streams that share a key and a window, when it closes."""

    stateful = True
    runs_python = True
    window: JoinWindow
    function: Callable[..., Any]
    schema: Schema

    def _check(self) -> None:
        super()._check()
        check_join_window(self.window, self.where)
        check_names(self.schema.names, self.where)
        if not callable(self.function):
            raise PlanError(
                "LS0131",
                f"{self.where} was given {self.function!r}, not a function",
                hint='.apply(lambda key, left, right, window: [{"n": len(left)}], schema="n bigint")',
            )
        left, right = (tuple(name for name, _ in keys or ()) for keys in self.keys)
        if len(left) != len(right):
            raise PlanError(
                "LS0180",
                f"{self.where} groups by {len(left)} key columns on the left and {len(right)} on the right",
                why=f"left: {', '.join(left)}; right: {', '.join(right)}.",
                hint='a.key_by("user").co_group(b.key_by("user"))',
            )
        for stream in self.streams:
            if not event_times_before(stream):
                raise PlanError(
                    "LS0181",
                    f'the stream "{stream.id}" of {self.where} has no event time',
                    why="a window closes when event time has passed its end, on both streams.",
                    hint='.event_time("at", out_of_order="5 seconds") on both streams before .key_by(...).',
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the declared schema."""
        return self.schema.names

    @property
    def schema_hint(self) -> Schema | None:
        """The declared schema."""
        return self.schema


def check_join_window(window: object, where: str) -> None:
    """Refuse windows in which two streams cannot be brought together (LS0185)."""
    if isinstance(window, (Tumbling, Sliding)) and window.time == "event":
        return
    raise PlanError(
        "LS0185",
        f"{where} has a window that two streams cannot share: {window}",
        why="both streams must agree where a window begins and ends, by event time.",
        hint='ls.tumbling("1 minute") or ls.sliding("1 minute", every="10 seconds").',
    )


def check_key_types(where: str, left: tuple[str, str], right: tuple[str, str], *, exactly: bool = False) -> None:
    """Refuse keys (name, type) of types that only a failing cast could bring together (LS0184)."""
    if left[1] == right[1] or (not exactly and _is_number(left[1]) and _is_number(right[1])):
        return
    raise PlanError(
        "LS0184",
        f'{where} compares "{left[0]}" ({left[1]}) with "{right[0]}" ({right[1]})',
        why="values of these types are never equal, or only after a conversion that may fail on a record.",
        hint=f'convert one side before the join: .with_columns({left[0]}=F.col("{left[0]}").cast("{right[1]}")).',
    )


def _is_number(type_text: str) -> bool:
    return type_text in ("tinyint", "smallint", "int", "bigint") or type_text.startswith("decimal(")


def signed_text(us: int) -> str:
    """A duration that may be negative, for people.

    >>> signed_text(-300_000_000), signed_text(0), signed_text(1000)
    ('-5 minutes', '0 seconds', '1 ms')
    """
    if us == 0:
        return "0 seconds"
    return f"-{duration_text(-us)}" if us < 0 else duration_text(us)


@updates_of.register
def _(step: TableJoin) -> Updates | None:
    """Where the join is by a column that changes, a new row may find no partner where the old one had found one."""
    found = updates_of(step.left)
    if found is None:
        return None
    keys = {left for left, _ in step.on}
    names = {**{name: name for name in keys}, **{one.name: one.column for one in step.joined if one.side == "left"}}
    hides = step.how == "inner" and not keys <= found.key and not found.taken_back
    # A row may find several in the table: what told rows apart does so no longer.
    return replace(found.renamed(names), hidden_by=found.hidden_by or (step if hides else None), identity=None)


@pairs_records.register(IntervalJoin)
@pairs_records.register(WindowJoin)
@pairs_records.register(CoGroup)
def _(step: Step) -> bool:  # noqa: ARG001
    """Pairs with a result that was replaced would stay among the pairs."""
    return True
