"""The demo fails when nothing moves, never because something is slow."""

from __future__ import annotations

from dataclasses import replace

from lockstep.bench.demo.part import CLOSE_EPOCHS, _is_over, _recovered
from lockstep.bench.demo.stillness import Stillness, signs
from lockstep.bench.demo.watching import SeenEpoch
from lockstep.store.protocols import Progress

BOOTING = Progress("r1", 2, 77, "starting")
RUNNING = Progress("r0", 1, 76, "running", epoch=40)


def _seen(epoch: int, *, oldest_us: int | None = None, rows: int = 0) -> SeenEpoch:
    return SeenEpoch(epoch, epoch, oldest_us, rows, "r0.1")


def test_a_replica_that_boots_slowly_moves_and_one_that_hangs_does_not_whatever_the_other_does() -> None:
    said = {"r0": RUNNING, "r1": BOOTING}
    still = Stillness(signs(said, ["r1"], 5.2, 0), since_s=0.0)
    other_went_on = {**said, "r0": replace(RUNNING, epoch=99)}
    assert still.after(signs(other_went_on, ["r1"], 5.9, 0), 60.0).still_s(60.0) == 60.0
    assert still.after(signs(said, ["r1"], 6.0, 0), 60.0).still_s(60.0) == 0.0, "a second of processor time"
    seeding = {**said, "r1": replace(BOOTING, state="seeding")}
    assert still.after(signs(seeding, ["r1"], 5.2, 0), 60.0).still_s(60.0) == 0.0
    assert still.after(signs(said, ["r1"], 5.2, 1), 60.0).still_s(60.0) == 0.0, "something came out"


def test_the_backlog_is_over_when_the_newest_records_came_after_the_return_however_late_they_are() -> None:
    assert not _recovered([], 100)
    assert not _recovered([_seen(1, oldest_us=90)], 100)
    assert _recovered([_seen(1, oldest_us=90), _seen(2, oldest_us=101), _seen(3)], 100)


def test_the_last_alerts_have_come_or_cannot_come_any_more() -> None:
    busy = [_seen(n, oldest_us=n, rows=2) for n in range(5)]
    assert _is_over(busy, 10) and not _is_over(busy, 11)
    empty = [_seen(5 + n) for n in range(CLOSE_EPOCHS)]
    assert not _is_over([*busy, *empty[1:]], 11) and _is_over([*busy, *empty], 11)
