"""Runs a job of Lockstep, and beside it fills its journals from the folders of the input.

``python -m benchmarks.engines.adapters.lockstep_journal WORKLOAD COMMAND...``, in the folder of a measurement. Each
file becomes one append, under its name: one that was appended before a crash is not appended again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from benchmarks.engines.catalogue import workload as workload_named
from benchmarks.engines.contract import Input
from benchmarks.engines.input import INPUT
from lockstep.agent.processes import kill_tree
from lockstep.bench.stopping import Stop
from lockstep.config import STORE_FOLDER
from lockstep.connect.formats import json_lines_table
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.types import arrow_schema

_LOOK_S = 0.005
_STOP_TIMEOUT_S = 45.0


class Filler:
    """Appends the files of one source to its journal, in the order of their names."""

    def __init__(self, one: Input, folder: Path, journal: SqliteJournal) -> None:
        self._folder = folder / INPUT / one.source
        self._schema: pa.Schema = arrow_schema(parse_schema(one.schema))
        self._journal = journal
        self._last = ""

    def fill(self) -> None:
        """Append what is new."""
        for name in sorted(name for name in os.listdir(self._folder) if name > self._last):  # noqa: PTH208
            table = json_lines_table((self._folder / name).read_bytes(), self._schema, 1)
            self._journal.append_once(table, name)
            self._last = name


def run(name: str, command: list[str], stop: Stop) -> int:
    """Run the command until told to stop; its exit code if it ends by itself."""
    folder = Path.cwd()
    inputs = workload_named(name, quick=True).inputs
    journals = [open_journal(folder / STORE_FOLDER, one.source, parse_schema(one.schema)) for one in inputs]
    fillers = [Filler(one, folder, journal) for one, journal in zip(inputs, journals, strict=True)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        while process.poll() is None and not stop.wait(_LOOK_S):
            for filler in fillers:
                filler.fill()
    finally:
        code = _end(process)
        for journal in journals:
            journal.close()
    return code


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        return process.wait()


def main() -> None:
    """The process."""
    sys.exit(run(sys.argv[1], sys.argv[2:], Stop().on_signals()))


if __name__ == "__main__":
    main()
