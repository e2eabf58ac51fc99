"""Pages of the codes LS04xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0401": Page(
        "file of a newer Lockstep",
        """Every file of the store carries a format version. This one was written by a newer Lockstep than the one you
run, and an older one could misread it, so it was left untouched.

Run the newer Lockstep again (`lockstep --version` on the machine that wrote it), or work in another folder. Files of an
older version need nothing: they are migrated when they are opened.""",
    ),
    "LS0402": Page(
        "not a Lockstep file, or damaged",
        """A file in the store's folder is not what its name says: another program's database, a journal where a ledger
should be, no database at all, or one that SQLite finds damaged.

Nothing was changed. If the file is not yours, move it away; if it was damaged (a failing disk, a copy taken while
it was in use), restore it from a copy. A copy of a running store needs all three files: .db, .db-wal and .db-shm, or
better `sqlite3 FILE ".backup COPY"`.""",
    ),
    "LS0403": Page(
        "a record does not fit the schema",
        """A journal's schema is declared once, and every record is checked when it is appended: one that got in wrongly
would stop every replica later. The message names the line, the field, what came and what was expected.

Nothing is converted silently. Numbers have no quotes; whole numbers no fraction; booleans are true or false; times are
ISO 8601 text ("2026-03-01T12:00:00Z"; without a zone they are taken as UTC), never numbers, since a number does not say
its unit; bytes are base64; a decimal must fit exactly. A missing field is null, an unknown one is refused.

The whole call was refused, so nothing of it has to be taken back: mend the line and put the lot again.""",
    ),
    "LS0404": Page(
        "the store's file cannot be read or written",
        """The disk is full, gone, or reports errors. What had been acknowledged is on disk; the write that failed was
not acknowledged and left nothing behind.

Make room (`df -h`, `du -sh .lockstep`) or mend the disk, then start again: the job continues where it was.""",
    ),
    "LS0405": Page(
        "a replaced replica tried to seal",
        """Each start of a replica is a new incarnation, and only the newest one that was not retired may seal epochs.
Whoever gets this error was declared dead (it hung, or its machine did) and was replaced; then it woke up.

There is nothing to do: its replacement goes on, and this process ends. If it happens often, the replica is slow or
its machine overloaded: see `hang_timeout_s` in lockstep.toml.""",
    ),
    "LS0406": Page(
        "an epoch was to be sealed out of order",
        """An epoch begins where the one before it ends, so the ledger has no gaps: epoch 7 is refused until epoch 6 is
sealed. Only a fault in Lockstep, or a checkpoint that belongs to another ledger, leads here.

If you moved a store's folder or restored an old copy of it, the replicas' checkpoints are ahead of it: restore both
from the same time, or remove the checkpoints so that the replicas are seeded anew.""",
    ),
    "LS0407": Page(
        "an entry does not continue the ledger",
        """A new epoch was to begin before the end of the one before it: a position or the epoch time moved back, or a
source or partition is missing. Records would then be in two epochs, or in none.

Usually a source was replaced by a shorter one: a journal deleted and made again, a directory emptied. Give the new
one a new name, both in the job and on disk.""",
    ),
    "LS0408": Page(
        "no longer kept",
        """Journal records and ledger entries are kept down to the lowest epoch that any replica, kept snapshot or
savepoint still needs. Something below that was asked for.

A replica that is so far behind is seeded from a newer snapshot; `lockstep run` does that by itself. If you read a
journal yourself, begin at its oldest kept position.""",
    ),
    "LS0409": Page(
        "the journal has another schema",
        """A journal's schema is declared once, by whoever opens it first, and what is stored keeps its form. The
message shows where the schema you gave differs from it: types, missing or new fields, or their order.

