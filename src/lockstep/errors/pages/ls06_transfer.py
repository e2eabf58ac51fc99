"""Pages of the codes LS066x: a snapshot on its way from one host to another."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0660": Page(
        "No snapshot came from another host",
        """\
A replica that starts fetches the snapshot of a peer from the host that the peer lives on. Where a
connection breaks it goes on from the same byte; here not a single byte came for a minute, or the
other host did not get its copy ready. The message has what happened last. The replica is tried
again after a pause, from whichever peer is healthy then.

Is that host up (`lockstep status`), and can this one reach it (a firewall, another network)? With
TLS: is its certificate for the name under which it was asked, and of the same authority?""",
    ),
    "LS0661": Page(
        "A peer's snapshot is not one to start from",
        """\
State is only taken from the newest, living start of a replica of the same job, with the same plan,
the same code and the same environment. The message says what was different. A retired replica may
have computed what nobody else has; the folder of one that moved to another host is old.

The replica is tried again after a pause. If code or environment differ, bring all hosts to the same
version of the job and of Lockstep, and start the job again.""",
    ),
    "LS0662": Page(
        "A file of a snapshot is not what was sent",
        """\
Each file of a snapshot has a SHA-256 in the list that comes before it. This file came with another
one, twice, so the bytes were changed on the disk of the other host or on the way. Nothing of the
snapshot was used, and the replica is tried again.

If it happens again, look for failing memory or disks on both hosts: dmesg, smartctl. The name of the
file is in the message.""",
    ),
    "LS0663": Page(
        "What a host sent is no snapshot",
        """\
The list of a snapshot's files is checked before anything is written: names stay inside the folder,
sizes and numbers are within limits, its format is this release's. What came is something else; the
message says what. Nothing was written.

Usually the two hosts have different releases of Lockstep (`lockstep --version`), or the address is
not that of an agent.""",
    ),
    "LS0664": Page(
        "There is no room for a snapshot",
        """\
Before a snapshot is copied or fetched, the free space of the disk is compared with its size. It does
not fit. Nothing was written. A seed needs the room of a replica's state on both hosts for as long as
it takes, and the receiving replica's old checkpoint stays until the new one is whole.

Make room on the disk that the message names; the replica is tried again after a pause.""",
    ),
    "LS0665": Page(
        "A snapshot is not offered any more",
        """\
A host keeps the copy that it has taken for a reader until the reader has all of it, or has asked for
nothing for three minutes; then the copy is removed, as it is when the agent starts anew. The reader
came back later than that.

The replica is tried again after a pause and asks for a new snapshot.""",
    ),
    "LS0666": Page(
        "A host offers as many snapshots as it may",
        """\
Each snapshot that a host offers takes room on its disk and time from the replicas that publish there,
so it offers four at once. The reader asks again for a minute; after that its replica is tried again
after a pause. Copies that nobody fetches are removed after three minutes.""",
    ),
    "LS0667": Page(
        "Another host does not know this host's token",
        """\
The hosts of a cluster share one token, and show it with every question. The other host has another
one, or this host has none. `lockstep token` on each host says where its token is; copy the file from
one host to all others (mode 600) and start the agents there again. The variable LOCKSTEP_TOKEN, if
it is set, stands above the file.""",
    ),
    "LS0668": Page(
        "A host is not there now",
        """\
A replica wanted to fetch the state of a peer, and the host that the peer lives on does not announce
itself at the store: it was stopped, has died or is cut off. Its replicas are started on other hosts;
this one is tried again after a pause, and finds them there, or starts from its own checkpoint.""",
    ),
}
