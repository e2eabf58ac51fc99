"""Nexmark with Flink SQL: queries 0 to 5, 7 and 8.

Query 4 counts an auction's highest bid before it has ended, and corrects it: once all have ended, it is the same. An
average over a seller's last rows, as query 6 wants, has an order by event time only, not by auction within it.
"""

import os

from common import event_time, publish, read, tables, window_start_ms

PERSON = "id BIGINT, name STRING, city STRING, state STRING"
AUCTION = "id BIGINT, expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT"
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
    "q3": """
        SELECT JSON_OBJECT('name' VALUE name, 'city' VALUE city, 'state' VALUE state, 'id' VALUE auctions.id)
        FROM auctions JOIN people
        ON auctions.seller = people.id
            AND auctions.ts BETWEEN people.ts - INTERVAL '1' HOUR AND people.ts + INTERVAL '1' HOUR
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT JSON_OBJECT('category' VALUE category, 'average' VALUE AVG(CAST(highest AS DOUBLE)))
        FROM (
            SELECT auctions.id, category, MAX(price) AS highest
            FROM auctions JOIN bids
            ON auctions.id = bids.auction AND bids.ts BETWEEN auctions.ts AND auctions.ts + INTERVAL '1' HOUR
            WHERE bids.ts <= auctions.expires
            GROUP BY auctions.id, category)
        GROUP BY category
    """,
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
    "q8": f"""
        SELECT JSON_OBJECT('id' VALUE id, 'name' VALUE name, 'window_start_ms' VALUE {window_start_ms()})
        FROM (
            SELECT * FROM TABLE(TUMBLE(TABLE people, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        ) AS newcomers JOIN (
            SELECT seller, window_start AS sold_start, window_end AS sold_end
            FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) AS sellers
        ON id = seller AND window_start = sold_start AND window_end = sold_end
    """,
}

t = tables()
structs = f"person ROW<{PERSON}>, auction ROW<{AUCTION}>, bid ROW<{BID}>"
read(t, "nexmark", f"event_type INT, at_ms BIGINT, {structs}, {event_time('4')}")
t.execute_sql("""
    CREATE VIEW people AS
    SELECT person.id AS id, person.name AS name, person.city AS city, person.state AS state, ts
    FROM nexmark WHERE event_type = 0
""")
t.execute_sql("""
    CREATE VIEW auctions AS
    SELECT auction.id AS id, auction.seller AS seller, auction.category AS category, auction.expires AS expires, ts
    FROM nexmark WHERE event_type = 1
""")
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
