"""Pages of the codes LS076x and LS077x: the service, its tokens and its client."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0760": Page(
        "There is no such job",
        """\
A job is known by the name that its file gives it: Job("failed-logins"). `lockstep list` shows the jobs of a
project or of a service; `lockstep submit job.py` makes one.""",
    ),
}
