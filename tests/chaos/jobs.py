"""Jobs that the chaos tests run, and the independent answers to them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import open_journal

SCHEMA = "user string, amount bigint"
PATIENCE_S = 400.0
"""For anything that is waited for. It takes seconds, and minutes on a machine that does thirty other things at once."""
PATIENT = {"start_timeout_s": "600"}
"""On such a machine a boot takes longer than the default, and a replica that is replaced then begins anew."""

WHICH_REPLICA = '''
import psutil

def replica():
    """The replica this code runs in: what no honest job can know. Only of one that was never a warm spare."""
    for parent in psutil.Process().parents():
        for word in parent.cmdline():
            if word.endswith("spec.json"):
                return word.split("/")[-2]
    return "none"
'''

SIGN = (
    WHICH_REPLICA
    + """
def sign(record):
    if record.amount == 0:
        raise ValueError("nothing to sign")
    wrong = record.amount == 13 and replica() == "WRONG"
    return {"user": record.user, "amount": -record.amount if wrong else record.amount}
"""
)
"""A function for jobs: one replica computes something else for the amount 13; none can take 0."""


def append(project: Path, records: list[dict[str, Any]]) -> None:
    """Put records into the journal that the jobs read."""
    schema = parse_schema(SCHEMA)
    journal = open_journal(project / ".lockstep", "events", schema)
    journal.append(batch_from_pylist(records, schema))
    journal.close()


def totals(records: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """What rolling counts must have published last for each user."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for record in records:
        counts[record["user"]] += 1
        sums[record["user"]] += record["amount"]
    return {user: (counts[user], sums[user]) for user in counts}


def last_totals(table: pa.Table) -> dict[str, tuple[int, int]]:
    """The newest row of each user; the table is in epoch order."""
    rows = zip(*(table.column(name).to_pylist() for name in ("user", "n", "total")), strict=True)
    return {user: (n, total) for user, n, total in rows}
