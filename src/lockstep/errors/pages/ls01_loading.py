"""Pages of the codes LS012x: finding and loading the job file, and jobs that come to their replicas by value."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0120": Page(
        "The job file has a syntax error",
        "Python could not read the job file, or a module next to it that it imports. Nothing was run. The "
        "message shows the line, and a caret under the place where Python gave up; the mistake is there or just "
        "before it, often a bracket or a quote that was not closed.",
    ),
    "LS0121": Page(
        "There is no job in the file",
        "The file was loaded, but none of its variables holds a job (or not the variable that was named after "
        'the colon). A job has to be in a variable at the top level of the file:\n\n    job = ls.Job("my-job")'
        "\n\nA job made inside a function is not found: call the function, and keep what it returns in a "
        "variable.",
    ),
    "LS0122": Page(
        "There are several jobs in the file",
        "One command works on one job. When a file holds several, say which: put a colon and the variable's name "
        "after the path, as in\n\n    lockstep run jobs.py:alerts",
    ),
    "LS0123": Page(
        "The job file is missing",
        "No file is at the path that was given. Relative paths start at the folder in which the command is "
        "called, not at --project. If the name looks right, compare it with the files that the message lists.",
    ),
    "LS0124": Page(
        "The job file raised an exception while it was loaded",
        "Loading a job file means executing it, from top to bottom, as Python does with any module; here that "
        "ended in an exception, at the line shown. A job file should only describe the job. Work that belongs to "
        "a program (parsing arguments, opening connections, starting threads) goes into functions or under if "
        '__name__ == "__main__".',
    ),
    "LS0125": Page(
        "A job file starts its job while it is loaded",
        "`lockstep run`, `plan`, `check` and `submit` execute a job file to find the job in it. This file calls "
        "job.run() or job.start() on the way, so the job would be started once more, by every process that loads "
        'it. Put the call under if __name__ == "__main__": at the end of the file. Then `python job.py` runs the '
        "job from Python, and `lockstep run job.py` runs it from the command line.",
    ),
    "LS0137": Page(
        "Something of a job cannot leave the process that made it",
        "job.run() and job.start() run replicas, which are processes of their own. The job goes to them as it is, "
        "with the functions and classes that it uses and with the values that those refer to. Some values cannot "
        "go: locks, open files, connections, sessions, handles of running jobs. The message names the step. Make "
        "such a thing inside the function that uses it, or pass what it is made from: a path, an address.\n\n"
        "The other way round, a replica may not find what a function imports: packages have to be installed in "
        "the environment that runs the job. Modules beside the script or notebook travel with the job.",
    ),
}
