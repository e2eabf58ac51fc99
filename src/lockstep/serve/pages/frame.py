"""The frame of every page: where one is, where one can go, and the address from which the page is kept up to date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.serve.pages.markup import EMPTY, Child, Html, el, join
from lockstep.serve.pages.parts import link, path

REFRESH_S = 5
"""Without JavaScript a page loads itself again this often."""
TABS = (
    ("", "Overview"),
    ("replicas", "Replicas"),
    ("plan", "Plan"),
    ("epochs", "Epochs"),
    ("operations", "Operations"),
    ("events", "Events"),
    ("state", "State"),
    ("savepoints", "Savepoints"),
    ("policy", "Policy"),
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M3 3v10M8 3v10M13 3v10' stroke='%230d9488' stroke-width='3'/%3E%3C/svg%3E"
)


@dataclass(frozen=True)
class Page:
    """What is to be seen. Sections have ids of their own and are replaced one by one when they change."""

    title: str
    sections: Sequence[Html]
    job: str = ""
    tab: str = ""
    live: str = ""
    """The path that is kept up to date, empty for a page that stays as it is."""
    status: int = 200


def document(page: Page) -> str:
    """The whole page."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{page.title} · Lockstep"),
        el("link", rel="icon", href=_ICON),
        el("link", rel="stylesheet", href="/static/pages.css"),
        el("noscript", el("meta", http_equiv="refresh", content=REFRESH_S)) if page.live else None,
        el("script", src="/static/pages.js", defer=True),
    )
    body = el(
        "body",
        el("a", "To the content", href="#content", class_="skip"),
        _top(page),
        el("main", join(page.sections), id="content", tabindex=-1),
        el("p", "", id="connection", role="status", class_="connection"),
        data_live=f"/live{page.live}" if page.live else None,
    )
    return "<!doctype html>\n" + el("html", head, body, lang="en")


def _top(page: Page) -> Html:
    crumbs: list[Child] = [el("a", _mark(), "Lockstep", href="/", class_="brand")]
    if page.job:
        crumbs += [el("span", "/", class_="quiet", aria_hidden="true"), link(page.job, "jobs", page.job)]
    bar = el("nav", crumbs, _asides(page), aria_label="Service", class_="bar")
    return el("header", bar, _tabs(page) if page.job else EMPTY, class_="top")


def _asides(page: Page) -> Html:
    """Pages about no job in particular."""
    links = [
        el("a", title, href=f"/{title.lower()}", aria_current="page" if page.title == title else None)
        for title in ("Hosts", "Cluster")
    ]
    return el("span", links, class_="aside")


def _mark() -> Html:
    """Three bars in lockstep."""
    return el("svg", el("path", d="M3 3v10M8 3v10M13 3v10"), viewBox="0 0 16 16", aria_hidden="true", class_="logo")


def _tabs(page: Page) -> Html:
    links = [
        el(
            "a",
            title,
            href=path("jobs", page.job, name) if name else path("jobs", page.job),
            aria_current="page" if page.tab == name else None,
        )
        for name, title in TABS
    ]
    return el("nav", links, aria_label=f"Pages of job {page.job}", class_="tabs")
