"""Pages of the codes LS063x: the benches."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0630": Page(
        "A benchmark could not be carried out",
        """\
`lockstep bench` runs jobs, feeders and observers as processes of their own. One of them ended before
it was told to, or something took far longer than it should (a replica that does not come back, a
first batch that does not appear); figures from such a run would mean nothing, so there are none.

The message has the last lines of the process's log. `lockstep bench NAME --keep` keeps the temporary
folder with the job, its store and all logs: look into run.log there, and into
.lockstep/jobs/JOB/replicas/REPLICA/log.txt. `lockstep doctor` looks at the machine. Nothing else
heavy should run beside a benchmark.""",
    ),
}
