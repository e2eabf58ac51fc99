"""Windows over much input at once, with Flink SQL."""

from common import EVENT, event_time, publish, read, tables, window_start_ms

t = tables()
read(t, "events", f"{EVENT}, {event_time('2')}")
publish(
    t,
    t.sql_query(f"""
        SELECT JSON_OBJECT(
            'key' VALUE key,
            'window_start_ms' VALUE {window_start_ms()},
            'events' VALUE COUNT(*),
            'total' VALUE SUM(amount))
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY key, window_start, window_end
    """),
)
