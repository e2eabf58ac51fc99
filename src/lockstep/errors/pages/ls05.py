"""Pages of the codes LS05xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0501": Page(
        "a source or sink is described wrongly",
        """What was written for a source or a sink cannot be right: a name, a path, a format, a number or a
column that it does not know or does not allow. The message says which, and what would be allowed.
Specs are checked where they are written, before anything runs.

    ls.files("in/logins", schema="user string, at timestamp", format="csv")
    ls.sqlite("out/alerts.db", table="alerts", key=("user",))
    ls.rate(1000), ls.collection([{"n": 1}], schema="n bigint"), ls.console()

Names of journals become folders, so they have letters, digits, "_", "-" and "." only. Columns whose
names a sink needs for itself ("lockstep_epoch", "__epoch") have to be renamed before it.""",
    ),
    "LS0502": Page(
        "a sink was written by a newer version",
        """The folder or table was written by a newer version of Lockstep, in a format that this version does
not know. Reading it with old rules could show epochs twice or not at all, so it is refused.

Upgrade Lockstep on this machine. A newer version reads what an older one wrote.""",
    ),
    "LS0503": Page(
        "the place belongs to somebody else",
        """A sink's folder or table has one owner: the sink of the job that made it. It holds that sink's
fences, which say which epochs are published. A second writer would find its epochs "already
published", or mix its rows with the other's. A table that Lockstep did not make has no fences at
all, and is never written to.

Choose another path or table. Renaming a job or a sink makes it another owner too: give it a new
place, or keep the name. If the old content is not wanted any more, remove the folder (or drop the
table and its rows in _lockstep_sinks and _lockstep_epochs) while no job runs.""",
    ),
    "LS0504": Page(
        "a file changed after it was sealed",
        """Epochs are computed by several replicas, and again after a crash, so their input must not change.
When an epoch takes a part of a file, the file's path, size, modification time and a hash of the
content are sealed with it. Now the file is different.

Usual causes: a program appends to a file that it should have finished; a file is rewritten under
the same name; it was copied again with a new time. Write files under a name that begins with "." or
ends in ".tmp" and rename them when they are complete, or raise still_for= if the writer makes long
pauses.

To go on: put the old file back (with its old time: cp -p), or, if every replica has read it, remove
it. Give the new content a new name.""",
    ),
    "LS0505": Page(
        "a sealed file is missing",
        """An epoch that a replica still has to read holds a part of this file, and the file is not there any
more. Files may be removed only when no replica and no kept snapshot needs their epochs: `lockstep
ledger` shows the floor.

Put the file back, unchanged and with its old modification time (cp -p, or restore it from a
backup). Nothing is lost: the job goes on where it was.""",
    ),
    "LS0506": Page(
        "a record cannot be read",
        """A record does not parse, or does not fit the schema, and the source says on_bad_record="stop".
The message names file and line, or topic, partition and offset, and the cause.

Restarting does not help: the record is sealed into an epoch. With on_bad_record="skip" (the default)
such records are set aside by all replicas alike, each a dead letter with place and reason
(`lockstep dead-letters JOB`), and the job goes on.""",
    ),
    "LS0507": Page(
        "an epoch out of order",
        """Sinks promise that epochs appear in order and without gaps, and this epoch does not follow the
newest one in the sink. It is a last line of defence: in normal operation it does not happen.

Usual cause: epochs were removed from the sink by hand, or the store (.lockstep) was deleted while
the sink was kept, so that epoch numbers began again. Keep both or remove both.""",
    ),
    "LS0508": Page(
        "no space left",
        """The disk, or a quota on it, is full. An epoch becomes visible by one last small act after all of its
data is safely written, so nothing half-written can be seen. What was written of it has been removed
again.

Make room. The replica tries again by itself after its restart, and the epoch is published then.
`lockstep status` tells how far it is. Small files of old epochs can be merged by compaction.""",
    ),
    "LS0509": Page(
        "a path cannot be used",
        """The operating system, or SQLite, refused to read or write the path: it does not exist, is not a