Use the journal's schema, or another journal for the new kind of records.""",
    ),
    "LS0410": Page(
        "no such journal",
        """A journal was opened by name, without a schema, and there is none of that name in this project. The message
lists those there are; a different folder (`--project`) has its own.

A journal is made by whoever first opens it with a schema: a job that reads it, or
`lockstep put NAME --schema "..."`.""",
    ),
    "LS0411": Page(
        "the name cannot be used",
        """Names of jobs and journals become folders. They have letters, digits, dashes and underscores, with dots
inside, and at most 100 characters; they do not begin with a dash or a dot.""",
    ),
    "LS0412": Page(
        "the store's file cannot be written",
        """This user may not write the store's folder, or the disk is mounted read-only. SQLite needs to write the
folder itself too, for the log beside the file.

Change the owner or the rights of the folder (often it was made by root), or work in another one.""",
    ),
    "LS0413": Page(
        "the store's file is locked",
        """Another process held the file's write lock for longer than the caller waits: 30 s, or `lag_timeout_s` for
those who keep a job going. Lockstep's transactions take milliseconds, so that process is stopped (Ctrl-Z, a debugger),
stuck on its disk, or it is a `sqlite3` shell with an open transaction.

A replica that is stopped while it holds the lock is ended by its supervisor after `lag_timeout_s`, and one that holds
it for `hang_timeout_s` too; the others go on. Anybody else's process is yours to see to:
`fuser .lockstep/jobs/*/ledger.db` shows who has the file open. Let that process go on, or end it; nothing is lost.
A store on a network file system is not supported: its locks cannot be relied upon.""",
    ),
    "LS0414": Page(
        "no such partition or position",
        """A journal was asked for a partition it does not have, or for records beyond its end. Partitions are numbered
from 0 and their number is fixed when the journal is made.

If the ledger names positions that the journal does not have, its file was replaced by an older copy, or by an empty
one: restore the journal and the ledger from the same time.""",
    ),
    "LS0415": Page(
        "the type cannot be kept",
        """Journals keep records as Arrow batches, and Spark must read back exactly the type that was declared. Types
for which that is not so are refused. Use string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s),
date, timestamp, timestamp_ntz, binary, or arrays, maps and structs of them.""",
    ),
    "LS0416": Page(
        "forked while the store was in use",
        """A process called fork() while one of its threads was in the middle of a transaction. SQLite's locks do not
survive that, and a child that went on could damage the file, so it may not use the store.

Start processes with `multiprocessing.get_context("spawn")`, or open the store in the child, after the fork.""",
    ),
    "LS0417": Page(
        "an append was interrupted",
        """Threads that append at the same time share one transaction, which one of them writes for all. That thread was
interrupted (Ctrl-C), so it is not known whether the transaction came to its end; all of it is on disk, or none.

Look at the end of the journal before you append the records again; or give them a name
(`ls.Journal("logins").put(records, once="importer/17")`), and simply put them again.""",
    ),
    "LS0418": Page(
        "too many dead letters",
        """Records that do not parse, or that a function could not take, become dead letters, and the job goes on. Now
more of them wait than dead_letters_max allows, so that a file of the wrong kind does not drain away unnoticed. The
epoch in which the limit was passed is not published; nothing is lost.

1. `lockstep dead-letters JOB` lists them with the reasons.
2. Mend the cause: the producer, the source's schema, the function. `lockstep run` goes on as soon as fewer wait.
3. `lockstep dead-letters JOB --put-back` gives them to their sources again, `--dismiss` stops waiting for them;
   `--export FILE` keeps a copy first. Or allow more: dead_letters_max = 100000 under [run] in lockstep.toml.""",
    ),
    "LS0419": Page(
        "dead letters are handled by two calls at once",
        """Each dead letter is put back or dismissed once, so of two calls at the same time one is refused, and does
nothing. List the letters again: those that still wait can be handled.""",
    ),
    "LS0420": Page(
        "an address that names no kind of store",
        """The store of a job (ledger, leases, facts) is opened by its address, which begins with the kind of store:
`sqlite:FOLDER` is embedded, in a folder of the project; `zookeeper://h1:2181,h2:2181,h3:2181/lockstep` is an ensemble
that several hosts share. It stands in lockstep.toml (`store = "sqlite:.lockstep"`, which is also what holds without
it).""",
    ),
    "LS0421": Page(
        "the coordination service does not answer",
        """The job's store is in ZooKeeper, and no member of its ensemble answered in time. While a leader is elected
(below a second after the old one died, some seconds if it hangs) calls wait; this one ran out of patience. Supervisor
and replicas try again, and no epoch is lost or sealed twice: what a call whose answer was lost has done is found out by
reading.

1. More than half of the members have to run: `echo srvr | nc HOST 2181` says which mode each is in.
2. The addresses in lockstep.toml must be reachable from this host.
3. A disk that is slow to sync makes ZooKeeper slow: give its log a disk of its own.""",
    ),
    "LS0422": Page(
        "something is too large for the coordination service",
        """ZooKeeper takes at most 1 MB in one request, and an epoch is sealed in one request with all items of its
sources (for a files source, one for each chunk of a file). Nothing of it was written.

Seal smaller epochs (`records_per_epoch_max` under [run]), or let the files source read fewer and larger files.""",
    ),
    "LS0423": Page(
        "ZooKeeper's client is not installed",
        """A store whose address begins with `zookeeper://` needs the package kazoo, which is not part of the base
installation: `pip install 'lockstep[zookeeper]'`, on every host.""",
    ),
    "LS0424": Page(
        "the coordination service refused a request",
        """ZooKeeper answered, and said no: the path of the store's address belongs to somebody else or may not be
written, or somebody removed nodes of a job that runs. The path should be Lockstep's own. If the nodes of a job were
removed, its ledger is gone; start the job under another name.""",
    ),
    "LS0425": Page(
        "two replicas derived different epochs",
        """With order="derived" every replica derives the entry of an epoch from the topics alone, and compares it
later with what the ledger was told by whoever was first. They differ, which must not happen: the log was changed under
them (records were removed, brokers lost some that they had acknowledged), or code of the job that event time depends on
gives different results. The message has both entries.

The job stops. Compare what was published with the topics, find out what happened to these, and run the job under a new
name.""",
    ),
    "LS0426": Page(
        "an epoch is not in the ledger yet",
        """With order="derived" the ledger is told of epochs a moment later. A replica that starts from another's
snapshot needs to know where the last epoch of it ends, and the other has died before it told. The replica starts again
by itself; when the other is back, or if there is an older snapshot, it goes on.""",
    ),
    "LS0427": Page(
        "a job that is being deleted",
        """`lockstep delete` on a store that several hosts share first sees to it that nobody opens the job any more,
then removes its folder on every host, then its nodes, and its name last. It is under way, or it was cut off in the
middle: a host did not answer, or the command was ended. `lockstep delete JOB` goes on where it was. After that a job of
the same name begins anew.""",
    ),
    "LS0428": Page(
        "a name that stands for other records",
        """Records can be put under a name: `ls.Journal("logins").put(records, once="importer/17")`, `lockstep put
--once NAME`, `Idempotency-Key` over HTTP. The same records under the same name are taken for a repetition and are not
written again. These are other records, so taking them for a repetition would lose them. Nothing of the call was kept.

- A producer that counts its batches has begun to count anew: put something into the name that changes, like the time
  of its start, or go on from the number that it had.
- A repetition has to be made of the same records: a time or an id that is made anew for each attempt makes other ones.
- The file of a `lockstep put --once NAME` was changed after parts of it were put: chunk N has the name NAME/N. Put what
  is new under a new name.""",
    ),
    "LS0429": Page(
        "not a name for records",
        """A name that records are put under (`once=` in Python, `--once` on the command line) is a text of 1 to 200
printable characters. It says which records these are, and is the same when they are put again: who sends them and the
number of the batch ("importer-3/17"), or the file that they are from.""",
    ),
    "LS0430": Page(
        "the journal was closed",
        """An `ls.Journal` cannot be written to after `close()`, or after the end of its `with` block. Keep it open for
as long as there are records to write: opening it costs some milliseconds, a put on an open one far less.""",
    ),
    "LS0431": Page(
        "an address is not a journal",
        """`ls.Journal` and `lockstep put` write to journals, which are files in `.lockstep/journals` of the project
and have a plain name. Records for a Kafka topic are written with a Kafka producer (an idempotent one, or with
transactions, where a retry must not double them); a job reads them with `ls.kafka(...)`.""",
    ),
}
