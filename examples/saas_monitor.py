"""A SaaS security monitor: documents are checked against the rules of their customer and against rules for everyone.

Two inputs: documents (JSON, by customer), and rules that come and go while the job runs. A rule names a JSON path and
the value that is suspicious there; one with a customer is that customer's own, one without holds for all.

    lockstep run saas_monitor.py --replicas 2
    lockstep put rules <<'END'
    {"customer": null, "rule": "public", "path": "$.sharing.scope", "suspect": "public", "at": "2026-01-01T10:00:00Z"}
    {"customer": "acme", "rule": "payroll", "path": "$.labels[0]", "suspect": "payroll", "at": "2026-01-01T10:00:00Z"}
    END
    lockstep put documents <<'END'
    {"customer": "acme", "body": "{\\"id\\": 1, \\"labels\\": [\\"payroll\\"]}", "at": "2026-01-01T10:00:05Z"}
    {"customer": "blue", "body": "{\\"sharing\\": {\\"scope\\": \\"public\\"}}", "at": "2026-01-01T10:00:06Z"}
    END
    lockstep tail out/alerts --follow

- A customer's own rules are a list in the state of that customer (two streams by the same key, connected).
- Rules for all are broadcast: every part of the job has them.
- Both kinds of findings are united and counted for each customer, one result for each finding.

A document is only checked against rules that came before it. So the order in which documents and rules meet decides the
result, and it has to be the same in every replica: the order of event time, then of position.
"""

import json
import re

import lockstep as ls

RULES = "customer string, rule string, path string, suspect string, at timestamp"
DOCUMENTS = "customer string, body string, at timestamp"
FINDINGS = "customer string, rule string, document string, at timestamp"

PART = re.compile(r"\.(\w+)|\[(\d+)\]")


def value_at(document, path):
    """The value at a JSON path such as $.sharing.users[0].name; None if there is none."""
    for name, place in PART.findall(path):
        try:
            document = document[name] if name else document[int(place)]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def findings(document, rules):
    """The rules that a document meets, by name."""
    body = json.loads(document.body)
    for rule in sorted(rules, key=lambda rule: rule["rule"]):
        if value_at(body, rule["path"]) == rule["suspect"]:
            yield {
                "customer": document.customer,
                "rule": rule["rule"],
                "document": str(body.get("id")),
                "at": document.at,
            }


class OwnRules(ls.Process):
    """Checks a customer's documents against the customer's own rules."""

    rules = ls.list_state("struct<rule: string, path: string, suspect: string>")

    def on_left(self, document, ctx):
        for finding in findings(document, self.rules):
            ctx.emit(**finding)

    def on_right(self, rule, ctx):
        others = [one for one in self.rules if one["rule"] != rule.rule]  # the same rule again takes its place
        new = {"rule": rule.rule, "path": rule.path, "suspect": rule.suspect}
        self.rules.set(others if rule.suspect is None else [*others, new])


class RulesForAll(ls.Process):
    """Checks documents against the rules that every part of the job has."""

    rules = ls.broadcast_map("string", "struct<rule: string, path: string, suspect: string>")

    def on_record(self, document, ctx):
        for finding in findings(document, self.rules.values()):
            ctx.emit(**finding)

    def on_broadcast(self, rule, ctx):
        if rule.suspect is None:
            del self.rules[rule.rule]
        else:
            self.rules[rule.rule] = {"rule": rule.rule, "path": rule.path, "suspect": rule.suspect}


job = ls.Job("saas-monitor")

documents = job.source("documents", ls.journal("documents", schema=DOCUMENTS)).event_time(
    "at", out_of_order="2 seconds"
)
rules = job.source("rules", ls.journal("rules", schema=RULES)).event_time("at", out_of_order="2 seconds")
kinds = rules.split(for_all="customer is null")

by_customer = documents.key_by("customer")
own = by_customer.connect(kinds.rest.key_by("customer")).process(OwnRules(), schema=FINDINGS, name="own_rules")
common = by_customer.connect(kinds.for_all.broadcast()).process(RulesForAll(), schema=FINDINGS, name="rules_for_all")

alerts = own.union(common)
alerts.to(ls.files("out/alerts", format="jsonl"), name="alerts")
alerts.key_by("customer").count(as_="findings", per_record=True).to(ls.files("out/counts"), name="counts")
