"""Pages of the codes LS067x: faults on order."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0670": Page(
        "LOCKSTEP_FAULTS does not name a folder",
        """\
With the environment variable LOCKSTEP_FAULTS set, the processes of a job obey orders to kill
themselves, to wait, and to fail operations of the store, at exactly the moments that hurt most.
`lockstep chaos` and the tests use it. It must never be on by accident, so a value that is not a
folder is refused instead of ignored.

Unset it. If you want the faults: make the folder first. While faults are on, every process says so
on its standard error, and every start of a replica says so in `lockstep events`.""",
    ),
    "LS0671": Page(
        "An order for a fault cannot be given or read",
        """\
Orders are small JSON files in the folder that LOCKSTEP_FAULTS names. Each has a name that is used
once: its file moves from `orders` to `claimed` when a process obeys it, and `obeyed` then says who
did. An order that cannot be read is moved to `refused`, and the job goes on as if it had not been
there.

Look at the file in `refused`: a misspelled field, a window or a deed that does not exist, or a name
that differs from the file's.""",
    ),
}
