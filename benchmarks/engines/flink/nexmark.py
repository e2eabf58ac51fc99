"""Nexmark with Flink SQL: queries 0, 1, 2, 5 and 7."""

import os

from common import event_time, publish, read, tables

BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, extra STRING"
FOUND = """
    JSON_OBJECT('auction' VALUE auction, 'bidder' VALUE bidder, 'price' VALUE price, 'at_ms' VALUE at_ms,
        'extra' VALUE extra)
"""
END_MS = "1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT)"
EUROS = "CAST(CAST(price * 0.908 AS DECIMAL(23, 3)) AS STRING)"
TEN_SECONDS = "TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND"
QUERIES = {
    "q0": f"SELECT {FOUND} FROM bids",
    "q1": f"SELECT {FOUND} FROM (SELECT auction, bidder, {EUROS} AS price, at_ms, extra FROM bids)",
    "q2": "SELECT JSON_OBJECT('auction' VALUE auction, 'price' VALUE price) FROM bids WHERE MOD(auction, 123) = 0",
    "q5": f"""
        SELECT JSON_OBJECT('window_end_ms' VALUE {END_MS}, 'auction' VALUE auction, 'bids' VALUE number)
        FROM (
            SELECT counts.auction, counts.number, counts.window_end
            FROM counts JOIN (
                SELECT MAX(number) AS most, window_start, window_end FROM counts GROUP BY window_start, window_end
            ) AS best
            ON counts.window_start = best.window_start AND counts.window_end = best.window_end
            WHERE counts.number = best.most)
    """,
    "q7": f"""
        SELECT {FOUND}
        FROM (SELECT * FROM TABLE(TUMBLE({TEN_SECONDS}))) AS every_bid JOIN (
            SELECT MAX(price) AS most, window_start, window_end
            FROM TABLE(TUMBLE({TEN_SECONDS})) GROUP BY window_start, window_end
        ) AS best
        ON every_bid.window_start = best.window_start AND every_bid.window_end = best.window_end
        WHERE every_bid.price = best.most
    """,
}

t = tables()
read(t, "nexmark", f"event_type INT, at_ms BIGINT, bid ROW<{BID}>, {event_time('4')}")
t.execute_sql("""
    CREATE VIEW bids AS
    SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.extra AS extra, at_ms, ts
    FROM nexmark WHERE event_type = 2
""")
t.execute_sql("""
    CREATE VIEW counts AS
    SELECT auction, COUNT(*) AS number, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
""")
publish(t, t.sql_query(QUERIES[os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")]))
