"""Pages of the codes LS00xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0001": Page(
        "No Java was found",
        "Spark runs on Java, and Lockstep runs on Spark. Java is looked for in JAVA_HOME, then on the PATH, then "
        "in the folders where systems keep it. A JAVA_HOME that leads nowhere is an error and not passed over, "
        "because Spark itself would use it.\n\nInstall a Java 17 or 21 runtime (on Debian and Ubuntu: apt-get "
        "install openjdk-17-jre-headless), or set JAVA_HOME to the one you have. `lockstep doctor` shows what "
        "was found.",
    ),
    "LS0002": Page(
        "Java is too old",
        "Spark 4 is compiled for Java 17 and does not start on anything older. If several are installed, "
        "JAVA_HOME decides before the PATH does: unset it, or let it name a newer one. `lockstep doctor` shows "
        "which Java was found, and how.",
    ),
    "LS0003": Page(
        "No job has run in this folder",
        "Lockstep keeps what it knows of a project's jobs in .lockstep inside the project folder, and here there "
        "is none. The project folder is the current one unless --project names another; it is given before the "
        "subcommand:\n\n    lockstep --project /srv/alerts status",
    ),
    "LS0004": Page(
        "Which job?",
        "Several jobs have run in this project folder and the command needs one of them, or the name that was "
        'given is none of theirs. The message lists them. The name is the one in ls.Job("..."), not that of the '
        "file.",
    ),
    "LS0005": Page(
        "lockstep.toml does not parse",
        "The file lockstep.toml in the project folder is not valid TOML; the message has the line and column "
        "where reading stopped. Text values need quotes, tables are written as [run] or [spark], and a key may "
        "appear once.",
    ),
    "LS0006": Page(
        "A setting is not valid",
        "A name is unknown or a value is outside what is allowed. Settings come from lockstep.toml, then from "
        "the options of ls.Job(...), then from the command line (--set), and the last one wins; the message "
        'names the setting by its path. Lengths of time are numbers of seconds, or text such as "200 ms".',
    ),
    "LS0007": Page(
        "A value on the command line is not understood",
        "An option was given something it cannot take apart: --set and --spark-conf take KEY=VALUE, --epochs "
        "takes two epoch numbers with a colon between them. Put quotes around a value with spaces, so that the "
        "shell keeps it together.",
    ),
    "LS0008": Page(
        "There is no such code",
        "Every error of Lockstep has a code of LS and four digits, and the first two digits are its area: LS00 "
        "the machine and the command line, LS01 the job, LS02 expressions, LS03 Python functions, LS04 the "
        "store, LS05 sources and sinks, LS06 the running job. `lockstep explain` lists them all.",
    ),
    "LS0009": Page(
        "The input cannot be read",
        "The file that `lockstep put` was given is missing, is a folder, or may not be read by this user. "
        "Without a file it reads from stdin, so `lockstep put logins < logins.jsonl` and pipes work too.",
    ),
    "LS0010": Page(
        "There is nothing to read at this place",
        "`lockstep tail` and `lockstep compact` take the folder of a files sink (the path that the job gives to "
        "ls.files), and `tail` also takes the name of a journal. What was given is neither. A sink's folder "
        "appears when its job starts; relative paths start at the project folder, the journals are those of the "
        "project folder.",
    ),
    "LS0011": Page(
        "The input has no line ends",
        "`lockstep put` reads one JSON object per line, and keeps no more than a batch of them in memory. What "
        "came is longer than any line should be: perhaps it is one large JSON array (`jq -c '.[]'` takes it "
        "apart), or no text at all. Batches before the line that is named were appended and stay.",
    ),
    "LS0013": Page(
        "The socket cannot be used as it was asked for",
        "`lockstep ingest socket --listen` takes lines from whoever connects: nobody is asked who they are, and "
        "nothing is encrypted. So it listens on this machine only (127.0.0.1) unless --allow-remote says that other "
        "machines may connect; do that inside a network where all of them may be trusted. A port that another "
        "program listens on, or one below 1024 without the right to it, cannot be listened on either: take another "
        "--port.",
    ),
    "LS0014": Page(
        "The journal cannot hold lines of text",
        "Without --format jsonl every line is a record of one text column, so the journal's schema has one column of "
        'type string ("line string", the default), and if wanted one of type timestamp that gets the time at which '
        'the line came ("line string, at timestamp"). For lines that are JSON objects use --format jsonl; then the '
        "schema has the fields of the objects.",
    ),
    "LS0017": Page(
        "One thing at a time with dead letters",
        "`lockstep dead-letters` lists; with --export it writes them to a file, with --put-back it gives them to their "
        "sources again, with --dismiss it stops waiting for them. Only one of these in a call: export first if you "
        "want a copy. --handled shows also those that were put back or dismissed before, and nothing is handled twice.",
    ),
    "LS0018": Page(
        "The export cannot be written",
        "`lockstep dead-letters JOB --export FILE` makes a new file and never replaces one. Name a file that is not "
        "there yet, in a folder that this user may write; `--export -` writes to stdout.",
    ),
    "LS0019": Page(
        "The new project cannot be made here",
        "`lockstep new NAME` makes a folder NAME in the current folder (or in the one that --project names, before the "
        "subcommand) and never touches one that is there, empty or not: nothing of yours is overwritten. Take another "
        "name, or remove the folder first. The same message comes if the folder cannot be written: the reason says "
        "why, and nothing half-made is left.",
    ),
    "LS0012": Page(
        "The class archive could not be made",
        "Spark's JVM loads about fifteen thousand classes before its first epoch. Lockstep keeps them in an archive "
        "under ~/.cache/lockstep (or XDG_CACHE_HOME), made once by `make setup` or `lockstep doctor --fix`, and a "
        "replica boots in half the time. Without it everything works, only replicas take longer to start and to "
        "come back.\n\nThe usual reasons are a full disk (it takes 170 MB) and a folder that may not be written. "
        "The message has the last "
        "line of what Spark said; `lockstep doctor` looks at the machine.",
    ),
    "LS0016": Page(
        "The simulator was asked for something it does not have",
        "`lockstep sim --plant BUG` takes one of the names that `lockstep sim --bugs` lists. `--with NAME=VALUE` "
        "changes one field of the scenario that the seed would draw; the value is written as in JSON, so spans are "
        "--with 'disk_full_s=[[2.0, 5.0]]' and a chance is --with crash_chance=0.05. The message names the fields. "
        "`--trace` tells the story of one seed, which `--seed` names.",
    ),
    "LS0021": Page(
        "There is no such service",
        "`lockstep services up` starts real servers for development and tests: kafka, zookeeper, postgres, spark and "
        "hdfs. A number after = says how many nodes: zookeeper=3 is an ensemble of three that survives the loss of "
        "one, kafka=3 three brokers. Postgres has one.",
    ),
    "LS0022": Page(
        "A service cannot be had on this machine",
        "ZooKeeper comes out of pyspark's own jars and needs Java. Kafka's and HDFS's jars are fetched once with "
        "Maven's client (Debian's package maven), unless KAFKA_HOME names the folder of a Kafka that you have; they "
        "are kept under ~/.cache/lockstep (or XDG_CACHE_HOME). Postgres comes from Debian (postgresql) or from PyPI "
        "(pgserver), and never runs as root: root lends it the user postgres or nobody.\n\n`lockstep services list` "
        "says what is here, `lockstep services install kafka postgres` gets the rest. Nothing is ever installed "
        "without that command.",
    ),
    "LS0023": Page(
        "A service did not start, or ended",
        "A server that `lockstep services up` (or a test, with lockstep.services.running) started ended by itself, "
        "could not be prepared, or did not answer in time. The message has the end of its log. With --folder DIR "
        "its settings, data and log stay in DIR/SERVICE/NODE. The usual reasons are too little memory (a broker "
        "takes 180 MB, a ZooKeeper node 110 MB, Postgres 40 MB) and a full disk.",
    ),
    "LS0024": Page(
        "Hosts could not be made",
        "Tests and the demo of a cluster make several hosts on one machine out of Linux's namespaces: each has a "
        "network, processes and a folder of its own, so that one can be killed or cut off as a machine is. That needs "
        "Linux, the programs unshare, nsenter, mount (util-linux) and ip (iproute2), and either root or the right to "
        "make user namespaces. Where they are not permitted (many containers), the demo goes on with three agents "
        "on the loopback interface, and says that no cable can be pulled.",
    ),
    "LS0025": Page(
        "Polars is not installed",
        "The rows of a sink can be had as an Arrow table, for pandas, and for Polars where that is installed in the "
        "environment of the program: pip install polars. Lockstep itself does not need it: .arrow() and .pandas() "
        "always work, and other libraries (DuckDB, too) take the Arrow table as it is.",
    ),
}
