"""Pages of the codes LS068x: the engines that Lockstep is compared with."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0680": Page(
        "There is no such engine or workload",
        """\
The benchmarks against other engines know each engine and each workload by a name, such as `lockstep-2`, `spark` or
`flink`, and `word_count` or `tumbling_window`. The message lists the names there are.""",
    ),
    "LS0681": Page(
        "An engine could not be installed",
        """\
`lockstep bench install NAME` makes a virtual environment for an engine, from the exact versions in
benchmarks/engines/NAME.txt. Either there is no engine of this name, or pip could not install these versions; the
message has what pip said. Not every engine has packages for every version of Python.

The benchmarks run without it: they name it as missing, with the reason.""",
    ),
}
