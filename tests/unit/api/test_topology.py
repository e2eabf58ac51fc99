"""Topologies become jobs: components are steps, groupings are keys; what does not fit is refused with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lockstep as ls
from lockstep.api.loading import load_job
from lockstep.errors import LockstepError, PlanError
from lockstep.plan.bolts import BoltStep
from lockstep.plan.draw import draw, words


class Split(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        for word in tuple.line.split():
            collector.emit([word])


def _lines() -> Any:
    return ls.journal("lines", schema="line string, at timestamp")


def _topology() -> ls.Topology:
    topology = ls.Topology("words")
    topology.spout("lines", _lines())
    return topology


def _bolt(topology: ls.Topology, name: str) -> BoltStep:
    step = next(step for step in topology.job().graph().steps if step.id == name)
    assert isinstance(step, BoltStep)
    return step


def _refused(topology: ls.Topology) -> LockstepError:
    with pytest.raises(LockstepError) as refused:
        topology.job()
    return refused.value


@pytest.mark.parametrize(
    ("grouping", "key"),
    [
        (lambda bolt: bolt.shuffle("lines"), "CAST(pmod(position_hash(), 4) AS int)"),
        (lambda bolt: bolt.none("lines"), "CAST(pmod(position_hash(), 4) AS int)"),
        (lambda bolt: bolt.local_or_shuffle("lines"), "CAST(pmod(position_hash(), 4) AS int)"),
        (lambda bolt: bolt.fields("lines", "line"), "CAST(pmod(xxhash64(line), 4) AS int)"),
        (lambda bolt: bolt.global_("lines"), "0"),
        (lambda bolt: bolt.all("lines"), "task"),
    ],
)
def test_a_grouping_says_which_task_gets_a_tuple(grouping: Any, key: str) -> None:
    topology = _topology()
    grouping(topology.bolt("split", Split(), fields="word string"))
    topology.sink("split", ls.files("out"))
    (keys,) = _bolt(topology, "split").keys
    assert keys is not None
    assert [(name, str(value)) for name, value in keys] == [("task", key)]


def test_a_bolt_may_read_several_components_in_any_order_of_declaration() -> None:
    topology = _topology()
    topology.sink("last", ls.files("out"))
    topology.bolt("last", Split(), fields="word string", tasks=2).shuffle("split").global_("lines")
    topology.bolt("split", Split(), fields="line string").shuffle("lines")
    step = _bolt(topology, "last")
    assert words(step) == "bolt Split, 2 tasks, shuffle of split, global of lines: word string"
    assert [before.id for before in step.inputs] == ["split", "lines"]


def test_further_streams_are_read_and_published_by_name() -> None:
    topology = _topology()
    topology.bolt("split", Split(), fields="word string", streams={"errors": "line string"}).shuffle("lines")
    topology.bolt("fix", Split(), fields="word string").shuffle("split", stream="errors")
    topology.sink("split", ls.files("errors"), stream="errors")
    topology.to("fix", ls.files("fixed"))
    assert [step.id for step in topology.job().graph().steps if "split" in step.id] == ["split", "split_errors"]
    assert "shuffle of split.errors" in draw(topology.job().graph(), width=200)


def test_a_direct_stream_carries_the_number_of_the_task_but_not_into_a_sink() -> None:
    topology = _topology()
    topology.bolt("deal", Split(), fields="task string").shuffle("lines")
    topology.bolt("take", Split(), fields="word string", tasks=3).direct("deal")
    topology.sink("deal", ls.files("out"))
    topology.sink("take", ls.files("taken"))
    step = _bolt(topology, "deal")
    assert step.columns == ("task", "task_")
    assert (step.emits[0].tasks_max, step.neighbours) == (3, (("take", 3),))
    assert topology.job().graph().sinks[0].columns == ("task",)


def test_windows_on_storms_terms_are_windows_of_each_task() -> None:
    topology = _topology()
    topology.spout("timed", ls.journal("timed", schema="line string, at timestamp"), event_time="at")
    topology.bolt("counts", Split(), fields="word string").shuffle("lines").window(100, every=10)
    topology.bolt("epochs", Split(), fields="word string").shuffle("lines").window("1 minute")
    topology.bolt("times", Split(), fields="word string").shuffle("timed").window("1 minute", every="10 seconds")
    for name in ("counts", "epochs", "times"):
        topology.sink(name, ls.files(name))
    drawn = {step.id: words(step) for step in topology.job().graph().steps}
    assert "count 100 every 10" in drawn["counts_window"]
    assert "tumbling 1 minute of processing time" in drawn["epochs_window"]
    assert "sliding 1 minute every 10 seconds" in drawn["times_window"]
    assert drawn["counts"] == "select word"


def test_a_job_file_may_hold_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(
        "import lockstep as ls\n"
        "t = ls.Topology('words', replicas=3)\n"
        "t.spout('lines', ls.journal('lines', schema='line string'))\n"
        "t.sink('lines', ls.files('out'))\n"
        "job = t.job()\n"
    )
    loaded = load_job(str(file))
    assert (loaded.job.name, dict(loaded.job.options)) == ("words", {"replicas": 3})
    file.write_text(file.read_text().replace("job = t.job()", ""))
    assert load_job(f"{file}:t").job.name == "words"


def test_a_component_is_there_once() -> None:
    topology = _topology()
    with pytest.raises(PlanError, match="LS0190"):
        topology.bolt("lines", Split(), fields="word string")


@pytest.mark.parametrize("bolt", [Split, ls.Bolt(), "split", print])
def test_a_bolt_is_an_object_with_execute(bolt: Any) -> None:
    with pytest.raises(PlanError, match="LS0191"):
        _topology().bolt("split", bolt, fields="word string")


def test_a_bolt_declares_its_fields_and_a_program_may_too() -> None:
    topology = _topology()
    with pytest.raises(PlanError, match=r"LS0191.*declares no fields"):
        topology.bolt("split", Split())
    topology.bolt("external", ls.program(["split"], fields="word string")).shuffle("lines")
    topology.sink("external", ls.files("out"))
    assert _bolt(topology, "external").columns == ("word",)


@pytest.mark.parametrize("command", ["split", [], [""], ["split", 3]])
def test_a_program_is_a_list_of_texts(command: Any) -> None:
    with pytest.raises(PlanError, match="LS0191"):
        ls.program(command)


@pytest.mark.parametrize(
    "settings",
    [{"tasks": 0}, {"tasks": True}, {"tasks": 5000}, {"tick_every": "0 s"}, {"retries": -1}, {"retries": 101}],
)
def test_settings_of_a_bolt_have_limits(settings: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="LS0195"):
        _topology().bolt("split", Split(), fields="word string", **settings)


def test_parallelism_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(PlanError, match="LS0195") as refused:
        _topology().bolt("split", Split(), fields="word string", parallelism=8)
    assert "tasks=8" in refused.value.hint
    assert "lockstep rescale JOB --partitions 8" in refused.value.hint


@pytest.mark.parametrize(
    ("retries", "told"),
    [(3, ""), (0, ", no replays"), (1, ", replays what fails once"), (7, ", replays what fails 7 times")],
)
def test_a_drawing_tells_how_often_a_tuple_is_replayed(retries: int, told: str) -> None:
    topology = _topology()
    topology.bolt("split", Split(), fields="word string", retries=retries).shuffle("lines")
    topology.sink("split", ls.files("out"))
    assert words(_bolt(topology, "split")) == f"bolt Split, 4 tasks, shuffle of lines{told}: word string"


def test_a_bolt_without_input_is_refused() -> None:
    topology = _topology()
    topology.bolt("split", Split(), fields="word string")
    assert _refused(topology).code == "LS0192"


def test_a_circle_is_refused_with_the_way_round() -> None:
    topology = _topology()
    topology.bolt("one", Split(), fields="line string").shuffle("lines").shuffle("two")
    topology.bolt("two", Split(), fields="line string").shuffle("one")
    error = _refused(topology)
    assert (error.code, "one -> two -> one" in error.fact) == ("LS0193", True)


@pytest.mark.parametrize(
    ("grouping", "code", "hint"),
    [
        (lambda bolt: bolt.shuffle("line"), "LS0190", 'did you mean "lines"?'),
        (lambda bolt: bolt.shuffle("lines", stream="errors"), "LS0194", "streams="),
        (lambda bolt: bolt.fields("lines", "word"), "LS0107", ""),
        (lambda bolt: bolt.direct("lines"), "LS0194", ".shuffle("),
        (lambda bolt: bolt.shuffle("lines").shuffle("lines").window(3), "LS0196", "unite"),
    ],
)
def test_a_grouping_that_does_not_fit_is_refused(grouping: Any, code: str, hint: str) -> None:
    topology = _topology()
    grouping(topology.bolt("split", Split(), fields="word string"))
    error = _refused(topology)
    assert (error.code, hint in error.hint) == (code, True), error


def test_windows_of_a_bolt_are_checked() -> None:
    topology = _topology()
    with pytest.raises(PlanError, match="LS0194"):
        topology.bolt("a", Split(), fields="word string").fields("lines")
    with pytest.raises(PlanError, match="LS0196"):
        topology.bolt("b", Split(), fields="word string").window(10, every="1 second")
    with pytest.raises(PlanError, match=r"LS0196.*ticks"):
        topology.bolt("c", Split(), fields="word string", tick_every="1 s").window(10)
    with pytest.raises(PlanError, match=r"LS0196.*retries="):
        topology.bolt("e", Split(), fields="word string", retries=1).window(10)
    programs = _topology()
    programs.bolt("d", ls.program(["d"]), fields="word string").shuffle("lines").window(10)
    assert "is a program" in _refused(programs).fact


def test_an_unknown_component_of_a_sink_is_refused() -> None:
    topology = _topology()
    topology.sink("split", ls.files("out"))
    assert _refused(topology).code == "LS0190"
