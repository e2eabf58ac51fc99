"""The page about what all jobs run on: the store and its members, who coordinates, hosts with their room, executors."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.serve import models
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import (
    Column,
    badge,
    bytes_text,
    figures,
    link,
    milliseconds,
    section,
    shortened,
    table,
)

ROWS_SHOWN = 200
_KINDS = {"sqlite": "SQLite, in a folder of this host", "zookeeper": "ZooKeeper, shared by hosts"}


def cluster_page(said: models.Cluster) -> Page:
    """The page."""
    title = el("div", el("h1", "Cluster"), class_="head")
    sections = [title, _store(said.store), _coordinators(said.coordinators), _hosts(said.hosts)]
    return Page("Cluster", [*sections, _executors(said.executors)], live="/cluster")


def _store(store: models.StoreState) -> Html:
    answers: Child = milliseconds(store.took_ms) if store.answers else badge("stalled")
    note = "one read of it" if store.answers else f"it does not answer: {shortened(store.trouble, 200)}"
    pairs: list[tuple[str, Child, Child]] = [
        ("Kind", store.kind, _KINDS[store.kind]),
        ("Address", el("code", shortened(store.address, 300)), None),
        ("Answers", answers, note),
    ]
    return section("store", "Coordination store", figures(pairs), _members(store), live=True)


def _members(store: models.StoreState) -> Html | None:
    if not store.members:
        return None
    columns = (Column("Member"), Column("It is"), Column("Version"), Column("Answered in", number=True), Column("Says"))
    rows: list[Sequence[Child]] = [
        (
            one.address,
            one.mode or badge("not running"),
            one.version or "–",
            milliseconds(one.took_ms if one.mode else None),
            shortened(one.trouble, 200),
        )
        for one in store.members
    ]
    serving = sum(bool(one.mode) for one in store.members)
    text = f"{serving} of {len(store.members)} members serve; more than half have to."
    return el("div", table("Members of the ensemble", columns, rows), el("p", text, class_="quiet"))


def _coordinators(coordinators: Sequence[models.Coordinated]) -> Html:
    columns = (Column("Job"), Column("Coordinator"), Column("Term", number=True), Column("Is to run"))
    rows: list[Sequence[Child]] = [
        (
            link(one.job, "jobs", one.job),
            one.trouble or one.coordinator or (badge("not running") if one.wanted else "nobody"),
            one.term,
            "yes" if one.wanted else "no",
        )
        for one in coordinators[:ROWS_SHOWN]
    ]
    return section("coordinators", "Coordinators", table("Coordinators", columns, rows, "No job has run here yet."))


def _hosts(hosts: Sequence[models.HostRoom]) -> Html:
    columns = (
        Column("Host"),
        Column("Agent"),
        Column("Lockstep"),
        Column("Cores", number=True),
        Column("Free", number=True),
        Column("Memory", number=True),
        Column("Free", number=True),
        Column("Replicas", number=True),
        Column("Spares", number=True),
    )
    rows: list[Sequence[Child]] = [
        (
            one.host,
            shortened(one.address, 100) or "none: jobs live on this host alone",
            one.version,
            one.cores,
            one.cores_free,
            bytes_text(one.memory_bytes),
            "–" if one.memory_free_bytes is None else bytes_text(one.memory_free_bytes),
            len(one.replicas),
            one.spares,
        )
        for one in hosts[:ROWS_SHOWN]
    ]
    words = "A core counts as taken if a replica there computes with it, busy or not."
    return section(
        "rooms", "Agents, and what they have free", table("Agents", columns, rows), el("p", words, class_="quiet")
    )


def _executors(executors: Sequence[models.ReplicaExecutors]) -> Html:
    columns = (
        Column("Replica"),
        Column("Spark's master"),
        Column("Executors", number=True),
        Column("Lost since its start", number=True),
    )
    rows: list[Sequence[Child]] = [
        (
            link(f"{one.job} {one.replica}", "jobs", one.job, "replicas"),
            shortened(one.master, 100),
            one.executors,
            one.lost,
        )
        for one in executors[:ROWS_SHOWN]
    ]
    none = "Every replica computes in its own process: none has executors elsewhere."
    return section("executors", "Executors of Spark masters", table("Executors", columns, rows, none))
