"""Group commit: many threads, few commits, every one answered."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lockstep.errors import StoreError
from lockstep.store import group_commit
from lockstep.store.group_commit import GroupCommit


def in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    return threads


class Gate:
    """A commit that waits to be let through, and remembers its groups."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def commit(self, numbers: list[int]) -> list[int]:
        self.groups.append(numbers)
        self.entered.release()
        assert self.open.wait(10)
        return [number * 2 for number in numbers]


def queued(commits: GroupCommit[int, int], count: int) -> None:
    while len(commits._queue) < count:
        threading.Event().wait(0.001)


def test_those_who_come_during_a_commit_share_the_next_one() -> None:
    gate = Gate()
    commits = GroupCommit(gate.commit)
    answers: dict[int, int] = {}

    def work(number: int) -> None:
        answers[number] = commits.submit(number)

    leader = in_threads(1, work)
    gate.entered.acquire()
    followers = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in followers:
        thread.start()
    queued(commits, 8)
    gate.open.set()
    for thread in leader + followers:
        thread.join()
    assert answers == {number: number * 2 for number in range(9)}
    assert [len(group) for group in gate.groups] == [1, 8]


def test_many_threads_that_submit_often_are_all_answered_rightly() -> None:
    commits: GroupCommit[int, int] = GroupCommit(lambda numbers: [number + 1 for number in numbers])
    wrong: list[int] = []

    def work(index: int) -> None:
        for step in range(300):
            number = index * 1000 + step
            if commits.submit(number) != number + 1:
                wrong.append(number)

    for thread in in_threads(12, work):
        thread.join()
    assert wrong == []


def test_a_group_that_fails_fails_for_all_of_it_and_the_next_goes_on() -> None:
    def commit(numbers: list[int]) -> list[int]:
        if -1 in numbers:
            raise StoreError("LS0404", "disk full")
        return numbers

    commits = GroupCommit(commit)
    with pytest.raises(StoreError, match="LS0404"):
        commits.submit(-1)
    assert commits.submit(5) == 5


def test_an_interrupted_leader_tells_the_others_and_leaves_the_queue_working() -> None:
    interrupt = True

    def commit(numbers: list[int]) -> list[int]:
        if interrupt:
            raise KeyboardInterrupt
        return numbers

    commits = GroupCommit(commit)
    with pytest.raises(KeyboardInterrupt):
        commits.submit(1)
    interrupt = False
    assert commits.submit(2) == 2


def test_the_queue_and_the_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "REQUESTS_QUEUED_MAX", 4)
    monkeypatch.setattr(group_commit, "REQUESTS_PER_GROUP_MAX", 3)
    gate = Gate()
    commits = GroupCommit(gate.commit)
    threads = in_threads(10, lambda number: None if commits.submit(number) == number * 2 else pytest.fail("wrong"))
    gate.entered.acquire()
    queued(commits, 4)
    assert len(commits._queue) == 4
    gate.open.set()
    for thread in threads:
        thread.join()
    assert sorted(number for group in gate.groups for number in group) == list(range(10))
    assert max(len(group) for group in gate.groups) <= 3
