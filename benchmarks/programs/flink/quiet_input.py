"""Two inputs of which one goes quiet, with Flink SQL: after two seconds nobody waits for it any more."""

from common import EVENT, event_time, publish, read, tables, window_start_ms

t = tables()
t.get_config().set("table.exec.source.idle-timeout", "2 s")
for source in ("steady", "moody"):
    read(t, source, f"{EVENT}, {event_time('0.5')}")
t.execute_sql(
    "CREATE VIEW both_inputs AS SELECT key, amount, ts FROM steady UNION ALL SELECT key, amount, ts FROM moody"
)
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
