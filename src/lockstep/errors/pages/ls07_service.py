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
    "LS0761": Page(
        "The request does not fit",
        """\
A parameter, a header or the body of a request to the service is not what it should be; the message names
each of them. The service's /openapi.json has the forms of all requests, docs/reference/rest.md shows them.""",
    ),
    "LS0762": Page(
        "The service's packages are not installed",
        """\
`lockstep serve`, `lockstep.Client` and commands with --service need packages that Lockstep alone does not:
pip install 'lockstep[serve]'.""",
    ),
    "LS0763": Page(
        "The job runs",
        """\
A job is deleted, or started again, only when it has stopped: `lockstep stop JOB` ends it after the epochs
under way, and `lockstep kill JOB` at once.

A job whose store several hosts share has a folder on each of them, which their agents remove: what a host kept
would be taken for the state of a new job of the same name. So a host that has state of the job and does not
answer is in the way. Start its agent; or, if it is gone for good, `lockstep delete JOB --force`.""",
    ),
    "LS0764": Page(
        "The spec has changed meanwhile",
        """\
A change of a job's spec says which spec it was made for (If-Match, with the ETag of the answer that was
read). Somebody else has changed it since, so nothing was done. Read it again, look, and send the change
with the new ETag.""",
    ),
    "LS0765": Page(
        "If-Match is missing",
        """\
PUT /api/v1/jobs/{job}/spec needs the ETag of the spec that is to be changed, as If-Match: otherwise two
people who change it at the same time undo each other's change. `If-Match: *` changes whatever is there.""",
    ),
    "LS0766": Page(
        "The request is too large",
        """\
A request may have 256 kB, a bundle of a job's code 32 MB, and records sent to /ingest 16 MB. Send records
in several requests. A bundle has the job's file and the modules that it imports: data belongs elsewhere.""",
    ),
    "LS0767": Page(
        "Too many requests",
        """\
Each caller has a number of requests a second, all callers together a number of streams and of bytes in
memory. Records are also refused while too many of a journal wait to be read by a job: that is how a sender
learns to slow down. Send the same request again after the seconds that Retry-After says; nothing of it was
done.""",
    ),
    "LS0768": Page(
        "The service does not know who asks",
        """\
Once a token was made, every request has to come with one: `Authorization: Bearer TOKEN`, or for commands the
variable LOCKSTEP_SERVICE_TOKEN; people paste it once into the page /login. `lockstep service-token create
NAME --scope read` makes one on the machine of the service, and shows it once: only a hash is kept.""",
    ),
    "LS0769": Page(
        "The token may not do this",
        """\
A token has a scope. `read` looks at jobs, `operate` changes them and sends records, `submit` brings new code
and deletes jobs; each implies those before it. Make another token with the scope that is needed.""",
    ),
    "LS0770": Page(
        "The request came from another site",
        """\
A web page somewhere can make your browser send requests to your own machine. The service refuses changes that
a page of another site has asked for, and, while there are no tokens, everything that was asked for by a name
that is not this machine's. Open the service by its own address, http://127.0.0.1:8470; programs on other
machines use a token.""",
    ),
    "LS0771": Page(
        "The service may not listen like this",
        """\
An address that other machines can reach needs tokens (`lockstep service-token create NAME`), so that not
everybody there can run code here, and TLS (--tls-certificate and --tls-key), so that tokens cannot be read on
the way. Behind a proxy that does TLS, --insecure does without it; nothing does without tokens. The same
code says that an address is taken by another process, or that certificate or key cannot be read.""",
    ),
    "LS0772": Page(
        "The tokens of the service",
        """\
Tokens are made, listed and revoked by `lockstep service-token`; each has a name of its own. Their hashes are
in ~/.config/lockstep/service-tokens.json (or the file that --tokens names), readable by its owner alone. A
file that cannot be read lets nobody in: mend it, or remove it and make the tokens anew.""",
    ),
    "LS0773": Page(
        "The bundle was not taken",
        """\
A job is submitted as a zip file with its Python file at the top and its modules beside it or in folders, and
with the sha256 of these bytes in the header Lockstep-Digest. Names are letters, digits, dot, dash and
underscore. At most 2,000 files and 128 MB unpacked are taken. `lockstep submit` makes such a bundle.""",
    ),
    "LS0774": Page(
        "The submitted job could not be loaded",
        """\
The job's file was run in a process of its own, and that ended without an answer or took too long; the message
has the end of what it printed. `lockstep plan job.py` does the same on your machine. Packages that the job
imports have to be installed where the service runs.""",
    ),
    "LS0775": Page(
        "The service does not answer",
        """\
A command or `lockstep.Client` could not reach the service, or what answered is not one. Look at the address
(--service, LOCKSTEP_SERVICE) and whether `lockstep serve` runs there. Changes are safe to repeat: send them
with the same key.""",
    ),
    "LS0776": Page(
        "Nobody coordinates the job",
        """\
An operation is carried out by whoever coordinates the job: `lockstep run`, a host's agent, or a process that
`lockstep serve` has started. There is none now, so nothing would happen. The operation, if one was asked for,
stays in the job's store: whoever coordinates next carries it out, unless its deadline has passed by then.""",
    ),
    "LS0778": Page(
        "There is no such address",
        """\
The service has no such path, or not for this method. /openapi.json lists all of them, and so does
docs/reference/rest.md.""",
    ),
    "LS0779": Page(
        "The service failed unexpectedly",
        """\
An error that nobody expected, which is a fault of Lockstep. The traceback is on the standard error of
`lockstep serve`; the service and its jobs go on.""",
    ),
}
