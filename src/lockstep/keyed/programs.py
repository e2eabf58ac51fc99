"""Bolts that are programs of their own: tuples as JSON lines on their standard input, answers on their output."""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from lockstep.errors import FunctionError
from lockstep.keyed.bolts import Bolt, BoltTuple, Collector
from lockstep.plan.bolts import DEFAULT_STREAM, BoltOutput
from lockstep.store.arrow import arrow_schema
from lockstep.store.values import NumberText, Unfit, converter

_READ_BYTES = 1 << 16
_END_S = 2.0
_PROTOCOL = 'a program answers with lines {"emit": [...]} and, last, {"done": id}; see docs/guide/topologies.md.'


@dataclass(frozen=True)
class Program:
    """A program that is a bolt: what to start, and how long one tuple may take it."""

    command: tuple[str, ...]
    timeout_us: int
    fields: str | None = None


class ProgramBolt(Bolt):
    """Hands each tuple to a program, which is started once in every worker process, and takes its answers."""

    def __init__(self, step: str, program: Program, emits: tuple[BoltOutput, ...]) -> None:
        self.step = step
        self.program = program
        self.emits = emits

    def execute(self, tuple: BoltTuple, collector: Collector) -> None:
        """Ask the program."""
        told = {"source": tuple.source, "stream": tuple.stream, "fields": tuple.asdict(), "time": tuple.time}
        self._ask(told, collector, tuple)

    def tick(self, collector: Collector) -> None:
        """Tell the program."""
        self._ask({"tick": True}, collector, None)

    def _ask(self, message: dict[str, Any], collector: Collector, received: BoltTuple | None) -> None:
        running = _running(self.step, self.program)
        try:
            for answer in running.ask(message):
                self._take(answer, collector, received)
        except BaseException:
            # Whatever it was about to say belongs to a tuple that is given up.
            running.stop()
            raise

    def _take(self, answer: dict[str, Any], collector: Collector, received: BoltTuple | None) -> None:
        if "emit" in answer:
            stream = str(answer.get("stream", DEFAULT_STREAM))
            values = self._values(stream, answer["emit"])
            if "task" in answer:
                collector.emit_direct(_whole(answer["task"]), values, stream=stream)
            else:
                collector.emit(values, stream=stream)
        elif "fail" in answer:
            collector.fail(received, str(answer["fail"]))
        elif not answer.keys() & {"log", "done"}:
            raise _wrong(self.step, self.program, f"it answered {json.dumps(answer, default=str)}", _PROTOCOL)

    def _values(self, stream: str, values: Any) -> Any:
        """What JSON has no form for, as the fields' types want it: times and decimals are texts there."""
        output = next((one for one in self.emits if one.stream == stream), None)
        if output is None:
            return values
        schema = arrow_schema(output.schema)
        named = values if isinstance(values, dict) else dict(zip(schema.names, values, strict=False))
        try:
            made = {
                name: converter(schema.field(name).type)(value) if name in schema.names else value
                for name, value in named.items()
            }
        except Unfit as error:
            raise FunctionError(
                "LS0303", f'bolt "{self.step}" emitted a value that does not fit its fields', why=str(error)
            ) from None
        return made if isinstance(values, dict) or len(values) != len(schema.names) else tuple(made.values())


class _Running:
    """A started program, and the conversation with it: one tuple at a time."""

    def __init__(self, step: str, program: Program) -> None:
        self._step = step
        self._program = program
        self._next_id = 0
        self._rest = b""
        try:
            self._process = subprocess.Popen(program.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise _wrong(
                step, program, f"it could not be started: {error}", "the command has to be on every host."
            ) from None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def _out(self) -> Any:
        return self._process.stdout

    def ask(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a tuple, and give what is answered up to the line that says it is done."""
        self._next_id += 1
        deadline_s = time.monotonic() + self._program.timeout_us / 1e6
        line = json.dumps({"id": self._next_id, "component": self._step, **message}, default=_json_value)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        while True:
            answer = self._answer(deadline_s)
            yield answer
            if "done" in answer:
                if _whole(answer["done"]) != self._next_id:
                    raise _wrong(
                        self._step, self._program, f"it is done with {answer['done']}, not {self._next_id}", _PROTOCOL
                    )
                return

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            if not self._selector.select(max(0.0, deadline_s - time.monotonic())):
                seconds = self._program.timeout_us / 1e6
                raise _wrong(
                    self._step,
                    self._program,
                    f"it has not answered within {seconds:g} seconds",
                    'ls.program(..., timeout="1 minute"), and a program that flushes its output after each line.',
                )
            read = os.read(self._out.fileno(), _READ_BYTES)
            if not read:
                raise self._ended()
            self._rest += read
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            answer = json.loads(line, parse_float=NumberText, parse_int=NumberText)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise _wrong(
                self._step, self._program, f"it wrote a line that is no JSON object: {line[:200]!r}", _PROTOCOL
            )
        return answer

    def _ended(self) -> FunctionError:
        try:
            code: object = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = "none yet"
        return _wrong(
            self._step,
            self._program,
            f"it ended while it had a tuple (exit code {code})",
            "what it wrote to its standard error is in the replica's log.",
        )

    def stop(self) -> None:
        """End it: its input is closed, and if that does not end it, it is killed."""
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # What was still to be written has nobody to read it.
        try:
            self._process.wait(0.1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        _RUNNING.pop((self._step, self._program), None)


_RUNNING: dict[tuple[str, Program], _Running] = {}
"""The programs of this worker process. Their input ends with the process, and so do they."""


def _running(step: str, program: Program) -> _Running:
    found = _RUNNING.get((step, program))
    if found is None or not found.alive:
        found = _RUNNING[step, program] = _Running(step, program)
    return found


def _wrong(step: str, program: Program, fact: str, hint: str) -> FunctionError:
    return FunctionError(
        "LS0323",
        f'the program of bolt "{step}": {fact}',
        why=f"the program is: {' '.join(program.command)}.",
        hint=hint,
    )


def _whole(value: Any) -> Any:
    return int(value.text) if isinstance(value, NumberText) and value.text.lstrip("-").isdigit() else value


def _json_value(value: Any) -> Any:
    """What JSON has no form for, as `lockstep put` reads it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else repr(value)
