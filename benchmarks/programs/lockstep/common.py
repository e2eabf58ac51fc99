"""What the programs for Lockstep share: where a source's records come from.

They are read from the watched folder; or, as `lockstep-journal-...`, from a journal that a process beside the job fills
from that folder, which is how records that are not files come to Lockstep.
"""

import os

import lockstep as ls


def source(name: str, schema: str):
    """A source of the benchmark. Its files appear whole: nobody has to wait until they are still."""
    if os.environ.get("BENCH_JOURNAL") == "1":
        return ls.journal(name, schema=schema)
    return ls.files(f"input/{name}", schema=schema, still_for="0 ms")
