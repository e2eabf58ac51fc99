"""A chain of pass-through steps, with PyFlink's DataStream API: each a Python function."""

import json
import os

from common import read, tables, write
from pyflink.common import Row, Types

RECORD = Types.ROW([Types.LONG(), Types.LONG(), Types.LONG()])


def passed(record: Row) -> Row:
    """One hop more."""
    return Row(record[0], record[1], record[2] + 1)


t = tables()
read(t, "events", "seq BIGINT, sent_us BIGINT, `value` BIGINT, hops BIGINT")
stream = t.to_data_stream(t.sql_query("SELECT seq, `value`, hops FROM events"))
for _ in range(int(os.environ["BENCH_WORKLOAD"].removeprefix("chain_"))):
    stream = stream.map(passed, RECORD)
write(stream.map(lambda r: json.dumps({"seq": r[0], "value": r[1], "hops": r[2]}), Types.STRING()))
