"""Word count with Flink SQL: how often each word came so far."""

from common import publish, read, tables

t = tables()
read(t, "lines", "seq BIGINT, sent_us BIGINT, text STRING")
publish(
    t,
    t.sql_query("""
        SELECT JSON_OBJECT('word' VALUE word, 'count' VALUE COUNT(*), 'seq' VALUE MAX(seq))
        FROM lines CROSS JOIN UNNEST(SPLIT(text, ' ')) AS words (word)
        GROUP BY word
    """),
)
