"""A job that is wanted has one coordinator: started if there is none, again if it dies, never beside another."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.control.start.run import SUBMITTED, kept_by
from lockstep.runtime.desired_run import LEASE, note_stopped
from lockstep.serve.keeper import PAUSE_MAX_S, Keeper
from lockstep.serve.service import Service
from lockstep.store.protocols import Store


class Started:
    """A process that a test ends."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Bench:
    """A keeper whose processes and time are the test's."""

    def __init__(self, service: Service) -> None:
        self.now_s = 0.0
        self.started: list[Started] = []
        self.keeper = Keeper(service, self._start, lambda: self.now_s)

    def _start(self, job: str) -> Started:
        assert job == "logins"
        self.started.append(Started(100 + len(self.started)))
        return self.started[-1]

    def tend(self, after_s: float = 0.0) -> int:
        """How many were started so far."""
        self.now_s += after_s
        self.keeper.tend(lambda _: None)
        return len(self.started)


@pytest.fixture
def bench(service: Service, store: Store, project: Path) -> Bench:
    store.set_fact(SUBMITTED, kept_by(project))
    return Bench(service)


def test_one_is_started_and_left_alone_while_it_lives(bench: Bench) -> None:
    assert [bench.tend(), bench.tend(10), bench.tend(100)] == [1, 1, 1]


def test_none_is_started_beside_one_that_holds_the_lease(bench: Bench, store: Store) -> None:
    store.acquire(LEASE, "4711", 60)
    assert bench.tend() == 0
    store.release(LEASE, "4711")
    assert bench.tend() == 1


def test_one_that_dies_is_started_again_after_a_pause_though_its_lease_is_still_there(
    bench: Bench, store: Store
) -> None:
    bench.tend()
    store.acquire(LEASE, "100", 60)
    bench.started[0].code = -9
    assert [bench.tend(5), bench.tend(1), bench.tend(1)] == [1, 1, 2]


def test_the_pause_grows_while_it_dies_at_once_and_is_bounded(bench: Bench) -> None:
    bench.tend()
    pauses = []
    for _ in range(8):
        bench.started[-1].code = 1
        before, waited = bench.tend(), 0
        while bench.tend(1) == before:
            waited += 1
        pauses.append(waited + 1)
    assert pauses[:3] == [2, 4, 8] and pauses[-1] == PAUSE_MAX_S


def test_a_job_that_is_not_wanted_or_was_not_submitted_here_is_not_started(bench: Bench, store: Store) -> None:
    store.set_fact(SUBMITTED, "elsewhere:/srv")
    assert bench.tend() == 0
    store.set_fact(SUBMITTED, kept_by(bench.keeper._service.project))
    note_stopped(store)
    assert bench.tend() == 0 and bench.keeper.kept() == []