folder, is not permitted to this user, is read-only, or its file system lacks something needed
(sinks need hard links, which FAT does not have). The message has the system's own words.""",
    ),
    "LS0510": Page(
        "a name leads out of its folder",
        """Manifests and sealed lists name files relative to their own folder. This one contains "..", begins
with "/" or names a file elsewhere. Lockstep never writes such a name, so the list was edited or
damaged; following it could read or delete something that does not belong to the job.""",
    ),
    "LS0511": Page(
        "a sink is locked",
        """Another program has held the sink's database for longer than Lockstep waits (30 seconds). SQLite has
one writer at a time.

Find the program with an open transaction (a database browser with unsaved changes, a script without
commit) and end it. The epoch is published by the next attempt.""",
    ),
    "LS0512": Page(
        "a sink was made for something else",
        """The sink's columns, their types, its key or its file format differ from those that it was made with.
Readers rely on them, and old and new rows would not fit together.

Write to a new path or table; the old one keeps what it has. Or give the job its old output back,
for instance with .select(...) or .rename(...) before the sink.""",
    ),
    "LS0513": Page(
        "nothing is published there",
        """There is no sink of Lockstep's at this path (or no such table or epoch in it). A sink makes its
folder when its job runs for the first time, and an epoch can be read when it has been published.

Check the path: it is relative to the folder that you are in. `lockstep plan job.py` lists a job's
sinks.""",
    ),
    "LS0514": Page(
        "a sink is damaged",
        """A manifest, or a data file that it names, is not what Lockstep wrote: it does not parse, is missing,
or has another number of rows. Lockstep writes such files once, whole, and never changes them, so
something else did: a disk error, an editor, a clean-up script.

Restore the file from a backup. Do not delete a manifest: its epoch would vanish from the output for
ever.""",
    ),
    "LS0515": Page(
        "a row does not fit its table",
        """The database refused a row; the message has its words. Postgres holds no character 0 in a text, and no value
of more than 2,700 bytes in a key.

SQLite: Most often a column of the sink's key is null, and the table was made by an earlier
release, which did not allow that. In a table of this release null is a value of a key like any other.

Write to a new table, or filter such rows out before the sink.""",
    ),
    "LS0520": Page(
        "a map inside another type",
        """Every epoch's output is fingerprinted by every replica and compared. The entries of a map have no
order of their own, so two replicas may hold the same map in different orders. A map that is a
column is put in order before it is hashed; one inside an array, a struct or another map is not.

Turn it into an array of structs before the sink, which keeps everything and has an order:

    .with_columns(tags=F.array_sort(F.map_entries("tags")))""",
    ),
    "LS0531": Page(
        "the client of Postgres is not installed",
        """ls.postgres(...) writes through psycopg, which is not installed with Lockstep itself:

    pip install "lockstep[postgres]"

on every machine that runs a replica.""",
    ),
    "LS0532": Page(
        "the password of a Postgres sink is in the wrong place",
        """A sink's address is part of the plan: it is drawn, compared between versions of a job, and kept on disk.
So it must not contain a password. Say where the password is instead:

    ls.postgres("host=db dbname=shop user=app", table="totals", password_env="SHOP_PASSWORD")

and set that environment variable where `lockstep run` is started. The client's own ways work too:
PGPASSWORD, a password file (passfile=... in the address, or ~/.pgpass) or a service file (service=...).""",
    ),
    "LS0533": Page(
        "the Postgres server cannot be reached",
        """Connecting failed, or the connection was lost and could not be made again within 30 seconds. The message has
the last answer. Nothing is lost and nothing doubled: whether an epoch was committed when the connection broke
is read from its fence, in the same database.

Check the address, the user, the password's place and pg_hba.conf. The replica tries again after its restart.""",
    ),
    "LS0534": Page(
        "a retired incarnation may not publish",
        """Each start of a replica is a new incarnation, and only the newest one publishes. This process belongs to an
older one: its host was cut off or stood still, its replica was started elsewhere and has published since.
It ends; nothing of what it held is needed.""",
    ),
    "LS0535": Page(
        "this Postgres is too old for a key",
        """A sink with key= keeps one row for each key, and null is a value of a key like any other. Postgres can hold
such a table from version 15 on (UNIQUE NULLS NOT DISTINCT). Sinks without a key work with older servers.""",
    ),
}
