"""At most once: an epoch is noted before it is written, so a crash in between loses it and nothing repeats it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Output, Place, Publication, SinkSide, StagedFile
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.at_most_once import AtMostOnceSide
from lockstep.connect.specs import console, files
from lockstep.plan.specs import Guarantee
from lockstep.store.protocols import Holder
from tests.unit.connect.sinks_for_connect import HOLDER, SCHEMA, in_child, publish, rows_of, wanted

OTHER = Holder("r1", 7)


class LinesSide:
    """A sink without a fence: lines in a file, and a crash where the test wants it."""

    def __init__(self, file: Path, crash: str = "") -> None:
        self._file = file
        self._crash = crash

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        del holder
        if self._crash == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        with self._file.open("a") as file:
            file.write(f"{wanted.epoch}\n")
        if self._crash == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        del output
        return wanted

    def open(self, schema: pa.Schema) -> None:
        del schema

    def rows(self, epoch: int) -> None:
        del epoch

    def sweep(self, dead: Sequence[str]) -> int:
        return len(dead)

    def close(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was not expected")


def _lines(place: Place, crash: str = "") -> SinkSide:
    place.project.mkdir(parents=True, exist_ok=True)
    return AtMostOnceSide(LinesSide(place.project / "lines", crash), "lines", place)


def _written(place: Place) -> list[int]:
    file = place.project / "lines"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_every_epoch_is_written_once_by_whoever_notes_it_first(place: Place) -> None:
    first, second = _lines(place), _lines(place)
    assert publish(first, 0).by == "r0.1"
    assert publish(second, 0, OTHER).by == "r0.1"
    assert publish(second, 1, OTHER).by == "r1.7"
    assert publish(first, 1).by == "r1.7"
    assert _written(place) == [0, 1]
    assert [side.last_published() for side in (first, second)] == [1, 1]
    assert first.publication(2) is None
    first.close()
    second.close()


@pytest.mark.parametrize(("crash", "seen"), [("before", [0, 2]), ("after", [0, 1, 2])])
def test_a_crash_around_the_writing_never_writes_an_epoch_again(place: Place, crash: str, seen: list[int]) -> None:
    side = _lines(place)
    publish(side, 0)
    side.close()

    def act() -> None:
        publish(_lines(place, crash), 1)

    assert in_child(act) == -9
    replayed = _lines(place)
    assert publish(replayed, 1, Holder("r0", 2)).by == "r0.1"
    assert publish(replayed, 2, Holder("r0", 2)).by == "r0.2"
    assert _written(place) == seen
    replayed.close()


def test_a_crash_before_the_note_writes_the_epoch_after_it(place: Place) -> None:
    def die() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def act() -> None:
        side = _lines(place)
        assert isinstance(side, AtMostOnceSide)
        side._clock = die  # it is asked just before the note
        publish(side, 0)

    assert in_child(act) == -9
    assert _written(place) == []
    side = _lines(place)
    assert publish(side, 0, OTHER).by == "r1.7"
    assert _written(place) == [0]
    side.close()


def test_a_replica_that_stood_still_between_looking_and_noting_writes_nothing(place: Place) -> None:
    slow, fast = _lines(place), _lines(place)
    assert isinstance(slow, AtMostOnceSide)

    def overtaken() -> int:
        publish(fast, 0, OTHER)
        return 5

    slow._clock = overtaken
    assert publish(slow, 0).by == "r1.7"
    assert _written(place) == [0]
    slow.close()
    fast.close()


@pytest.mark.parametrize("lead", [50, 120])
def test_a_replica_that_lags_by_the_whole_lead_writes_nothing_twice_and_is_compared(place: Place, lead: int) -> None:
    assert place.publications_kept == RunSettings().behind_epochs_max, "unless the settings say otherwise"
    settings = RunSettings(lead_epochs_max=lead)
    led = replace(place, publications_kept=settings.behind_epochs_max)
    fast, slow = _lines(led), _lines(led)
    newest = settings.behind_epochs_max - 1
    publish(slow, 0, OTHER, count=1)
    for epoch in range(newest + 1):
        publish(fast, epoch, count=1)
    assert slow.publish(replace(wanted(0), digest="other"), Output(SCHEMA), HOLDER).digest == "digest-0"
    for epoch in range(1, newest + 1):
        different = replace(wanted(epoch, OTHER), digest="other")
        assert slow.publish(different, Output(SCHEMA), OTHER).digest == f"digest-{epoch}"
    assert _written(place) == list(range(newest + 1))
    assert publish(slow, newest + 1, OTHER, count=1).by == "r1.7"
    fast.close()
    slow.close()


def test_who_comes_second_removes_its_staged_files_and_old_epochs_agree(place: Place, tmp_path: Path) -> None:
    side = _lines(replace(place, publications_kept=5))
    for epoch in range(10):
        publish(side, epoch, count=1)
    staged = tmp_path / "staged.arrow"
    staged.write_bytes(b"rows")
    late = replace(wanted(0, OTHER), digest="other")
    old = side.publish(late, Output(SCHEMA, files=(StagedFile(str(staged), 3, 4),)), OTHER)
    assert (old.digest, old.version, staged.exists()) == ("other", late.version, False)
    assert _written(place) == list(range(10)), "it is known to be taken, however long ago that was"
    side.close()


@pytest.mark.parametrize(("guarantee", "times"), [("at-least-once", 2), ("at-most-once", 1)])
def test_a_console_killed_after_printing_prints_again_or_not_as_was_chosen(
    place: Place, capfd: pytest.CaptureFixture[str], guarantee: Guarantee, times: int
) -> None:
    def side() -> SinkSide:
        made = sink_side(console(), "show", place, guarantee)
        made.open(SCHEMA)
        return made

    def act() -> None:
        dying = side()
        inner: Any = dying if guarantee == "at-least-once" else dying._side  # type: ignore[attr-defined]
        inner._clock = lambda: os.kill(os.getpid(), signal.SIGKILL)  # it is asked between printing and remembering
        publish(dying, 0)

    assert in_child(act) == -9
    again = side()
    publish(again, 0, OTHER)
    assert capfd.readouterr().out.count("-- show, epoch 0: 3 rows") == times
    again.close()


def test_a_fenced_sink_stays_as_it_is(place: Place) -> None:
    side = sink_side(files("out"), "alerts", place, "exactly-once")
    side.open(SCHEMA)
    assert publish(side, 0, HOLDER).by == "r0.1"
    assert side.rows(0) == rows_of(0)
    assert not isinstance(side, AtMostOnceSide)
    side.close()
