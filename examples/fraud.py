"""Card fraud: three rules over the payments of each card, with state and timers.

It runs alone, on payments that it makes itself (twenty a second on a hundred cards):

    lockstep run fraud.py --replicas 2
    lockstep tail out/alerts --follow

The rules, for each card:

- *probe*: a payment under 1.00 and then one over 500.00 within a minute: someone tries whether a stolen card works.
- *burst*: more than four payments within ten seconds.
- *travel*: payments in two countries less than half a minute apart.

An account is watched for five minutes after an alert: while it is, every payment over 100.00 is *held*. The watch ends
by a timer, unless there was another alert meanwhile.
"""

from datetime import timedelta

import lockstep as ls

PROBE, BURST, TRAVEL, WATCH = timedelta(minutes=1), timedelta(seconds=10), timedelta(seconds=30), timedelta(minutes=5)
ALERTS = "card string, rule string, cents bigint, at timestamp"


class Fraud(ls.Process):
    """The rules, and what they remember of a card."""

    probed = ls.value_state("timestamp")  # when the last tiny payment was
    recent = ls.list_state("timestamp")  # the payments of the last ten seconds
    seen = ls.value_state("struct<country: string, at: timestamp>")  # where the last payment was
    watched = ls.value_state("timestamp")  # until when the card is watched

    def on_record(self, payment, ctx):
        for rule in [*self._probe(payment), *self._burst(payment), *self._travel(payment)]:
            ctx.emit(card=ctx.key.card, rule=rule, cents=payment.cents, at=payment.at)
            self.watched.set(payment.at + WATCH)
            ctx.set_timer(payment.at + WATCH)
        if self.watched.get() is not None and payment.cents > 100_00:
            ctx.emit(card=ctx.key.card, rule="held", cents=payment.cents, at=payment.at)

    def on_timer(self, timer, ctx):
        if timer.at == self.watched.get():
            self.watched.clear()
            self.probed.clear()

    def _probe(self, payment):
        probed = self.probed.get()
        if payment.cents < 1_00:
            self.probed.set(payment.at)
        elif probed is not None and payment.cents > 500_00 and payment.at - probed <= PROBE:
            self.probed.clear()
            yield "probe"

    def _burst(self, payment):
        recent = [at for at in self.recent if at > payment.at - BURST] + [payment.at]
        self.recent.set(recent)
        if len(recent) > 4:
            self.recent.clear()
            yield "burst"

    def _travel(self, payment):
        last = self.seen.get()
        self.seen.set({"country": payment.country, "at": payment.at})
        if last is not None and last["country"] != payment.country and payment.at - last["at"] < TRAVEL:
            yield "travel"


def alerts(payments):
    """What the rules say about a stream of payments."""
    return payments.event_time("at", out_of_order="1 second").key_by("card").process(Fraud(), schema=ALERTS)


def payments_of(numbers):
    """Payments made of numbers: the same number gives the same payment."""
    return numbers.select(
        "at",
        card="concat('card-', pmod(xxhash64(seq), 100))",
        chance="pmod(xxhash64(seq, 'cents'), 1000)",
        country="case when pmod(xxhash64(seq, 'country'), 100) < 98 then 'NL' else 'JP' end",
    ).select(
        "card",
        "country",
        "at",
        cents="case when chance < 30 then 50 when chance < 50 then 60000 else 500 + chance * 20 end",
    )


job = ls.Job("fraud")

alerts(payments_of(job.source("numbers", ls.rate(20)))).to(ls.files("out/alerts", format="jsonl"))
