"""`lockstep demo` from start to end: play both parts, write the report, say how it went."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lockstep.bench.demo.part import play
from lockstep.bench.demo.picture import draw
from lockstep.bench.demo.progress import Progress
from lockstep.bench.demo.report import report_html
from lockstep.bench.demo.results import Results, measured
from lockstep.bench.demo.summary import show_summary
from lockstep.errors import RunError
from lockstep.machine import find_java

EXIT_OK, EXIT_NOT_AS_PROMISED, EXIT_INTERRUPTED = 0, 1, 130


def run_demo(report: Path, picture: Path | None = None, *, keep: bool = False, as_json: bool = False) -> int:
    """Run the demo; the exit code is 0 only if nothing was lost, nothing came twice and all digests agreed.

    The folder it ran in is removed, unless it is to be kept or something was not as promised: then it is the evidence.
    """
    find_java()
    for file in (report, picture):
        check_writable(file)
    folder = Path(tempfile.mkdtemp(prefix="lockstep-demo-"))
    try:
        with stoppable(), Progress() as progress:
            results = _played(folder, progress)
            keep = keep or bool(results.complaints)
            report.write_text(report_html(results), encoding="utf-8")
            if picture is not None:
                picture.write_text(draw(results), encoding="utf-8")
    except KeyboardInterrupt:
        sys.stderr.write("stopped; no process is left behind\n")
        return EXIT_INTERRUPTED
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    _say(results, report, folder if keep else None, as_json=as_json)
    return EXIT_NOT_AS_PROMISED if results.complaints else EXIT_OK


def _played(folder: Path, progress: Progress) -> Results:
    progress.title("Part 1 of 2: one replica, and it is killed")
    alone = play(folder / "one", 1, progress)
    progress.title("Part 2 of 2: two replicas; one is killed, then the other")
    together = play(folder / "two", 2, progress)
    return Results((measured(alone), measured(together)), progress.elapsed_s)


def _say(results: Results, report: Path, kept: Path | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(results.to_json(), indent=2) + "\n")
    else:
        show_summary(results)
    sys.stderr.write(f"\nthe report with the picture: {report.resolve()}\n")
    if kept is not None:
        sys.stderr.write(f"what both parts left behind: {kept}\n")


def check_writable(file: Path | None) -> None:
    """LS0622 before anything runs: what comes out of it has to be written somewhere."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        was_there = file.exists()
        file.open("a", encoding="utf-8").close()
        if not was_there:
            file.unlink()
    except OSError as error:
        raise RunError(
            "LS0622",
            f"{file} cannot be written",
            why=f"{error.strerror}.",
            hint="lockstep demo --report /tmp/demo-report.html",
        ) from None


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: what it started is stopped, its folder removed."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
