"""Pages that keep themselves up to date: only what changed is sent, and many viewers cost what one does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.clock import US_PER_S
from lockstep.serve.desk import Desk
from lockstep.serve.looks import shared
from lockstep.serve.pages import live
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.live import LivePages
from lockstep.serve.pages.markup import Html
from lockstep.serve.pages.site import Query, Site
from lockstep.serve.service import Service
from tests.unit.serve.made_up import MadeUp


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeUp]:
    one = MadeUp(tmp_path)
    one.begin()
    one.live(10)
    yield one
    one.store.close()


@pytest.fixture
def service(made: MadeUp) -> Iterator[Service]:
    opened = made.service()
    yield opened
    opened.close()


def sections(said: str) -> dict[str, str]:
    assert said.startswith("event: sections\ndata: ") and said.endswith("\n\n") and said.count("\n") == 3
    return {one["id"]: one["html"] for one in json.loads(said.splitlines()[1].removeprefix("data: "))}


def test_a_page_gets_all_sections_at_first_and_then_those_that_changed(
    made: MadeUp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RENDER_EVERY_S", 0.0)
    monkeypatch.setattr(live, "NOTICE_S", 0.0)
    pages = LivePages(Site(Desk(service)))
    gone = False

    async def is_gone() -> bool:
        return gone

    async def watched() -> tuple[dict[str, str], dict[str, str]]:
        nonlocal gone
        updates = pages.updates(f"/jobs/{made.job}/events", {}, is_gone)
        assert (await anext(updates)).startswith("retry:")
        first = sections(await anext(updates))
        made.event(made.end_us, "replica-failed", "out of memory", "r1")
        made.clock.now_us += US_PER_S
        second = sections(await anext(updates))
        gone = True
        assert [one async for one in updates] == []
        return first, second

    first, second = asyncio.run(watched())
    assert set(first) == {"head", "events"} and "out of memory" not in first["events"]
    assert set(second) == {"events"} and "out of memory" in second["events"]


def test_twenty_viewers_of_a_page_cost_one_look_and_one_rendering_a_second(
    made: MadeUp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(Desk(service))
    rendered: list[str] = []
    page = site.page

    def counted(path: str, query: Query) -> Page:
        rendered.append(path)
        return page(path, query)

    monkeypatch.setattr(site, "page", counted)
    pages = LivePages(site)

    async def is_gone() -> bool:
        return False

    async def first_words() -> list[str]:
        async def one() -> str:
            updates = pages.updates(f"/jobs/{made.job}", {}, is_gone)
            await anext(updates)
            return await anext(updates)

        return list(await asyncio.gather(*(one() for _ in range(20))))

    said = asyncio.run(first_words())
    assert len(said) == 20 and len(set(said)) == 1
    assert rendered == [f"/jobs/{made.job}"]


def test_an_event_is_on_the_page_before_the_second_is_over(
    made: MadeUp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RENDER_EVERY_S", 3600.0)
    monkeypatch.setattr(live, "NOTICE_S", 0.0)
    pages = LivePages(Site(Desk(service)))

    async def is_gone() -> bool:
        return False

    async def watched() -> dict[str, str]:
        updates = pages.updates(f"/jobs/{made.job}/events", {}, is_gone)
        await anext(updates)
        await anext(updates)
        made.event(made.end_us, "replica-ended", "exit code -9", "r1")
        made.clock.now_us += US_PER_S // 4
        return sections(await asyncio.wait_for(anext(updates), 30))

    assert "exit code -9" in asyncio.run(watched())["events"]


def test_many_events_are_looked_at_five_times_a_second_and_those_of_unwatched_jobs_not_at_all(
    made: MadeUp, service: Service
) -> None:
    looks = Site(Desk(service)).looks
    first = looks.look(made.job)
    assert not looks.has_news()
    made.event(made.end_us, "replica-ended", "exit code -9", "r1")
    made.clock.now_us += US_PER_S // 10
    assert not looks.has_news() and looks.look(made.job) is first
    made.clock.now_us += US_PER_S // 10
    assert looks.has_news() and looks.look(made.job) is not first
    made.event(made.end_us, "replica-started", "pid 7", "r1")
    made.clock.now_us += 10 * US_PER_S
    assert not looks.has_news()


def test_a_process_that_is_gone_is_news_though_nobody_has_said_so(
    made: MadeUp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Site(Desk(service)).looks
    assert all(one.alive for one in looks.look(made.job).overview.health.replicas)
    made.clock.now_us += US_PER_S // 4
    assert not looks.has_news()
    monkeypatch.setattr(shared, "pid_exists", lambda _: False)
    monkeypatch.setattr(psutil, "pid_exists", lambda _: False)
    assert looks.has_news()
    assert not any(one.alive for one in looks.look(made.job).overview.health.replicas)
    made.clock.now_us += US_PER_S // 4
    assert not looks.has_news()


def test_a_job_that_is_deleted_while_somebody_watches_another_is_no_news(
    made: MadeUp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Site(Desk(service)).looks
    monkeypatch.setattr(shared, "NEWS_EVERY_S", -1.0)
    looks.look(made.job)
    service.forget(made.job)
    assert not looks.has_news()


def test_beyond_the_limit_nobody_is_kept_up_to_date(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "VIEWERS_MAX", 0)
    with pytest.raises(Exception, match="LS0784"):
        LivePages(Site(Desk(service))).check_room()


def test_every_section_has_an_id_that_the_script_finds() -> None:
    assert live.section_id(Html('<section id="a-b" data-live><p id="x"></p></section>')) == "a-b"
