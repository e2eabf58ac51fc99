"""Pages of the codes LS0016: the simulator's command line."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0016": Page(
        "The simulator was asked for something it does not have",
        "`lockstep sim --plant BUG` takes one of the names that `lockstep sim --bugs` lists. `--with NAME=VALUE` "
        "changes one field of the scenario that the seed would draw; the value is written as in JSON, so spans are "
        "--with 'disk_full_s=[[2.0, 5.0]]' and a chance is --with crash_chance=0.05. The message names the fields. "
        "`--trace` tells the story of one seed, which `--seed` names.",
    ),
}
