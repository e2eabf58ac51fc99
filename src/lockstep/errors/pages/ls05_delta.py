"""Pages for Delta tables."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES = {
    "LS0541": Page(
        "the client of Delta is not installed",
        """ls.delta(...) writes through deltalake, which is not installed with Lockstep itself:

    pip install "lockstep[delta]"

on every machine that runs a replica.""",
    ),
    "LS0542": Page(
        "a Delta table cannot have these columns",
        """The message names the columns and what is wrong with each. Delta holds booleans, integers, floats, decimals,
texts, binary, dates, times in microseconds (UTC or without a zone), and arrays, maps and structs of these. Names
ignore case and have no spaces and none of , ; { } ( ) =. Partition columns are texts, integers, booleans or dates;
columns of a key are no arrays, maps or structs.

Change the columns before the sink with .rename(...), .select(...) or .with_columns(...).""",
    ),
    "LS0543": Page(
        "a Delta table cannot be used",
        """Delta's client could not read the table or commit to it; the message has its words. Nothing of the epoch is
visible, or all of it: the next attempt looks at the table's log first, so nothing is doubled.

Most often the folder is gone, may not be written, or the disk is full. If another program commits to the table all
the time, the sink gives up after 30 attempts in a row; the replica tries again after its restart.""",
    ),
}
