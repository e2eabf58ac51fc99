"""Running totals by customer with Flink SQL; new code has another filter, and every record passes either.

With a filter more, Flink would number the operators of a SQL query anew and find no state for them.
"""

import os

from common import publish, read, tables

t = tables()
read(t, "events", "seq BIGINT, customer STRING, at_us BIGINT")
least = 0 if os.environ.get("BENCH_CODE") == "new" else -1
publish(
    t,
    t.sql_query(f"""
        SELECT JSON_OBJECT('customer' VALUE customer, 'events' VALUE COUNT(*), 'total' VALUE SUM(seq))
        FROM events WHERE seq >= {least}
        GROUP BY customer
    """),
)
