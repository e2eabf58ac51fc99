"""Random input for the examples, and what they have to find in it: plain Python, without states and timers."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
PAYMENTS = "card string, cents bigint, country string, at timestamp"
Record = dict[str, Any]


def payments(chance: random.Random) -> list[list[Record]]:
    """Six epochs of 80 payments over an hour: runs on one of four cards, pauses between them, mixed within an epoch."""
    made, at, card = [], START, 0
    for _ in range(480):
        at += timedelta(seconds=chance.choice([0.1, 0.3, 0.5, 1, 2, 5, 45]))
        card = card if chance.random() < 0.8 else chance.randrange(4)
        cents = chance.choice([50, 99, 600_00, 900_00, 101_00, *(chance.randrange(100, 99_00) for _ in range(6))])
        country = chance.choice(["NL"] * 9 + ["JP"])
        made.append({"card": f"card-{card}", "cents": cents, "country": country, "at": at})
    cut = [made[first : first + 80] for first in range(0, len(made), 80)]
    for epoch in cut:
        chance.shuffle(epoch)
    return cut


def alerts(epochs: list[list[Record]]) -> list[Record]:
    """The rules of the example, card by card, with lists instead of state and the watermark instead of timers."""
    alerts: list[Record] = []
    history: dict[str, list[Record]] = defaultdict(list)
    burst_since: dict[str, int] = defaultdict(int)
    probes: dict[str, datetime | None] = defaultdict(lambda: None)
    watches: dict[str, datetime | None] = defaultdict(lambda: None)
    newest: datetime | None = None
    for epoch in epochs:
        watermark = newest - timedelta(seconds=1) if newest else None
        for card, until in watches.items():
            if until is not None and watermark is not None and until <= watermark:
                watches[card] = probes[card] = None
        for payment in sorted(epoch, key=lambda one: one["at"]):
            card, at, cents = payment["card"], payment["at"], payment["cents"]
            before = history[card]
            rules = []
            probe = probes[card]
            if cents < 100:
                probes[card] = at
            elif probe is not None and cents > 50_000 and (at - probe).total_seconds() <= 60:
                rules.append("probe")
                probes[card] = None
            within = [one for one in before[burst_since[card] :] if (at - one["at"]).total_seconds() < 10]
            if len(within) == 4:
                rules.append("burst")
                burst_since[card] = len(before) + 1
            if before and before[-1]["country"] != payment["country"] and (at - before[-1]["at"]).total_seconds() < 30:
                rules.append("travel")
            before.append(payment)
            if rules:
                watches[card] = at + timedelta(minutes=5)
            if watches[card] is not None and cents > 10_000:
                rules.append("held")
            alerts += [{"card": card, "rule": rule, "cents": cents, "at": at} for rule in rules]
        newest = max([one["at"] for one in epoch] + ([newest] if newest else []))
    return alerts


def monitored(chance: random.Random) -> tuple[list[list[Record]], list[list[Record]]]:
    """Six epochs of documents and of rules: rules come, change and go, out of order and between the documents."""
    paths = {"$.scope": ["public", "team"], "$.labels[0]": ["payroll", "plan"], "$.owner.name": ["root", "ann"]}
    times = iter(chance.sample(range(60_000), 400))
    documents: list[list[Record]] = []
    rules: list[list[Record]] = []
    for _ in range(6):
        documents.append([])
        rules.append([])
        for _ in range(25):
            body = {
                "id": chance.randrange(1000),
                "scope": chance.choice(["public", "team", None]),
                "labels": chance.choice([[], ["payroll"], ["plan", "payroll"]]),
                "owner": chance.choice([{"name": "root"}, {"name": "ann"}, "nobody"]),
            }
            documents[-1].append(
                {"customer": chance.choice(["a", "b", "c", None]), "body": json.dumps(body), "ms": next(times)}
            )
        for _ in range(5):
            path = chance.choice(list(paths))
            suspect = chance.choice([*paths[path], *paths[path], None])
            name = f"rule-{chance.randrange(4)}"
            customer = chance.choice(["a", "b", None, None])
            rules[-1].append({"customer": customer, "rule": name, "path": path, "suspect": suspect, "ms": next(times)})
    for number in range(6):
        for record in [*documents[number], *rules[number]]:
            # Epoch after epoch ten seconds further, and within it in any order.
            record["at"] = START + timedelta(seconds=10 * number, milliseconds=record.pop("ms") % 9_000)
    return documents, rules


def found(documents: list[list[Record]], rules: list[list[Record]]) -> list[Record]:
    """All records of an epoch in one line, by time; rules are kept by customer and name."""
    held: dict[tuple[str | None, str], Record] = {}
    found = []
    for epoch in zip(documents, rules, strict=True):
        for record in sorted([*epoch[0], *epoch[1]], key=lambda one: one["at"]):
            if "rule" in record:
                held[record["customer"], record["rule"]] = record
                continue
            body = json.loads(record["body"])
            values = {
                "$.scope": body["scope"],
                "$.labels[0]": (body["labels"] or [None])[0],
                "$.owner.name": body["owner"]["name"] if isinstance(body["owner"], dict) else None,
            }
            for (customer, name), rule in held.items():
                concerned = customer is None or customer == record["customer"]
                if concerned and rule["suspect"] is not None and values[rule["path"]] == rule["suspect"]:
                    hit = {
                        "customer": record["customer"],
                        "rule": name,
                        "document": str(body["id"]),
                        "at": record["at"],
                    }
                    found.append(hit)
    return found
