"""Pages of the codes LS03xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {}
