"""The pages in a real browser, beside a job that lives: a kill shows without a reload, a button makes an operation."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from lockstep.agent.processes import kill_tree

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
JOB = "/jobs/saas-monitor"
BOOT_S = 600.0
"""For a machine that does thirty other things; on a quiet one it takes half a minute."""
SEEN_S = 30.0
"""A page looks every second. The rest is for a machine on which nothing gets its turn."""
SCREENSHOTS = os.environ.get("LOCKSTEP_SCREENSHOTS")
"""A folder for the pictures of the documents (docs/images); without it they are only taken."""
SCREENSHOT_BYTES_MAX = 150_000


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`lockstep serve --demo`, and its address."""
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", "serve", "--demo", "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config")},
        )
    try:
        deadline_s = time.monotonic() + BOOT_S
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+)", log.read_text(encoding="utf-8"))):
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        yield found[1]
    finally:
        # It ends its job, whose processes are not its children: a kill would leave them behind.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=BOOT_S)
        finally:
            if process.poll() is None:
                kill_tree(process.pid)
    assert process.returncode == 0, log.read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers have no sandbox of their own; what is opened here is ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def wait_until_healthy(page: Page) -> None:
    """Without a reload: the page has to notice by itself."""
    page.wait_for_selector("#head .badge.good", timeout=BOOT_S * 1000)


def killed(page: Page, address: str, replica: str) -> float:
    """Kill a replica whose process the page names; after how many seconds the page that is open shows it."""
    other = page.context.new_page()
    other.goto(f"{address}{JOB}/replicas")
    row = other.locator(f'#replica-table tr:has(th:text-is("{replica}"))')
    pid = int(row.locator("td").nth(5).inner_text())
    other.close()
    assert psutil.pid_exists(pid)
    begun_s = time.monotonic()
    # Not kill_tree: until a JVM has given its memory back takes longer than until the page shows that it is gone.
    os.killpg(pid, signal.SIGKILL)
    page.wait_for_function(
        """replica => {
            const row = [...document.querySelectorAll("#replicas tbody tr")]
                .find(one => one.querySelector("th").textContent === replica);
            return row && row.querySelector(".badge").textContent !== "running";
        }""",
        arg=replica,
        timeout=SEEN_S * 1000,
    )
    return time.monotonic() - begun_s


def rescaled(page: Page) -> None:
    """From the button to an operation."""
    page.click("#verbs a:has-text('Rescale')")
    assert "what will happen" in page.inner_text("#confirm")
    page.fill("input[name=replicas]", "1")
    page.click("#confirm button")
    page.wait_for_selector("#operation, .notice")
    assert page.url.endswith(f"{JOB}/operations/1"), page.inner_text("main")
    assert "rescale (replicas 1)" in page.inner_text("#operation")
    page.wait_for_selector("#operation .badge:text-is('done')", timeout=BOOT_S * 1000)


def pictures(browser: Browser, address: str, folder: Path) -> None:
    """Of the main pages: light, dark, and on a telephone."""
    from PIL import Image

    wanted = (
        ("pages-job", JOB, "light", 1100),
        ("pages-job-dark", JOB, "dark", 1100),
        ("pages-job-phone", JOB, "light", 390),
        ("pages-replicas", f"{JOB}/replicas", "light", 1100),
        ("pages-plan", f"{JOB}/plan", "light", 1100),
        ("pages-rescale", f"{JOB}/ask/rescale", "light", 1100),
    )
    for name, path, scheme, width in wanted:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 720})  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(address + path)
        page.wait_for_timeout(500)
        shot = folder / f"{name}.png"
        page.screenshot(path=shot, full_page=True)
        context.close()
        # The few colours of a page in a table: a third of the bytes, and nothing is lost to the eye.
        with Image.open(shot) as picture:
            picture.convert("RGB").quantize(255, Image.Quantize.MAXCOVERAGE).save(shot, optimize=True)
        assert shot.stat().st_size < SCREENSHOT_BYTES_MAX, f"{shot} is too large for the documents"
        if SCREENSHOTS:
            shutil.copyfile(shot, Path(SCREENSHOTS) / shot.name)


@pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")
def test_a_kill_is_on_the_page_and_a_rescale_from_the_button_becomes_an_operation(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="no playwright: pip install playwright")
    with served(tmp_path) as address, chromium() as browser:
        page = browser.new_context().new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address + JOB)
        wait_until_healthy(page)
        seen_s = killed(page, address, "r1")
        print(f"the kill was on the page after {seen_s:.1f} s")
        assert "r1" in page.inner_text("#happened")
        wait_until_healthy(page)
        pictures(browser, address, tmp_path)
        rescaled(page)
        assert not complaints
