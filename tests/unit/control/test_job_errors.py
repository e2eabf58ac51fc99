"""When an error of the job itself stops the job: as soon as no replica can be expected to get past it."""

from __future__ import annotations

from dataclasses import replace

from lockstep.config import RunSettings
from lockstep.control.supervise.supervision import Action, Seen, Start, StopJob, decide
from lockstep.runtime.spec import EXIT_JOB_ERROR
from lockstep.store.protocols import Progress

NOW = 1_000_000_000


def _ended(name: str, after_epoch: int) -> Seen:
    return Seen(name, False, NOW - 1, None, exit_code=EXIT_JOB_ERROR, ended_us=NOW - 1, failed_after=after_epoch)


def _running(name: str, epoch: int) -> Seen:
    return Seen(name, True, NOW - 1, Progress(name, 1, 1, "running", epoch, updated_us=NOW, moved_us=NOW))


def _decided(*replicas: Seen) -> list[Action]:
    return decide(replicas, 10, NOW, RunSettings())


def test_the_only_replica_stops_the_job_at_once() -> None:
    assert isinstance(_decided(_ended("r0", 7))[0], StopJob)


def test_a_replica_is_seeded_anew_while_a_peer_may_get_past_the_error() -> None:
    assert _decided(_ended("r0", 7), _running("r1", 9)) == [Start("r0", "peer")]


def test_two_replicas_that_fail_after_the_same_epoch_stop_the_job_even_if_one_was_started_again() -> None:
    starting_again = replace(_running("r1", 7), failed_after=7)
    assert isinstance(_decided(_ended("r0", 7), starting_again)[0], StopJob)


def test_an_error_that_another_replica_met_long_ago_does_not_count() -> None:
    assert _decided(_ended("r0", 7), replace(_running("r1", 9), failed_after=2)) == [Start("r0", "peer")]
