"""Printing epochs. At least once: a crash between printing and noting it down prints the epoch again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.formats import json_values
from lockstep.connect.protocols import Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.publication_memory import PublicationMemory, comparable
from lockstep.connect.specs import ConsoleSink
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

LEASE_S = 10.0
_POLL_S = 0.02
_CELL_CHARACTERS_MAX = 40


class ConsoleSinkSide:
    """The working side of :func:`lockstep.connect.specs.console`."""

    def __init__(self, spec: ConsoleSink, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._sink = sink_id
        self._name = f"console:{sink_id}"
        self._printed = PublicationMemory(self._name, place)
        self._stage = ArrowStage(place, sink_id)
        self._clock = clock

    def open(self, schema: pa.Schema) -> None:
        """Remember the columns for the workers that stage rows."""
        self._stage.open(schema)

    def last_published(self) -> int | None:
        """The newest printed epoch."""
        return self._printed.last()

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``. Of an epoch printed long ago only that is known: its digest is empty."""
        return self._printed.find(epoch)

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """An Arrow file beside the store."""
        return self._stage.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Print unless it was printed. The lease keeps two replicas from printing at the same time."""
        store = self._printed.store
        deadline_s = time.monotonic() + 3 * LEASE_S
        while (held := self.publication(wanted.epoch)) is None and not store.acquire(self._name, str(holder), LEASE_S):
            if time.monotonic() > deadline_s:
                raise ConnectError("LS0511", f"{store.holder(self._name)} has been printing for {3 * LEASE_S:.0f} s")
            time.sleep(_POLL_S)
        try:
            held = held or self.publication(wanted.epoch) or self._print(wanted, output)
        finally:
            store.release(self._name, str(holder))
            self._stage.remove(output)
        return comparable(held, wanted)

    def rows(self, epoch: int) -> pa.Table | None:
        """Always None: a console cannot be read back."""
        del epoch
        return None

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._stage.sweep(dead)

    def close(self) -> None:
        """Close the store if it was opened."""
        self._printed.close()

    def _print(self, wanted: Publication, output: Output) -> Publication:
        shown = self._stage.first_rows(output, self._spec.rows_max)
        _to_stdout(text_table(f"{self._sink}, epoch {wanted.epoch}", shown, wanted.rows))
        return self._printed.put(wanted, self._clock)[0]


def _to_stdout(text: str) -> None:
    """Print, or write to the replica's log if whoever read the output is gone: that is no reason to end.

    The terminal or the pipe is that of the `lockstep run` that started this replica, which may outlive it.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        print(f"standard output is gone ({error}): from now on rows are printed here", file=sys.stderr, flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        # What could not be written is still in the buffer, if there is one.
        sys.stdout.write(text if getattr(sys.stdout, "write_through", False) else "")
        sys.stdout.flush()


def text_table(title: str, shown: pa.Table, rows: int) -> str:
    """A title and the rows under their names, in columns; nothing at all for an epoch without rows.

    >>> print(text_table("alerts, epoch 7", pa.table({"user": ["ann", "bob"], "n": [5, None]}), 3), end="")
    -- alerts, epoch 7: 3 rows
    user  n
    ann   5
    bob   null
    ... 1 more
    """
    if rows == 0:
        return ""
    columns = [[name, *map(_cell, json_values(shown[name]))] for name in shown.column_names]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in zip(*columns, strict=True)
    ]
    more = [f"... {rows - shown.num_rows} more"] if rows > shown.num_rows else []
    return "\n".join([f"-- {title}: {rows} rows", *lines, *more]) + "\n"


def _cell(value: object) -> str:
    text = "null" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"
