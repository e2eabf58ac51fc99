"""What a sink has published, as rows, as an Arrow table, for pandas or for Polars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from lockstep.connect.reading import read
from lockstep.connect.remote.paths import is_remote, location
from lockstep.connect.specs import DeltaSink, FilesSink, PostgresSink, SqliteSink
from lockstep.errors import ConnectError, EnvironmentError_, RunError
from lockstep.plan.schema import did_you_mean
from lockstep.plan.specs import StageJournal

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.plan.graph import Graph
    from lockstep.plan.steps import Sink

ROWS_SHOWN_MAX = 20
"""Rows in the picture of a table: a notebook is for looking, and the rest is one call away."""
_NOTHING_YET = "LS0513"


class SinkRows(Sequence[dict[str, Any]]):
    """The rows that a sink had published when it was read, in epoch order. A notebook shows the first of them.

    >>> rows = SinkRows(pa.table({"user": ["ann", "bob"], "n": [1, 2]}))
    >>> rows
    <2 rows: user, n>
    >>> rows[0], len(rows), rows.arrow().num_rows
    ({'user': 'ann', 'n': 1}, 2, 2)
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table.

        >>> SinkRows(pa.table({"n": [1, 2]})).arrow().column("n").to_pylist()
        [1, 2]
        """
        return self._table

    def pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame of pandas.

        >>> SinkRows(pa.table({"n": [1, 2]})).pandas()["n"].sum()
        np.int64(3)
        """
        return self._table.to_pandas()

    def polars(self) -> Any:
        """The rows as a DataFrame of Polars. LS0025 where Polars is not installed.

        >>> SinkRows(pa.table({"n": [1, 2]})).polars()  # doctest: +SKIP
        """
        try:
            polars = import_module("polars")
        except ImportError as error:
            raise EnvironmentError_(
                "LS0025",
                "Polars is not installed",
                why=f"{error}.",
                hint="pip install polars, or take .arrow() or .pandas().",
            ) from None
        return polars.from_arrow(self._table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            rows: list[dict[str, Any]] = self._table.take(list(range(*index.indices(len(self))))).to_pylist()
            return rows
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} rows")
        row: dict[str, Any] = self._table.slice(index % len(self), 1).to_pylist()[0]
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches(max_chunksize=1000):
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        return f"<{len(self):,} rows: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        head = _html_row("th", self.columns)
        body = "".join(_html_row("td", row.values()) for row in self[:ROWS_SHOWN_MAX])
        more = f"<div>and {len(self) - ROWS_SHOWN_MAX:,} more rows</div>" if len(self) > ROWS_SHOWN_MAX else ""
        return f"<div><table><thead>{head}</thead><tbody>{body}</tbody></table>{more}</div>"


def _html_row(tag: str, values: Iterable[object]) -> str:
    cells = "".join(f'<{tag} style="text-align:left">{escape(str(value))}</{tag}>' for value in values)
    return f"<tr>{cells}</tr>"


def readable_sinks(graph: Graph) -> dict[str, Sink]:
    """A job's sinks by name, without the journals inside it."""
    return {sink.id: sink for sink in graph.sinks if not isinstance(sink.spec, StageJournal)}


def sink_rows(graph: Graph, name: str | None, project: Path, epochs: Iterable[int] | None) -> SinkRows:
    """What is published in a sink; no rows if nothing is yet."""
    sink = _chosen(readable_sinks(graph), name)
    try:
        return SinkRows(_table(sink, project, epochs))
    except ConnectError as error:
        if error.code != _NOTHING_YET:
            raise
        return SinkRows(pa.table({column: pa.nulls(0) for column in sink.columns}))


def _chosen(sinks: dict[str, Sink], name: str | None) -> Sink:
    if name is None and len(sinks) == 1:
        return next(iter(sinks.values()))
    if name is None or name not in sinks:
        raise RunError(
            "LS0642",
            f'the job has no sink "{name}"' if name is not None else f"the job has {len(sinks)} sinks",
            why=f"it has: {', '.join(sinks)}.",
            hint=did_you_mean(name, list(sinks)) if name is not None else "say which one.",
        )
    return sinks[name]


def _table(sink: Sink, project: Path, epochs: Iterable[int] | None) -> pa.Table:
    match sink.spec:
        case FilesSink(path=path):
            return read(path if is_remote(path) else str(location(path, project)), epochs)
        case DeltaSink(path=path):
            return read(project / path, epochs)
        case SqliteSink(path=path, table=table):
            return read(project / path, epochs, table=table)
        case PostgresSink(server=server, table=table):
            return read(server, epochs, table=table)
    raise RunError(
        "LS0696",
        f'what sink "{sink.id}" publishes cannot be read back',
        why=f"it is {sink.spec.describe()}.",
        hint=f'send the stream to a second sink: .to(ls.files("{sink.id}"), name="{sink.id}_rows").',
    )
