"""What `lockstep explain CODE` prints: one page per code, one file per area under ``pages/``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

_AREAS = (
    "ls00",
    "ls00_security",
    "ls01",
    "ls01_joins",
    "ls01_loading",
    "ls01_processes",
    "ls01_rolling",
    "ls01_stages",
    "ls01_topology",
    "ls01_windows",
    "ls02",
    "ls02_sql",
    "ls03",
    "ls03_bolts",
    "ls03_processes",
    "ls04",
    "ls05",
    "ls05_delta",
    "ls05_kafka",
    "ls05_remote",
    "ls06",
    "ls06_agents",
    "ls06_executors",
    "ls06_library",
    "ls06_tools",
    "ls06_transfer",
    "ls07_operations",
    "ls07_pages",
    "ls07_places",
    "ls07_savepoints",
    "ls07_service",
)


@dataclass(frozen=True)
class Page:
    """Title in a few words; text says what happened, why Lockstep refuses, and what to do, for someone new to it."""

    title: str
    text: str


def all_pages() -> dict[str, Page]:
    """Every code and its page, in order.

    >>> "LS0103" in all_pages()
    True
    """
    pages: dict[str, Page] = {}
    for area in _AREAS:
        pages.update(import_module(f"lockstep.errors.pages.{area}").PAGES)
    return dict(sorted(pages.items()))
