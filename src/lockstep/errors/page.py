"""What `lockstep explain CODE` prints: one page per code, one file per area under ``pages/``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

_AREAS = ("ls00", "ls01", "ls01_loading", "ls02", "ls03", "ls04", "ls05", "ls06", "ls06_demo", "ls06_bench")


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
