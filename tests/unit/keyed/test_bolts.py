"""Bolts without Spark: tuples, state, ticks, streams, failures, and programs that speak JSON lines."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lockstep as ls
from lockstep.errors import FunctionError
from lockstep.keyed import programs
from lockstep.keyed.operator import Arrival, Cell, Timer
from lockstep.keyed.programs import Program, ProgramBolt
from lockstep.keyed.tasks import BoltOperator
from lockstep.plan.bolts import BoltOutput, Subscription
from lockstep.plan.schema import parse_schema

NOW_US = 1_000_000


@dataclass
class FakeTurn:
    """A turn that keeps what an operator does."""

    key: tuple[Any, ...] = (0,)
    watermark_us: int | None = None
    epoch_time_us: int = NOW_US
    common: Cell = field(default_factory=Cell)
    emitted: list[tuple[int, tuple[Any, ...], int | None]] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)

    def emit(self, values: tuple[Any, ...], at_us: int | None = None, output: int = 0) -> None:
        self.emitted.append((output, values, at_us))

    def set_timer(self, timer: Timer) -> None:
        self.timers.append(timer)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.remove(timer)


def _operator(bolt: Any, *emits: BoltOutput, **settings: Any) -> BoltOperator:
    reads = (Subscription("lines", "default", "shuffle", ("word", "n")),)
    outputs = emits or (BoltOutput("default", parse_schema("word string, n bigint")),)
    made = BoltOperator("count", bolt, reads, outputs, 4, **settings)
    copied: BoltOperator = pickle.loads(pickle.dumps(made))
    return copied


def _run(operator: BoltOperator, *words: str, cell: Cell | None = None, turn: FakeTurn | None = None) -> FakeTurn:
    used = turn or FakeTurn()
    records = [Arrival(0, (word, number, "not a field"), number) for number, word in enumerate(words)]
    operator.on_records(cell or Cell(), records, used)
    return used


class Count(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        n = self.state[tuple.word] = self.state.get(tuple.word, 0) + 1
        collector.emit([tuple.word, n])
        collector.ack(tuple)


def test_a_bolt_keeps_its_state_and_emits_at_the_time_of_the_tuple() -> None:
    cell = Cell()
    operator = _operator(Count())
    assert _run(operator, "a", "b", "a", cell=cell).emitted == [(0, ("a", 1), 0), (0, ("b", 1), 1), (0, ("a", 2), 2)]
    assert (cell.data, cell.changed) == ({"a": 2, "b": 1}, True)
    assert _run(operator, "a", cell=Cell(cell.data)).emitted == [(0, ("a", 3), 0)]


class Look(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        seen = [tuple[0], tuple["n"], tuple.n, tuple.values, tuple.fields, tuple.source, tuple.stream, tuple.time]
        collector.emit({"word": repr(seen)})
        if tuple.word == "read":
            self.state.get("plain")
        if tuple.word == "append":
            self.state["list"].append(1)


def test_a_tuple_is_read_by_name_by_place_and_as_attribute() -> None:
    ((_, (text, n), _),) = _run(_operator(Look()), "x").emitted
    assert text == repr(["x", 0, 0, ("x", 0), ("word", "n"), "lines", "default", datetime(1970, 1, 1, tzinfo=UTC)])
    assert n is None


@pytest.mark.parametrize(("word", "changed"), [("nothing", False), ("read", False), ("append", True)])
def test_state_is_written_where_it_may_have_changed(word: str, changed: bool) -> None:
    cell = Cell({"plain": 1, "list": []})
    _run(_operator(Look()), word, cell=cell)
    assert cell.changed is changed


class Ticking(Count):
    def tick(self, collector: Any) -> None:
        for word in sorted(self.state):
            collector.emit([word, self.state[word]])


def test_ticks_come_at_multiples_of_their_interval_from_the_first_tuple_on() -> None:
    operator, cell = _operator(Ticking(), tick_us=300_000), Cell()
    turn = _run(operator, "a", "b", cell=cell)
    assert turn.timers == [Timer("epoch", 1_200_000, "tick")]
    later = FakeTurn(epoch_time_us=2_100_000)
    operator.on_timer(cell, turn.timers[0], later)
    assert later.emitted == [(0, ("a", 1), None), (0, ("b", 1), None)]
    assert later.timers == [Timer("epoch", 2_400_000, "tick")]


class Prepared(ls.Bolt):
    def prepare(self, context: Any) -> None:
        self.name = f"{context.component} {context.task}/{context.tasks}, next {context.tasks_of('next')}"

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit([self.name, 0])


def test_each_task_is_prepared_with_its_number() -> None:
    operator = _operator(Prepared(), neighbours=(("next", 2),))
    for task in (3, 1):
        assert _run(operator, "x", turn=FakeTurn((task,))).emitted == [(0, (f"count {task}/4, next 2", 0), 0)]


class Wrong(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit(["before", 1])
        match tuple.word:
            case "attribute":
                self.count = 1
            case "stream":
                collector.emit(["a", 1], stream="nowhere")
            case "fields":
                collector.emit(["a"])
            case "type":
                collector.emit(["a", "b"])
            case "direct":
                collector.emit_direct(0, ["a", 1])
            case "fail":
                collector.fail(tuple, "too short")
            case "raise":
                raise ValueError("no")
            case "anchors":
                collector.emit(["a", 1], anchors=[tuple])
            case "direct anchors":
                collector.emit_direct(0, ["a", 1], anchors=[tuple])
            case "ack another":
                collector.ack("a tuple of before")
            case "fail another":
                collector.fail("a tuple of before")
            case "ack, then fail":
                collector.ack(tuple)
                collector.fail(tuple)
            case "fail, then ack":
                collector.fail(tuple)
                collector.ack(tuple)


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("attribute", "LS0322", 'self.state["count"]'),
        ("stream", "LS0302", "streams="),
        ("fields", "LS0302", ""),
        ("type", "LS0303", ""),
        ("direct", "LS0324", "collector.emit(values)"),
        ("fail", "LS0321", ""),
        ("raise", "LS0301", ""),
        ("anchors", "LS0325", "leave anchors= out"),
        ("direct anchors", "LS0325", "leave anchors= out"),
        ("ack another", "LS0325", "self.state"),
        ("fail another", "LS0325", "self.state"),
        ("ack, then fail", "LS0325", ""),
        ("fail, then ack", "LS0325", ""),
    ],
)
def test_what_a_bolt_does_wrong_is_explained(word: str, code: str, words: str) -> None:
    with pytest.raises(FunctionError) as raised:
        _run(_operator(Wrong()), word)
    assert (raised.value.code, words in raised.value.hint) == (code, True), raised.value


LETTERS: list[tuple[str, str, dict[str, Any]]] = []


def _keep(key: str, step: str, facts: dict[str, Any]) -> None:
    LETTERS.append((key, step, facts))


def test_tuples_that_fail_are_set_aside_with_all_they_emitted() -> None:
    LETTERS.clear()
    turn = _run(_operator(Wrong(), dead_letters=_keep, skips=True), "fail", "raise", "fine")
    assert turn.emitted == [(0, ("before", 1), 2)]
    assert [(facts["source"], facts["offset"], facts["record"]) for _, _, facts in LETTERS] == [
        ("lines", 1, '{"n": 1, "word": "raise"}'),
        ("lines", 0, '{"n": 0, "word": "fail"}'),
    ]
    assert LETTERS[1][2]["error"] == 'bolt "count" failed a tuple 4 times: too short'
    again = [key for key, _, _ in LETTERS]
    LETTERS.clear()
    _run(_operator(Wrong(), dead_letters=_keep, skips=True), "fail", "raise", "fine")
    assert [key for key, _, _ in LETTERS] == again


def test_a_bolt_that_raises_ends_the_job_though_there_are_dead_letters() -> None:
    with pytest.raises(FunctionError, match="LS0301"):
        _run(_operator(Wrong(), dead_letters=_keep), "raise")


class Follow(ls.Bolt):
    """A letter can be handled when the one before it in the alphabet has been."""

    def execute(self, tuple: Any, collector: Any) -> None:
        self.state["tries"] = self.state.get("tries", 0) + 1
        collector.emit([tuple.word, tuple.n])
        if tuple.word != "a" and chr(ord(tuple.word) - 1) not in self.state:
            collector.fail(tuple, f"not before {tuple.word}")
            return
        self.state[tuple.word] = 1


@pytest.mark.parametrize(
    ("retries", "handled", "tries", "given_up"),
    [
        (0, "a", 4, "dcb"),
        (1, "ab", 7, "dc"),
        (2, "abc", 9, "d"),
        (3, "abcd", 10, ""),
        (9, "abcd", 10, ""),
    ],
)
def test_a_tuple_that_fails_is_replayed_after_the_others_so_many_times(
    retries: int, handled: str, tries: int, given_up: str
) -> None:
    LETTERS.clear()
    cell = Cell()
    turn = _run(_operator(Follow(), retries=retries, dead_letters=_keep), *"dcba", cell=cell)
    assert "".join(values[0] for _, values, _ in turn.emitted) == handled
    assert [values[1] == at_us for _, values, at_us in turn.emitted] == [True] * len(handled)
    assert (cell.data["tries"], [facts["record"][-3] for _, _, facts in LETTERS]) == (tries, list(given_up))
    assert [facts["offset"] for _, _, facts in LETTERS] == list(range(len(given_up)))


class FailingTick(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None: ...

    def tick(self, collector: Any) -> None:
        collector.fail(None, "a tick has no tuple")


def test_a_tick_that_fails_has_no_tuple_to_set_aside() -> None:
    with pytest.raises(FunctionError, match=r"LS0321.*failed a tick: a tick has no tuple"):
        _operator(FailingTick(), dead_letters=_keep).on_timer(Cell(), Timer("epoch", 0, "tick"), FakeTurn())


class Deal(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple.word == "plain":
            collector.emit([tuple.word])
        else:
            collector.emit_direct(int(tuple.word), {"word": tuple.word})
        collector.emit([tuple.n], stream="numbers")


def test_streams_and_direct_tuples_go_to_their_outputs() -> None:
    direct = BoltOutput("default", parse_schema("word string"), "task", 3)
    numbers = BoltOutput("numbers", parse_schema("n bigint"))
    operator = _operator(Deal(), direct, numbers)
    assert [list(schema.names) for schema in operator.outputs] == [["word", "task"], ["n"]]
    assert _run(operator, "2").emitted == [(0, ("2", 2), 0), (1, (0,), 0)]
    for word in ("plain", "3", "-1"):
        with pytest.raises(FunctionError, match="LS0324"):
            _run(operator, word)


SPLIT = """
import json, sys, time
for line in sys.stdin:
    given = json.loads(line)
    word = given.get("fields", {}).get("word", "tick")
    if word == "exit":
        sys.exit(3)
    if word == "sleep":
        time.sleep(5)
    if word == "noise":
        print("hello")
    if word == "fail":
        print(json.dumps({"fail": "no such word"}))
    for number, part in enumerate(word.split()):
        print(json.dumps({"emit": {"word": part, "at": "2026-01-01T00:00:00Z", "d": "1.50"}}))
    print(json.dumps({"done": given["id"] if word != "other" else -1}), flush=True)
