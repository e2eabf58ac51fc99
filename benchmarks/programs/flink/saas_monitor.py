"""The SaaS monitor with Flink SQL: customers that made documents public, second by second."""

from common import event_time, publish, read, tables, window_start_ms

SHARED = "seq BIGINT, sent_us BIGINT, at_ms BIGINT, customer BIGINT, document STRING, shared_with STRING"

t = tables()
read(t, "shared", f"{SHARED}, {event_time('0.5')}")
t.execute_sql("CREATE VIEW public_documents AS SELECT customer, at_ms, ts FROM shared WHERE shared_with = 'public'")
publish(
    t,
    t.sql_query(f"""
        SELECT JSON_OBJECT(
            'customer' VALUE customer,
            'window_start_ms' VALUE {window_start_ms()},
            'documents' VALUE COUNT(*),
            'newest_ms' VALUE MAX(at_ms))
        FROM TABLE(TUMBLE(TABLE public_documents, DESCRIPTOR(ts), INTERVAL '1' SECOND))
        GROUP BY customer, window_start, window_end
    """),
)
