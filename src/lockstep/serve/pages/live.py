"""Pages kept up to date: rendered once a second for all who see the same one, and only what changed is sent."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from lockstep.errors import LockstepError, ServiceError
from lockstep.serve.pages.markup import Html
from lockstep.serve.pages.site import Query, Site

RENDER_EVERY_S = 1.0
LOOK_S = 0.25
"""How often a connection looks whether there is something newer."""
LIVE_S_MAX = 600.0
"""Then the browser connects anew, by itself."""
VIEWERS_MAX = 200
PAGES_KEPT = 100


@dataclass
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at_s: float = float("-inf")
    sections: dict[str, Html] = field(default_factory=dict)


class LivePages:
    """The sections of pages by their ids, for all who watch."""

    def __init__(self, site: Site, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._elapsed_s = elapsed_s
        self._pages: dict[tuple[str, str], _Kept] = {}
        self._viewers = 0

    async def updates(self, path: str, query: Query, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """What changes on a page, as server-sent events, until whoever watches is gone."""
        sent: dict[str, Html] = {}
        until_s = self._elapsed_s() + LIVE_S_MAX
        self._viewers += 1
        try:
            yield "retry: 1000\n\n"
            while self._elapsed_s() < until_s and not await is_gone():
                try:
                    sections = await self._sections(path, query)
                except LockstepError:
                    break  # the job was deleted, or its store does not answer: the browser asks again
                if changed := {name: html for name, html in sections.items() if sent.get(name) != html}:
                    sent.update(changed)
                    yield event(changed)
                await asyncio.sleep(LOOK_S)
        finally:
            self._viewers -= 1

    def check_room(self) -> None:
        """LS0784 if too many watch already."""
        if self._viewers >= VIEWERS_MAX:
            raise ServiceError(
                "LS0784",
                f"{self._viewers} pages are kept up to date already",
                why="each holds a connection open.",
                hint="close some, or switch JavaScript off: then a page loads itself again every few seconds.",
            )

    async def _sections(self, path: str, query: Query) -> dict[str, Html]:
        key = path, json.dumps(dict(query), sort_keys=True)
        kept = self._pages.get(key)
        if kept is not None and self._elapsed_s() - kept.at_s < RENDER_EVERY_S:
            return kept.sections
        return await run_in_threadpool(self._rendered, key, path, query)

    def _rendered(self, key: tuple[str, str], path: str, query: Query) -> dict[str, Html]:
        kept = self._pages.setdefault(key, _Kept())
        with kept.lock:
            if self._elapsed_s() - kept.at_s >= RENDER_EVERY_S:
                page = self._site.page(path, query)
                kept.sections = {section_id(one): one for one in page.sections if section_id(one)}
                kept.at_s = self._elapsed_s()
        while len(self._pages) > PAGES_KEPT:
            self._pages.pop(next(iter(self._pages)), None)
        return kept.sections


def section_id(section: Html) -> str:
    """The id of a section, empty if it has none.

    >>> section_id(Html('<div id="head" class="x"><p id="y"></p></div>')), section_id(Html("<p></p>"))
    ('head', '')
    """
    opening = section[: section.find(">") + 1]
    found = re.search(r' id="([\w-]+)"', opening)
    return found[1] if found else ""


def event(sections: dict[str, Html]) -> str:
    """Sections as one server-sent event: JSON has no line breaks in it.

    >>> event({"head": Html("<p>1</p>")})
    'event: sections\\ndata: [{"id":"head","html":"<p>1</p>"}]\\n\\n'
    """
    body = [{"id": name, "html": html} for name, html in sections.items()]
    return f"event: sections\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"
