"""Operations are kept in the store: asked once, one at a time, changed without losing anybody's word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.operations.book import KEPT_MAX, OperationBook
from lockstep.control.operations.model import Request
from lockstep.control.operations.verbs import JobVerbs, Manner
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import DesiredRun, last_run, note_desired
from lockstep.runtime.steering import steering
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(address_in(tmp_path), "logins")
    yield opened
    opened.close()


@pytest.fixture
def verbs(store: Store) -> JobVerbs:
    settings = Settings().model_dump(mode="json")
    note_desired(store, DesiredRun("logins", "code/ab/job.py:job", "hash", "sqlite:x", settings))
    return JobVerbs(store, "logins")


def test_the_same_key_is_one_operation_and_another_has_to_wait(store: Store) -> None:
    book = OperationBook(store)
    first = book.ask(Request("restart", key="once"))
    assert book.ask(Request("restart", key="once")) == first
    with pytest.raises(ServiceError) as refused:
        book.ask(Request("restart", key="another"))
    assert refused.value.code == "LS0740"
    book.update(first.number, lambda one: one.ended("done", 9))
    assert book.ask(Request("restart", key="once")).state == "done"
    assert book.ask(Request("restart", key="another")).number == 2


def test_of_two_changes_at_once_none_is_lost(store: Store) -> None:
    book, other = OperationBook(store), OperationBook(store)
    number = book.ask(Request("restart")).number
    interrupted: list[bool] = []

    def change(one: object) -> object:
        if not interrupted:
            interrupted.append(True)
            other.update(number, lambda held: held.noted("by the other", 1))
        return one.noted("by the first", 2)  # type: ignore[attr-defined]

    book.update(number, change)  # type: ignore[arg-type]
    held = book.find(number)
    assert held is not None and [step.name for step in held.steps] == ["by the other", "by the first"]


def test_the_book_is_bounded_and_keeps_what_is_under_way(store: Store) -> None:
    book = OperationBook(store)
    open_one = book.ask(Request("restart"))
    for _ in range(KEPT_MAX + 5):
        book.note(Request("activate"))
    kept = book.all()
    assert len(kept) == KEPT_MAX + 1
    assert book.open() == open_one
    assert kept[-1].number == KEPT_MAX + 6


def test_a_rescale_says_what_it_leads_from_and_to(store: Store, verbs: JobVerbs) -> None:
    asked = verbs.rescale(partitions=4, cores=2, manner=Manner(asked_by="ann"))
    before, after = DesiredRun(**asked.before or {}), DesiredRun(**asked.after or {})
    assert before == last_run(store)
    assert after.parsed_settings().spark.conf["spark.sql.shuffle.partitions"] == "4"
    assert after.parsed_settings().spark.master == "local[2]"
    assert (after.generation, after.results_of) == (2, 1)
    assert after.template().likeness != before.template().likeness


def test_more_replicas_replace_nobody(verbs: JobVerbs) -> None:
    asked = verbs.rescale(replicas=3)
    before, after = DesiredRun(**asked.before or {}), DesiredRun(**asked.after or {})
    assert after.parsed_settings().run.replicas == 3
    assert after.template().likeness == before.template().likeness


def test_deactivating_works_beside_an_operation_and_on_a_dead_job(store: Store, verbs: JobVerbs) -> None:
    verbs.restart()
    assert verbs.deactivate().state == "done"
    assert steering(store).paused
    verbs.activate()
    assert not steering(store).paused
    verbs.stop()
    held = last_run(store)
    assert held is not None and not held.wanted
    with pytest.raises(ServiceError) as refused:
        verbs.rescale(replicas=3)
    assert refused.value.code == "LS0743"


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"partitions": 0}, {}, {"stage": 1}, {"replicas": 17}])
def test_numbers_that_cannot_be_are_refused(verbs: JobVerbs, wrong: dict[str, int]) -> None:
    with pytest.raises(ServiceError) as refused:
        verbs.rescale(**wrong)  # type: ignore[arg-type]
    assert refused.value.code == "LS0745"
