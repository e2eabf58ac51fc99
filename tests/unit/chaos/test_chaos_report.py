"""The report and the figures of a run that is made up."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from lockstep.chaos.actions.load import GoQuiet
from lockstep.chaos.actions.processes import KillJvm
from lockstep.chaos.checking import Verdict
from lockstep.chaos.command import Order, as_data, costs
from lockstep.chaos.figures import steady
from lockstep.chaos.picture import draw
from lockstep.chaos.planner import Planned
from lockstep.chaos.report import report_html
from lockstep.chaos.run import Outcome, Wish
from lockstep.chaos.runner import Doing
from lockstep.chaos.subject import load_subject
from lockstep.chaos.timeline import Line
from lockstep.chaos.vocabulary import Deed
from lockstep.chaos.watching import SeenEpoch, Span

S = 1_000_000


def seen(epoch: int, at_s: float, latency_s: float) -> SeenEpoch:
    return SeenEpoch(epoch, round(at_s * S), round((at_s - latency_s) * S), 3, "r0.1")


def outcome_of(tmp_path: Path) -> Outcome:
    """Ten undisturbed seconds, a kill at 10 s that costs 1.5 s, and nothing special afterwards."""
    steps = [seen(number, number * 0.2, 0.1) for number in range(50)]
    steps += [seen(50, 11.4, 1.5), *(seen(51 + number, 11.6 + number * 0.2, 0.1) for number in range(40))]
    killed = Doing(
        Planned(1, 0.0, "kill-jvm", "4/1"),
        KillJvm(),
        Deed("kill -9 of r1's <JVM>", replica="r1", data={"pids": [7]}),
        begun_us=10 * S,
        struck_us=10 * S,
        undone_us=10 * S,
        over_us=15 * S,
    )
    left_out = Doing(Planned(2, 9.0, "go-quiet", "4/2"), GoQuiet(), skipped="no time was left")
    wish = Wish(load_subject(None, None), [KillJvm(), GoQuiet()], 4, 60.0, 2, 100.0, tmp_path)
    return Outcome(
        wish=wish,
        usual=steady(steps, 0, 10 * S),
        begun_us=10 * S,
        first_us=0,
        end_us=19 * S,
        doings=[killed, left_out],
        lines=[Line(0.0, "action", "1. kill-jvm: kill -9 of r1's <JVM>")],
        seen_epochs=steps,
        spans=[Span("r0", 0, 19 * S), Span("r1", 0, 10 * S), Span("r1", 15 * S, 19 * S)],
        verdicts=[Verdict("output", "all rows")],
        comparisons=[],
        acknowledged={"shared": 900},
        took_s=30.0,
        folder=tmp_path,
    )


def test_an_action_is_charged_with_the_gap_and_the_latency_around_it(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path)
    cost = costs(outcome)[1]
    assert round(cost.gap_max_s, 2) == 1.6
    assert round(cost.latency_max_s, 2) == 1.5
    assert round(cost.normal_after_s, 2) == 1.4
    data = as_data(outcome, "again")
    assert data["passed"]
    assert data["actions"][0]["recovered_after_s"] == 5.0
    assert data["actions"][1] == {"number": 2, "action": "go-quiet", "left_out": "no time was left"}


def test_the_report_is_whole_and_safe_to_open(tmp_path: Path) -> None:
    page = report_html(outcome_of(tmp_path), costs(outcome_of(tmp_path)), "lockstep chaos run --seed 4")
    assert "every check passed" in page and "lockstep chaos run --seed 4" in page
    assert "kill -9 of r1&#x27;s &lt;JVM&gt;" in page and "<JVM>" not in page
    assert "left out: no time was left" in page
    assert not re.search(r'(src|href)="(?!#)', page), "it loads nothing"


def test_a_failed_check_is_the_first_thing_that_is_read(tmp_path: Path) -> None:
    outcome = replace(outcome_of(tmp_path), verdicts=[Verdict("order", "epochs", ("order: epoch 6 came after 4",))])
    page = report_html(outcome, costs(outcome), "again")
    assert "Failed: order" in page and "order: epoch 6 came after 4" in page
    assert not outcome.passed


def test_a_run_in_which_nothing_was_seen_can_still_be_drawn(tmp_path: Path) -> None:
    outcome = replace(outcome_of(tmp_path), seen_epochs=[], doings=[], spans=[], usual=steady([], 0, 1))
    ElementTree.fromstring(draw(outcome))


def test_the_command_to_run_it_again_names_everything_that_was_given(tmp_path: Path) -> None:
    order = Order(
        job="my job.py",
        project=tmp_path,
        seed=3,
        minutes=0.5,
        replicas=3,
        rate=50.0,
        only=("kill-jvm",),
        reference=Path("answers.py"),
        report=tmp_path / "r.html",
        keep=False,
        as_json=False,
    )
    assert order.command() == (
        f"lockstep --project {tmp_path} chaos run --seed 3 --minutes 0.5 --replicas 3 --rate 50 --only kill-jvm "
        "--reference answers.py 'my job.py'"
    )
    assert replace(order, project=Path.cwd()).command().startswith("lockstep chaos run")
