"""Where records go that a Python function could not take, if the step says ``on_error="skip"``: a journal of the job's.

Every replica meets the same bad record; the journal keeps each once, by the record's position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema
from lockstep.store.journal import open_journal

SCHEMA = "step string, source string, partition string, offset bigint, record string, error string"


def journal_name(job: str) -> str:
    """The dead-letter journal of a job.

    >>> journal_name("logins")
    'logins.dead-letters'
    """
    return f"{job}.dead-letters"


@dataclass(frozen=True)
class DeadLetterWriter:
    """Plain data until a worker calls it."""

    store: str
    job: str

    def __call__(self, key: str, step: str, facts: dict[str, Any]) -> None:
        """Keep one record, once."""
        schema = arrow_schema(parse_schema(SCHEMA))
        batch = pa.RecordBatch.from_pylist([{"step": step, **facts}], schema)
        journal = open_journal(Path(self.store), journal_name(self.job), parse_schema(SCHEMA))
        try:
            journal.append_once(batch, json.dumps(key))
        finally:
            journal.close()
