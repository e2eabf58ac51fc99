"""Queries that are brought to rest: held, let up to the foremost stage, held again; and not waited for for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from lockstep.runtime.epoch.draining import drain_steps
from lockstep.runtime.epoch.stage_progress import StageProgress, Standpoint
from lockstep.runtime.steps import run


@dataclass
class Stages:
    """Two queries and how far they are; with each pause, those that may compute one epoch more."""

    epochs: list[int]
    under_way: list[int] = field(default_factory=list)
    """Stages in the midst of an epoch: they are held only after it."""
    last: int | None = None
    held: set[int] = field(default_factory=set)
    active: bool = True
    now_s: float = 0.0

    @property
    def at(self) -> Standpoint:
        return Standpoint(epoch=min(self.epochs))

    @property
    def newest_epoch(self) -> int:
        return max(self.epochs)

    def hold(self) -> None:
        self.last = -1

    def release(self, last: int) -> None:
        self.last = last

    def ask(self) -> None:
        self.held.clear()

    def are_held(self) -> bool:
        return len(self.held) == len(self.epochs)

    def are_active(self) -> bool:
        return self.active

    def pause(self, *_: object) -> None:
        self.now_s += 1.0
        for stage, epoch in enumerate(self.epochs):
            if stage in self.under_way:
                self.under_way.remove(stage)
                self.epochs[stage] += 1
            elif self.last is not None and epoch < self.last:
                self.epochs[stage] += 1
            else:
                self.held.add(stage)

    def drain(self, deadline_s: float = 100.0) -> bool:
        progress = cast("StageProgress", self)
        return run(drain_steps(self, progress, deadline_s, lambda: self.now_s), pause=self.pause)


def test_stages_that_are_level_are_held_and_that_is_all() -> None:
    stages = Stages([7, 7])
    assert stages.drain()
    assert stages.epochs == [7, 7] and stages.last == -1


def test_the_stage_that_is_behind_computes_up_to_the_foremost_and_no_further() -> None:
    stages = Stages([9, 6])
    assert stages.drain()
    assert stages.epochs == [9, 9]
    assert stages.held == {0, 1}, "held again after the last of these epochs"


def test_an_epoch_under_way_is_finished_and_the_others_follow() -> None:
    stages = Stages([7, 7], under_way=[1])
    assert stages.drain()
    assert stages.epochs == [8, 8]


def test_nobody_waits_for_a_query_that_has_ended_or_beyond_the_deadline() -> None:
    ended = Stages([9, 6], active=False)
    assert not ended.drain()
    late = Stages([900, 6])
    assert not late.drain(deadline_s=10.0)
    assert late.now_s <= 11.0
