"""Names in a query: which stream a table means, and which column of it a name means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from lockstep.api.sql.locations import QueryText
from lockstep.api.stream import Stream
from lockstep.errors import ExpressionError
from lockstep.plan.determinism import refuse, refused
from lockstep.plan.schema import did_you_mean


@dataclass(frozen=True)
class Named:
    """A table of a FROM clause: its name, and its columns (name in the query -> column of the stream)."""

    name: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Resolved:
    """A column of the stream, and the fields of a struct that are read from it."""

    column: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scope:
    """What the names of one SELECT mean: the stream its FROM gives, under the names of its tables."""

    query: QueryText
    stream: Stream
    tables: tuple[Named, ...]
    epoch_column: str | None = None
    """The column that holds the epoch time, if the query asks for it."""

    def find(self, column: exp.Column) -> Resolved | None:
        """The column that a name means, None if there is none; LS0232 if it might be several."""
        parts = [part.name for part in column.parts]
        table = self._table(parts[0]) if len(parts) > 1 else None
        if table is not None and (name := _matching(parts[1], table.columns)) is not None:
            return Resolved(table.columns[name], tuple(parts[2:]))
        found = {
            table.columns[name]: table
            for table in self.tables
            if (name := _matching(parts[0], table.columns)) is not None
        }
        if len(found) > 1:
            raise self.query.error(
                "LS0232",
                f'"{parts[0]}" is a column of several tables',
                column,
                why=f"of: {', '.join(table.name for table in found.values())}.",
                hint=" or ".join(f"{table.name}.{parts[0]}" for table in found.values()) + ".",
            )
        return Resolved(next(iter(found)), tuple(parts[1:])) if found else None

    def require(self, column: exp.Column, others: Iterable[str] = ()) -> Resolved:
        """The column that a name means; LS0232 if there is none. ``others`` are names that would do as well."""
        found = self.find(column)
        if found is None:
            raise self.unknown(column, others)
        return found

    def unknown(self, column: exp.Column, others: Iterable[str] = ()) -> ExpressionError:
        """The error for a name that is no column; words such as ``current_date`` are functions without parentheses."""
        parts = [part.name for part in column.parts]
        refusal = refuse(parts[0], 0) if len(parts) == 1 else None
        if refusal is not None:
            return refused_here(self.query, column, parts[0], refused(parts[0], refusal, "a query"))
        table = self._table(parts[0]) if len(parts) > 1 else None
        wanted, tables = (parts[1], (table,)) if table is not None else (parts[0], self.tables)
        known = [name for one in tables for name in one.columns]
        text = f"if a text is meant: '{wanted}'."
        if wanted.lower() in ("window", "session_window", "window_start", "window_end"):
            text = "GROUP BY ..., window(at, '1 minute')."
        return self.query.error(
            "LS0232",
            f'unknown column "{".".join(parts)}"',
            column,
            why="\n".join(f"{one.name} has: {', '.join(one.columns)}." for one in tables),
            hint=did_you_mean(wanted, [*known, *others]) or text,
        )

    def star(self, star: exp.Expression) -> list[tuple[str, str]]:
        """The columns that ``*`` or ``logins.*`` stands for: (name, column of the stream)."""
        tables = self.tables
        if isinstance(star, exp.Column):
            table = self._table(star.table)
            if table is None:
                names = [one.name for one in self.tables]
                raise self.query.error(
                    "LS0231", f'unknown table "{star.table}"', star, hint=did_you_mean(star.table, names)
                )
            tables = (table,)
        # A key that a join has merged into one column stands for both, and is there once.
        columns: dict[str, str] = {}
        for name, column in (pair for table in tables for pair in table.columns.items()):
            columns.setdefault(column, name)
        return [(name, column) for column, name in columns.items()]

    def _table(self, name: str) -> Named | None:
        return next((table for table in self.tables if table.name.lower() == name.lower()), None)


_IN_SQL = dict.fromkeys(("explode", "explode_outer"), "FROM ... LATERAL VIEW explode(tags) t AS tag.")


def refused_here(query: QueryText, place: exp.Expression, name: str, error: ExpressionError) -> ExpressionError:
    """The refusal of a function, at its place in the query and with what to write in SQL."""
    hint = re.sub(r"F\.lit\((\d+)\)", r"\1", error.hint.replace("F.col(...)", "user").replace("ls.epoch", "epoch"))
    hint = _IN_SQL.get(name) or hint.replace("F.", "")
    return query.error(error.code, error.fact.replace(name, f"{name}()", 1), place, why=error.why, hint=hint)


def _matching(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant: as it is written, else without regard to case."""
    names = list(known)
    if name in names:
        return name
    return next((one for one in names if one.lower() == name.lower()), None)


def stream_named(name: str, given: Mapping[str, Stream]) -> Stream | None:
    """The stream of that name among ``given``, without regard to case if need be."""
    found = _matching(name, given)
    return None if found is None else given[found]
