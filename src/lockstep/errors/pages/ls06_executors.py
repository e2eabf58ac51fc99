"""Pages of the codes LS069x: masters that are not local, and their executors."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0690": Page(
        "An executor does not share a folder with the driver",
        """\
With a master that is not local, executors read and write files of the job: its checkpoints (the state
of every key), staged rows, tables, journals, what files sources read and files sinks write. They have to
see the same files as the driver, at the same path. Before the first epoch, and whenever an executor
joins, Lockstep leaves a file in each of these folders, has every executor read it and leave one of its
own, and reads that. One of them did not see it, or what it wrote did not arrive.

Without this check such a job seems well: state is on that executor's own disk, rows are right, and all
of it is lost at the next restart.

Put the project's folder on a file system that all hosts mount at the same path (NFS or the like), for
reading and writing. Or have checkpoints at an address (checkpoints = "hdfs://HOST:PORT/FOLDER" in
lockstep.toml, docs/guide/places.md), and sources and sinks where all hosts reach them. Or use local masters
(`local[4]`) and as many replicas as you want copies: each has its own disk then, and they agree through
the ledger.""",
    ),
    "LS0691": Page(
        "No executor computes",
        """\
The master took the application, but no executor came in time (half of start_timeout_s), or those that
came cannot run Lockstep's Python.

- Cores or memory of the cluster are taken: the master's page shows it. Each replica is an application
  of its own. Without `spark.cores.max` it takes the cluster's cores divided by the number of replicas
  (2 if the master's page, at `spark.master.ui.port`, does not answer); `spark.executor.memory` is 1g.
- Executors cannot reach the driver: they end and are started again and again, and their logs in the
  workers' folders say so. `spark.driver.host` is the address they are given; a firewall may need fixed
  ports (`spark.driver.port`, `spark.driver.blockManager.port`).
- The hosts of the cluster need the same Python with Lockstep at the same path as the driver's host.""",
    ),
    "LS0692": Page(
        "Executors on other machines cannot open this host's SQLite files",
        """\
Journals (`ls.journal`, loops, the journals between stages) and dead letters are SQLite files. Processes
of one machine share them safely; those of several machines do not, on no network file system: they
would read stale data, or damage the file.

A job that runs on executors of other machines reads Kafka or files, and has its own journals and dead
letters in topics: `journals = "kafka://h1:9092/lockstep"` in lockstep.toml, before its first start.
Without that it has one stage and sets nothing aside: `on_bad_record="stop"` for its sources,
`on_error="fail"` for its functions. Or use local masters: replicas on several hosts need no executors.""",
    ),
    "LS0693": Page(
        "The driver's address is not known",
        """\
With a master that is not local, executors connect to the driver. Lockstep gives them the address by
which this host reaches the master. The master's URL names no host (`yarn`), or its host has no address
that can be reached from here.

Name the address yourself, for one replica or for all:

    [replica.r0.spark]
    "spark.driver.host" = "10.0.0.7"

Behind a translated address, `spark.driver.bindAddress` is the one of this host to listen on.""",
    ),
    "LS0694": Page(
        "An executor has other versions than the driver",
        """\
Python, Spark and Arrow have to be the same wherever a job computes: results could differ otherwise.
An executor answered with another fingerprint of its environment.

Install the same environment at the same path on every host of the cluster. The workers of a standalone
cluster use the Spark that they were started from: start them from the same version of pyspark.""",
    ),
}
