"""Two inputs in one, with Flink SQL: event time is that of the input that is behind."""

from common import EVENT, event_time, publish, read, tables, window_start_ms

t = tables()
for source in ("fast", "slow"):
    read(t, source, f"{EVENT}, {event_time('0.5')}")
t.execute_sql("CREATE VIEW both_inputs AS SELECT key, amount, ts FROM fast UNION ALL SELECT key, amount, ts FROM slow")
publish(
    t,
    t.sql_query(f"""
        SELECT JSON_OBJECT(
            'key' VALUE key,
            'window_start_ms' VALUE {window_start_ms()},
            'events' VALUE COUNT(*),
            'total' VALUE SUM(amount))
        FROM TABLE(TUMBLE(TABLE both_inputs, DESCRIPTOR(ts), INTERVAL '1' SECOND))
        GROUP BY key, window_start, window_end
    """),
)
