"""Running totals by customer with Flink SQL; new code has a filter more that lets every record pass."""

import os

from common import publish, read, tables

t = tables()
read(t, "events", "seq BIGINT, customer STRING, at_us BIGINT")
passed = "WHERE seq >= 0" if os.environ.get("BENCH_CODE") == "new" else ""
publish(
    t,
    t.sql_query(f"""
        SELECT JSON_OBJECT('customer' VALUE customer, 'events' VALUE COUNT(*), 'total' VALUE SUM(seq))
        FROM events {passed}
        GROUP BY customer
    """),
)