"""
TIMED = BoltOutput("default", parse_schema("word string, at timestamp, d decimal(5,2)"))


@pytest.fixture
def script(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "split.py"
    path.write_text(SPLIT)
    yield str(path)
    for running in list(programs._RUNNING.values()):
        running.stop()


def _program(script: str, timeout_us: int = 10_000_000) -> BoltOperator:
    program = Program((sys.executable, script), timeout_us)
    return _operator(ProgramBolt("count", program, (TIMED,)), TIMED, tick_us=1_000_000)


def test_a_program_answers_with_tuples_and_is_started_once(script: str) -> None:
    operator = _program(script)
    turn = _run(operator, "a b", "c")
    assert [values[0] for _, values, _ in turn.emitted] == ["a", "b", "c"]
    assert len(programs._RUNNING) == 1
    (running,) = programs._RUNNING.values()
    _run(operator, "d", turn=FakeTurn((1,)))
    assert list(programs._RUNNING.values()) == [running]
    operator.on_timer(Cell(), Timer("epoch", 0, "tick"), turn)
    assert turn.emitted[-1][1][0] == "tick"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("exit", "it ended while it had a tuple (exit code 3)"),
        ("sleep", "it has not answered within 0.3 seconds"),
        ("noise", "a line that is no JSON object: b'hello'"),
        ("other", "it is done with"),
    ],
)
def test_a_program_that_does_not_do_as_agreed_is_ended(script: str, word: str, words: str) -> None:
    operator = _program(script, 300_000 if word == "sleep" else 10_000_000)
    with pytest.raises(FunctionError) as raised:
        _run(operator, word)
    assert (raised.value.code, words in raised.value.fact) == ("LS0323", True), raised.value
    assert not programs._RUNNING


def test_a_program_may_fail_a_tuple_and_goes_on(script: str) -> None:
    LETTERS.clear()
    program = Program((sys.executable, script), 10_000_000)
    operator = _operator(ProgramBolt("count", program, (TIMED,)), TIMED, dead_letters=_keep)
    assert [values[0] for _, values, _ in _run(operator, "fail", "b").emitted] == ["b"]
    assert [facts["error"] for _, _, facts in LETTERS] == ['bolt "count" failed a tuple 4 times: no such word']


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(FunctionError, match=r"LS0323.*could not be started"):
        _run(_program_named("no-such-program"), "a")


def _program_named(name: str) -> BoltOperator:
    return _operator(ProgramBolt("count", Program((name,), 1_000_000), (TIMED,)), TIMED)
