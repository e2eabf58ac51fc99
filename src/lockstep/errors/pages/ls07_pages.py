"""Pages of the codes LS078x: the pages of the service."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0780": Page(
        "The form did not come from a page of this service",
        """\
Every form has a secret that only a page of this service can contain, so that no other site can make a browser change
a job. It is made anew when the service starts: load the page again, and send the form from there. Programs use REST,
which needs no form.""",
    ),
    "LS0781": Page(
        "A field of the form is not a number",
        """\
Replicas, partitions and cores are whole numbers, in digits. A field that is left empty changes nothing.""",
    ),
    "LS0782": Page(
        "Nothing of that name can be asked of a job",
        """\
The verbs are rescale, restart, move, deactivate, activate, stop and kill; of an operation under way, commit and
rollback. The page of a job has a button for each that can be asked now.""",
    ),
    "LS0783": Page(
        "There is no such page",
        """\
The list of jobs is at /, a job at /jobs/NAME. Operations and epochs that are too old are forgotten, and their pages
with them.""",
    ),
    "LS0784": Page(
        "Too many pages are kept up to date",
        """\
A page that is open in a browser holds a connection, over which the service sends what changes. There is a limit to
their number. Pages themselves are answered still: without JavaScript a page loads itself again every few seconds.""",
    ),
}
