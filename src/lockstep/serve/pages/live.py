"""Pages kept up to date: rendered once a second for all who see the same one, sooner if something happens to a job, and
only what changed is sent."""

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
BEAT_S_MAX = 3.0
"""A viewer looks by itself after that: rendering may take a while, and whoever beats may have met an error."""
NOTICE_S = 0.1
"""How often it is asked whether something has happened, once for all viewers: a kill is to be seen within a second."""
LIVE_S_MAX = 600.0
"""Then the browser connects anew, by itself."""
VIEWERS_MAX = 200
PAGES_KEPT = 100


@dataclass
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    beat: int = -1
    sections: dict[str, Html] = field(default_factory=dict)


class LivePages:
    """The sections of pages by their ids, for all who watch."""

    def __init__(self, site: Site, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._elapsed_s = elapsed_s
        self._pages: dict[tuple[str, str], _Kept] = {}
        self._viewers = 0
        self._beat = 0
        """Pages are rendered once in each beat; beats are a second, or end when something happens."""
        self._next_beat = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def updates(self, path: str, query: Query, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """What changes on a page, as server-sent events, until whoever watches is gone."""
        sent: dict[str, Html] = {}
        until_s = self._elapsed_s() + LIVE_S_MAX
        self._viewers += 1
        self._begin()
        try:
            yield "retry: 1000\n\n"
            while self._elapsed_s() < until_s and not await is_gone():
                next_beat = self._next_beat
                try:
                    sections = await self._sections(path, query)
                except LockstepError:
                    break  # the job was deleted, or its store does not answer: the browser asks again
                if changed := {name: html for name, html in sections.items() if sent.get(name) != html}:
                    sent.update(changed)
                    yield event(changed)
                try:
                    await asyncio.wait_for(next_beat.wait(), BEAT_S_MAX)
                except TimeoutError:
                    self._look_anyway()
        finally:
            self._viewers -= 1

    def _look_anyway(self) -> None:
        """Whatever becomes of whoever beats: a viewer goes on, and sees what is so now."""
        self._beat += 1
        self._begin()

    def _begin(self) -> None:
        """With the first viewer: what was rendered for those before is old."""
        if self._beating is None or self._beating.done():
            self._beat += 1
            self._beating = asyncio.create_task(self._beats())

    async def _beats(self) -> None:
        """Wake whoever watches, for as long as somebody does."""
        begun_s = self._elapsed_s()
        while self._viewers:
            await asyncio.sleep(NOTICE_S)
            happened = await run_in_threadpool(self._site.looks.has_news)
            if happened or self._elapsed_s() - begun_s >= RENDER_EVERY_S:
                begun_s = self._elapsed_s()
                self._beat += 1
                over, self._next_beat = self._next_beat, asyncio.Event()
                over.set()

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
        if kept is not None and kept.beat == self._beat:
            return kept.sections
        return await run_in_threadpool(self._rendered, key, path, query)

    def _rendered(self, key: tuple[str, str], path: str, query: Query) -> dict[str, Html]:
        kept = self._pages.setdefault(key, _Kept())
        with kept.lock:
            if kept.beat != (beat := self._beat):
                page = self._site.page(path, query)
                kept.sections = {section_id(one): one for one in page.sections if section_id(one)}
                kept.beat = beat
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
