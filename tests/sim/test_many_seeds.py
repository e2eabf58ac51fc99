"""Exploring seeds: the first failure is found, made smaller, and can be run again from what is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import psutil
import pytest
from typer.testing import CliRunner

from lockstep.cli.main import app
from lockstep.errors import EnvironmentError_
from lockstep.sim.many_seeds import Wish, explore
from lockstep.sim.one_seed import Failure
from lockstep.sim.scenario import random_scenario
from lockstep.sim.shrinking import changes, shrink


def lockstep(*words: str) -> tuple[int, str]:
    """Run the command; its exit code and what it says on stdout."""
    done = CliRunner().invoke(app, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_first_failing_seed_is_found_whatever_the_number_of_processes(jobs: int) -> None:
    *_, (done, failure) = explore(Wish("seal-by-overwrite"), 0, 200, jobs)
    assert failure is not None
    first = next(seed for seed in range(200) if isinstance(Wish("seal-by-overwrite").run(seed), Failure))
    assert (failure.seed, done) == (first, first + 1)


def test_all_seeds_are_run_if_none_fails() -> None:
    assert list(explore(Wish(), 100, 60, jobs=1)) == [(25, None), (50, None), (60, None)]


def test_a_failure_is_made_smaller_while_the_same_promise_breaks() -> None:
    wish = Wish("damaged-checkpoint-used")
    found = next(one for seed in range(50) if isinstance(one := wish.run(seed), Failure))
    smallest = wish.shrink(found, lambda _: None)
    assert smallest.promise == found.promise
    assert smallest.scenario.strikes_max < found.strikes
    assert smallest.scenario.replicas <= found.scenario.replicas
    assert smallest.story[-1] != "" and len(smallest.story) > 0


def test_shrinking_takes_out_everything_that_does_not_matter() -> None:
    wish = Wish("marks-not-kept")
    found = wish.run(3)
    assert isinstance(found, Failure)
    with wish.planted.plant():  # type: ignore[union-attr]
        left = shrink(found).scenario
    assert (left.replicas, left.blackouts_s, left.stops_s, left.clock_jumps_s) == (1, (), (), ())
    assert left.crash_chance == left.hang_chance == left.pause_chance == 0.0


def test_changes_say_what_differs_from_the_seeds_own_scenario() -> None:
    own = random_scenario(5)
    assert changes(own, own) == {}
    assert changes(Wish(changes={"strikes_max": 3}).scenario(5), own) == {"strikes_max": 3}


def test_a_seed_is_told_as_a_story() -> None:
    code, said = lockstep("sim", "--seed", "4711", "--trace")
    assert code == 0
    lines = said.splitlines()
    assert re.fullmatch(r" +0\.000 s  supervisor1 +starts", lines[0])
    assert all(re.match(r" +\d+\.\d{3} s  \S+ +\S", line) for line in lines[:-1])
    assert lines[-1].endswith("every promise held")


def test_a_story_of_many_seeds_is_refused_and_not_forgotten() -> None:
    refused = CliRunner().invoke(app, ["sim", "--seeds", "5", "--trace"]).exception
    assert isinstance(refused, EnvironmentError_) and "--trace tells of one seed" in str(refused)


def test_a_broken_promise_ends_with_a_command_that_breaks_it_again() -> None:
    code, said = lockstep("sim", "--plant", "commit-before-publish", "--seeds", "50", "--jobs", "1")
    assert code == 1
    assert "order: epoch" in said
    again = shlex.split(said.strip().splitlines()[-1].removeprefix("again: lockstep "))
    code, told = lockstep(*again)
    assert code == 1
    assert "order: epoch" in told


def test_bugs_are_listed_with_what_they_break() -> None:
    code, said = lockstep("sim", "--bugs")
    assert code == 0
    assert re.search(r"unbounded-lead +readiness", said)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--plant", "no-such-bug"), "publish-without-fence"),
        (("--with", "crashes=1"), "crash_chance"),
        (("--with", "crash_chance=often"), "crash_chance=0.0"),
    ],
)
def test_what_the_simulator_does_not_have_is_refused_with_what_it_has(words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["sim", "--seed", "1", *words])
    assert done.exception is not None
    assert says in str(done.exception)


def test_no_process_of_a_simulation_outlives_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "lockstep", "sim", "--seeds", "1000000", "--jobs", "2"], stdout=subprocess.DEVNULL
    ) as sim:
        workers: list[psutil.Process] = []
        while len(workers) < 2:
            assert sim.poll() is None
            workers = [one for one in psutil.Process(sim.pid).children() if one.cpu_times().user > 1]
        sim.kill()
    assert psutil.wait_procs(workers, 20)[1] == []
