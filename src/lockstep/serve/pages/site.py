"""Which page an address means, made from what the service knows. Nothing here knows HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from lockstep.control.policy.runner import MEMORY as POLICY_MEMORY
from lockstep.errors import LockstepError, ServiceError
from lockstep.serve.desk import Desk
from lockstep.serve.looks.look import Look
from lockstep.serve.looks.shared import Looks
from lockstep.serve.pages import confirm
from lockstep.serve.pages.cluster import cluster_page
from lockstep.serve.pages.epochs import EPOCHS_SHOWN, EpochFacts, epoch_page, epochs_page
from lockstep.serve.pages.events import EVENTS_SHOWN, events_page
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.home import JOBS_SHOWN, jobs_page
from lockstep.serve.pages.job import job_page
from lockstep.serve.pages.markup import EMPTY, Child
from lockstep.serve.pages.more import (
    ROWS_SHOWN,
    hosts_page,
    policy_page,
    savepoints_page,
    state_page,
    state_rows,
    trouble,
)
from lockstep.serve.pages.operations import operation_page, operations_page
from lockstep.serve.pages.plan import plan_page
from lockstep.serve.pages.replicas import replicas_page
from lockstep.store.opening import announced_hosts

Query = Mapping[str, str]
_NUMBER_DIGITS_MAX = 15


class Site:
    """The pages of one service."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._service = desk, desk.service
        self.looks = Looks(desk.service)
        desk.service.on_close.append(self.looks.close)
        self._of_all: Mapping[str, Callable[[], Page]] = {
            "hosts": lambda: hosts_page(announced_hosts(self._service.address), self._all()[0]),
            "cluster": lambda: cluster_page(desk.cluster()),
        }
        self._simple: Mapping[str, Callable[[Look, Query], Page]] = {
            "": lambda look, _query: job_page(look),
            "replicas": lambda look, _query: replicas_page(look),
            "plan": lambda look, _query: plan_page(look),
            "operations": lambda look, _query: operations_page(look),
            "epochs": lambda look, _query: self._epochs(look),
            "events": self._events,
            "state": self._state,
            "savepoints": lambda look, _query: self._savepoints(look),
            "policy": lambda look, _query: self._policy(look),
        }

    def page(self, path: str, query: Query) -> Page:
        """The page at a path. LS0783 if there is none, LS0760 if there is no such job."""
        match [part for part in path.split("/") if part]:
            case []:
                return self._home()
            case [name] if name in self._of_all:
                return self._of_all[name]()
            case ["jobs", job]:
                return self._simple[""](self.looks.look(job), query)
            case ["jobs", job, tab] if tab in self._simple:
                return self._simple[tab](self.looks.look(job), query)
            case ["jobs", job, "epochs", number] if _is_number(number):
                return self._epoch(self.looks.look(job), int(number))
            case ["jobs", job, "operations", number] if _is_number(number):
                return self._operation(self.looks.look(job), int(number))
        raise no_page(path)

    def confirmation(self, job: str, verb: str, operation: int | None, hidden: Mapping[str, str]) -> Page:
        """What a verb will do, and the form that asks for it."""
        found = (confirm.VERBS if operation is None else confirm.SETTLING).get(verb)
        if found is None:
            raise confirm.unknown_verb(verb)
        return confirm.confirm_page(self.looks.look(job), found, confirm.ask_path(job, verb, operation), hidden)

    def _home(self) -> Page:
        looks, troubles = self._all()
        return jobs_page(looks, troubles, max(0, len(self.looks.names()) - JOBS_SHOWN))

    def _all(self) -> tuple[list[Look], dict[str, str]]:
        """All jobs that can be looked at, and why the others cannot: one broken store does not hide the rest."""
        looks, troubles = [], {}
        for name in self.looks.names()[:JOBS_SHOWN]:
            try:
                looks.append(self.looks.look(name))
            except LockstepError as error:
                troubles[name] = f"{error.code} {error.fact}"
        return looks, troubles

    def _epochs(self, look: Look) -> Page:
        last = look.overview.head_epoch
        return epochs_page(look, self._service.store(look.job).entries(max(0, last - EPOCHS_SHOWN + 1), last))

    def _epoch(self, look: Look, epoch: int) -> Page:
        store = self._service.store(look.job)
        published = store.published(epoch, epoch)
        facts = EpochFacts(
            epoch,
            store.entry(epoch),
            store.entry(epoch - 1) if epoch else None,
            published[0] if published else None,
            store.digests(epoch),
            [one for one in look.divergences if one.epoch == epoch],
        )
        return epoch_page(look, facts)

    def _operation(self, look: Look, number: int) -> Page:
        found = self._service.verbs(look.job).book.find(number)
        if found is None:
            raise no_page(f"operation {number}")
        return operation_page(look, found)

    def _events(self, look: Look, query: Query) -> Page:
        store, before = self._service.store(look.job), query.get("before", "")
        is_newest = not _is_number(before)
        last = look.events[-1][0] if look.events else 0
        if is_newest and not last:
            return events_page(look, store.events(0, EVENTS_SHOWN), is_newest=True)
        end = last + 1 if is_newest else int(before)
        events = store.events(max(0, end - EVENTS_SHOWN - 1), min(EVENTS_SHOWN, max(1, end - 1)))
        return events_page(look, [one for one in events if one[0] < end], is_newest=is_newest)

    def _state(self, look: Look, query: Query) -> Page:
        """Steps that keep state, and what one of them keeps for a key: its parts, separated by commas."""
        steps: Mapping[str, str] = {}
        try:
            steps = self._desk.state_steps(look.job)
            answer: Child = EMPTY
            if query.get("key"):
                key = [part.strip() for part in query["key"].split(",")]
                answer = state_rows(self._desk.state(look.job, query.get("step", ""), key=key, limit=ROWS_SHOWN))
        except LockstepError as error:
            answer = trouble(error)
        return state_page(look, steps, query, answer)

    def _savepoints(self, look: Look) -> Page:
        return savepoints_page(look, self._desk.savepoints(look.job))

    def _policy(self, look: Look) -> Page:
        told = dict(look.order.settings.get("policy") or {}) if look.order is not None else {}
        learned = json.loads(self._service.store(look.job).fact(POLICY_MEMORY) or "{}")
        return policy_page(look, told, learned)


def no_page(what: str) -> ServiceError:
    """There is nothing at an address."""
    return ServiceError("LS0783", f"there is no page {what[:100]!r}", hint="the list of jobs is at /.")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX
